"""CDXJ: one line a capture, sorted, by which replay tools find it in WARC files.

The key is the URL turned around (SURT) and simplified as Wayback machines do it: whoever looks up a URL makes the same key of it,
so every odd rule here is theirs. The URLs that come in are normalised, which spares most of the work.
"""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from shepherd.urls import MAX_URL_BYTES

_URL: Final = re.compile(rb"(https?)://(\[[^\]]*\]|[^/:?#]*)(?::([0-9]+))?([^?#]*)(?:\?([^#]*))?")
_PORTS: Final = {b"http": b"80", b"https": b"443"}
_SAFE: Final = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_WWW: Final = re.compile(rb"www[0-9]*\.")
_SLASHES: Final = re.compile(rb"/{2,}")
_PATH_SESSIONS: Final = tuple(
    re.compile(text, re.IGNORECASE | re.DOTALL)
    for text in (rb"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)", rb"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)")
)
_QUERY_SESSIONS: Final = tuple(
    re.compile(rb"(.*)(?:" + text + rb")(?:&(.*))?", re.IGNORECASE | re.DOTALL)
    for text in (
        rb"jsessionid=[0-9a-z]{32}",
        rb"phpsessid=[0-9a-z]{32}",
        rb"sid=[0-9a-z]{32}",
        rb"aspsessionid[a-z]{8}=[a-z]{24}",
        rb"cfid=[^&]+&cftoken=[^&]+",
    )
)


def url_key(url: bytes) -> bytes:
    """The key of a normalised URL. One that is longer than any of ours is its own: what takes sessions out is not linear."""
    match = _URL.match(url) if len(url) <= MAX_URL_BYTES else None
    if match is None:
        return url
    scheme, host, port, path, query = match.groups()
    name = host.strip(b"[]").lower().replace(b"..", b".").strip(b".")
    if www := _WWW.match(name):
        name = name[www.end() :]
    key = b",".join(reversed(name.split(b".")))
    if port and port != _PORTS[scheme]:
        key += b":%d" % int(port)
    return key + b")" + _path(path) + _query(query)


def _path(path: bytes) -> bytes:
    path = _unquote(path)
    if b"/." in path:
        path = _without_dots(path)
    path = _quote(_SLASHES.sub(b"/", path)).lower()
    if b"aspx" in path:
        for pattern in _PATH_SESSIONS:
            if match := pattern.fullmatch(path):
                path = match[1] + match[2]
    return path[:-1] if len(path) > 1 and path.endswith(b"/") else path or b"/"


def _without_dots(path: bytes) -> bytes:
    """Without what steps nowhere or back; a step back at the top stays."""
    parts: list[bytes] = []
    for part in path.split(b"/")[1:]:
        if part == b".." and parts:
            parts.pop()
        elif part != b".":
            parts.append(part)
    return b"/" + b"/".join(parts)


def _query(query: bytes | None) -> bytes:
    if not query:
        return b""
    query = _quote(_unquote(query))
    for pattern in _QUERY_SESSIONS:
        if match := pattern.fullmatch(query):
            query = match[1] + (match[2] or b"")
    query = query.lower()
    if b"&" in query:
        query = b"&".join(b"=".join(pair) for pair in sorted(tuple(part.split(b"=", 1)) for part in query.split(b"&")))
    return b"?" + query if query else b""


def _unquote(text: bytes) -> bytes:
    while b"%" in text:
        plain = unquote_to_bytes(text)
        if plain == text:
            break
        text = plain
    return text


def _quote(text: bytes) -> bytes:
    return quote_from_bytes(text, safe=_SAFE).encode("ascii")


def line(key: bytes, timestamp: bytes, facts: dict[str, str]) -> bytes:
    return b"%s %s %s\n" % (key, timestamp, json.dumps(facts).encode("ascii"))
