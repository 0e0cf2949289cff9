"""JSON Feed: what RSS and Atom are in XML, in JSON (jsonfeed.org, versions 1 and 1.1).

Invariant: whatever the bytes, the cost is bounded by MAX_BYTES and nothing raises; a document that is longer, is not JSON or
has another shape lists nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from shepherd.dates import seconds_of
from shepherd.reaper.document.sitemap import MAX_URL, MAX_URLS, Listing

TYPE: Final = "application/feed+json"
PLAIN_TYPE: Final = "application/json"  # as which many are sent
MAX_BYTES: Final = 4 * 1024 * 1024  # JSON of empty lists takes twenty times its length in memory

_LOOK: Final = 1_024
_MARK: Final = b"jsonfeed.org/version/1"


def is_feed(body: bytes, kind: str) -> bool:
    """Whether a body is a JSON feed: by its type, or, where that is plain JSON, by the version at its beginning."""
    return kind == TYPE or (kind == PLAIN_TYPE and _MARK in body[:_LOOK].replace(b"\\/", b"/"))


def read(body: bytes) -> Listing:
    """The URLs of a feed: of its entries, of the page it belongs to, and of its next part."""
    listing = Listing()
    if len(body) > MAX_BYTES:
        listing.why = f"more than {MAX_BYTES:,} bytes"
        return listing
    try:
        feed = json.loads(body)
    except (ValueError, RecursionError) as error:
        listing.why = f"not JSON: {error}"
        return listing
    if not isinstance(feed, dict):
        listing.why = "not a feed"
        return listing
    listing.title = _text(feed, "title")
    for link, time in _links(feed):
        if len(listing.urls) >= MAX_URLS and link not in listing.urls:
            listing.why = f"more than {MAX_URLS:,} URLs"
            break
        listing.urls[link] = max(time, listing.urls.get(link, 0))
    return listing


def _links(feed: dict[str, Any]) -> Iterator[tuple[str, int]]:
    entries = feed.get("items")
    for part in [feed, *(entries if isinstance(entries, list) else ())]:
        if not isinstance(part, dict):
            continue
        time = max(seconds_of(_text(part, "date_modified")), seconds_of(_text(part, "date_published")))
        named = [link for name in ("home_page_url", "next_url", "url", "external_url") if (link := _text(part, name).strip())]
        own = _text(part, "id").strip()
        if not named and own.startswith(("http://", "https://")):  # an entry's name is often its address
            named = [own]
        yield from ((link, time) for link in named if len(link) <= MAX_URL)


def _text(part: dict[str, Any], name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""
