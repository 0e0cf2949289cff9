"""The headers of a request that do not name it: what we take, and what we have already."""

from __future__ import annotations

from typing import Final

from shepherd.dates import http_seconds

ACCEPT: Final = (
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Encoding: gzip, br, zstd, deflate",
)
MAX_VALIDATOR: Final = 1_024  # characters; what is longer is not sent back


def conditional(etag: str, modified: str) -> list[str]:
    """The headers that ask for a document only if it is not the stored one.

    An entity tag is sent back as it came, weak or without its quotes, but not `*`, which every document matches. A date is sent
    back as it came if it is one.
    """
    headers = []
    if _is_sendable(etag) and etag.strip() != "*":
        headers.append(f"If-None-Match: {etag}")
    if _is_sendable(modified) and http_seconds(modified) is not None:
        headers.append(f"If-Modified-Since: {modified}")
    return headers


def _is_sendable(value: str) -> bool:
    """Whether what a server gave us once can be sent back: one line of printable ASCII."""
    return 0 < len(value) <= MAX_VALIDATOR and value.isascii() and value.isprintable()
