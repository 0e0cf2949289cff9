"""JSON Feed is read like the feeds in XML, and hostile ones cost no more than their limits."""

from __future__ import annotations

import json

import pytest

from shepherd.reaper.document import json_feed as jsonfeed
from shepherd.reaper.document.extract import PageFacts, extract
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.fetch.exchange import ExtractOptions

FEED = {
    "version": "https://jsonfeed.org/version/1.1",
    "title": " News\n of sheep ",
    "home_page_url": "http://a.example/",
    "feed_url": "http://a.example/feed.json",
    "next_url": "http://a.example/feed.json?page=2",
    "items": [
        {"id": "1", "url": "/one", "date_published": "2024-01-01T00:00:00Z", "date_modified": "2024-01-02T00:00:00+00:00"},
        {"id": "http://a.example/two"},
        {"id": "3", "url": "/three", "external_url": "http://b.example/story", "attachments": [{"url": "/sound.mp3"}]},
        {"id": "not an address"},
    ],
}
LISTED = {
    "http://a.example/": 0,
    "http://a.example/feed.json?page=2": 0,
    "/one": 1704153600,
    "http://a.example/two": 0,
    "/three": 0,
    "http://b.example/story": 0,
}


def read(body: bytes, kind: str, *wishes: str) -> PageFacts:
    return extract(body, HeaderFacts(kind, frozenset(wishes)), "http://a.example/feed.json", ExtractOptions(100))


@pytest.mark.parametrize("kind", ["application/feed+json", "application/feed+json; charset=utf-8", "application/json"])
def test_entries_of_a_json_feed_are_links_with_their_times(kind: str) -> None:
    page = read(json.dumps(FEED).encode(), kind)
    assert page.links == list(LISTED) and dict(page.times) == LISTED
    assert page.title == "News of sheep"
    assert read(json.dumps(FEED).replace("/", "\\/").encode(), kind).links == list(LISTED)


def test_json_that_is_no_feed_has_no_links() -> None:
    assert read(json.dumps({**FEED, "version": "2"}).encode(), "application/json").links == []


def test_feed_with_nofollow_has_no_links() -> None:
    assert read(json.dumps(FEED).encode(), "application/feed+json", "nofollow").links == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"items":' * 100_000,
        b"[" + b"[]," * 300_000 + b"[]]",
        b'{"items": {"url": "/x"}, "title": 7}',
        b'{"items": [1, null, {"url": 5, "id": ["http://x"], "date_published": {}}]}',
        b'{"items": [{"url": "' + b"x" * 5_000 + b'"}]}',
        b'{"home_page_url": "/x"}' + b" " * jsonfeed.MAX_BYTES,
        b"9" * 1_000_000,
    ],
)
def test_hostile_json_lists_nothing_and_does_not_raise(body: bytes) -> None:
    assert read(body, "application/feed+json").links == []


def test_feed_of_too_many_entries_is_cut() -> None:
    body = json.dumps({"items": [{"url": f"/{n}"} for n in range(60_000)]}).encode()
    found = jsonfeed.read(body)
    assert len(found.urls) == 50_000 and "URLs" in found.why


def test_page_links_to_its_json_feed() -> None:
    html = b"<link rel=alternate type=application/feed+json href=/feed.json><link rel=alternate type=application/json href=/api>"
    assert extract(html, HeaderFacts("text/html"), "http://a.example/", ExtractOptions(100)).links == ["/feed.json"]
