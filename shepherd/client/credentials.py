"""The URL, token and authorities of the caller: judged before anything is sent.

No message has the token, or a part of a URL that may have one.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests

from shepherd.errors import UsageError

_TOKEN: Final = re.compile(r"[!-~]+")


def token(text: str) -> str:
    """As it goes into a header. The line end of a file is not part of it."""
    if not _TOKEN.fullmatch(text.strip()):
        raise UsageError("the token is empty, or has characters that none has; give what shep-serve token add has shown")
    return text.strip()


def server(url: str, insecure: bool) -> str:
    """The beginning of every URL of this server."""
    try:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
            raise ValueError("it names no server")
        parts.hostname.encode("idna")
        requests.Request("GET", base, params={"port": parts.port}).prepare()
    except ValueError as error:  # as are those of requests and of idna
        raise UsageError(no_url(url, str(error))) from None
    if parts.scheme == "http" and not insecure and not _is_loopback(parts.hostname):
        raise UsageError(f"{_redact(url)}: the token would go there for all on the way to read; give it as https://HOST:PORT")
    return base


def no_url(url: str, why: str) -> str:
    """The message for a URL that is not a server's."""
    why = "" if any(mark in why for mark in "?#@") else f" ({why})"  # it may quote the URL, and that a token
    return f"{_redact(url)}: give the server as http://HOST:PORT or https://HOST:PORT{why}"


def _redact(url: str) -> str:
    """Without what a token may be in."""
    return repr(re.sub(r"^(\w+://)?.*@", r"\1", re.split("[?#]", url)[0]))


def refuse_authorities(ca: Path) -> None:
    """UsageError where it is not there, or none."""
    try:
        ssl.create_default_context(cafile=None if ca.is_dir() else str(ca), capath=str(ca) if ca.is_dir() else None)
    except OSError as error:  # as are those of ssl
        raise UsageError(f"{ca}: cannot be used as authorities for https: {error.strerror or error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False
