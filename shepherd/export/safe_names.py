"""Names of files for URLs: by host and path, readable, never outside the directory, and never the same for two URLs.

What a hostile URL may hold is escaped as %XX, the tilde and a leading dot among it, in hosts as in paths: `..` is a host, too. A
URL's own %XX stays only if it stands for what no URL has unescaped, a blank or what is not ASCII; else its % is escaped. So a
tilde in a name is ours, and keeps apart what would be one: a file from a directory of the same name, and what had to be shortened
from what it then looks like.
"""

from __future__ import annotations

import hashlib
from typing import Final

from shepherd.expressions import UrlForm

MOST_BYTES: Final = 100  # of one name, where a file system has room for 255
MOST_PATH: Final = 1_000


def file_path(url: str, html: bool) -> str:
    """The path of a URL's file, with slashes, relative to the directory of the export."""
    url_parts = UrlForm.NORMAL.fullmatch(url) if url.isascii() and " " not in url else None
    if url_parts is None:  # not as parse() makes it: a peer may send anything
        return f"odd/{_hash(url)}~"
    scheme, host, port, path, query = url_parts.groups()
    *above, last = path.split("/")[1:]
    parts = [_host(scheme, host, port), *map(_directory, above), _file(last, query or "", html)]
    whole = "/".join(parts)
    return whole if len(whole) <= MOST_PATH else f"{parts[0]}/{_hash(url)}~"


def _host(scheme: str, host: str, port: str | None) -> str:
    """A site is a directory; https and its port are left out."""
    name = _short(_escaped(host))
    return name + (f",{scheme}" if scheme == "http" else "") + (f",{port}" if port else "")


def _directory(segment: str) -> str:
    name = _short(_escaped(segment))
    return name + "~" if "." in name or not name else name


def _file(segment: str, query: str, html: bool) -> str:
    """A name with a dot or a tilde in it, which a directory has only at its end."""
    name = _short(_escaped(segment))
    if query:
        return f"{name}~{_hash(query)}"
    if not name:
        return "index~.html" if html else "index~"
    return name if "." in name and "~" not in name else name + "~f"


def _escaped(segment: str) -> str:
    name = UrlForm.UNSAFE.sub(lambda character: f"%{ord(character[0]):02X}", segment)
    return "%2E" + name[1:] if name.startswith(".") else name


def _short(name: str) -> str:
    if len(name) <= MOST_BYTES:
        return name
    return f"{name[: MOST_BYTES - 25]}~{_hash(name)}"


def _hash(text: str) -> str:
    """Without known collisions: else a site could make two of its URLs one file."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
