"""The sitemaps that a robots.txt names, from the first contact to rows of the index."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.dispatch.test_reap_scenarios import CF, must
from tests.support.origin import Answer, ok, serve
from tests.worlds import write_open_filter

INDEX = b"<sitemapindex><sitemap><loc>http://a.example/inner.xml</loc></sitemap></sitemapindex>"
INNER = b"<urlset><url><loc>http://a.example/found</loc><lastmod>2026-01-02</lastmod></url></urlset>"
FEED = b"<rss><channel><item><link>/news</link><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate></item></channel></rss>"
ROUTES: dict[str, Answer] = {
    "a.example/robots.txt": ok(b"User-agent: *\nDisallow: /no\nSitemap: http://a.example/map.xml\n", "Content-Type: text/plain"),
    "a.example/": ok(b"<link rel=alternate type=application/rss+xml href=/feed>", "Content-Type: text/html"),
    "a.example/map.xml": ok(INDEX, "Content-Type: application/xml"),
    "a.example/inner.xml": ok(gzip.compress(INNER), "Content-Type: application/x-gzip"),
    "a.example/feed": ok(FEED, "Content-Type: text/html"),
}


def cycle(home: Path) -> list[dict[str, object]]:
    """One cycle; the contributions of its reap."""
    for program in ("plan", "reap", "cork"):
        must(home, f"shep-{program}", "-q")
    found = [json.loads(line) for line in must(home, "shep-dump", "contrib", "--json").splitlines()]
    for program in ("merge", "select", "record"):
        must(home, f"shep-{program}", "-q")
    return found


def test_sitemap_of_a_robots_file_is_gathered_and_what_it_lists_becomes_rows(tmp_path: Path) -> None:
    with serve(ROUTES, address="127.0.3.9") as origin:
        (tmp_path / "cf").mkdir()
        (tmp_path / "cf" / "shepherd.toml").write_text(CF)
        write_open_filter(tmp_path / "cf")
        (tmp_path / "cf" / "static").write_text(f"a.example 127.0.3.9 {origin.port}\n")
        must(tmp_path, "shep-init", "-q")
        must(tmp_path, "shep", "insert", "http://a.example/")
        for program in ("merge", "select", "record"):
            must(tmp_path, f"shep-{program}", "-q")
        first, second, third = cycle(tmp_path), cycle(tmp_path), cycle(tmp_path)
        rows = [json.loads(line)["url"] for line in must(tmp_path, "shep", "list", "--json").splitlines()]
        must(tmp_path, "shep-check")
    assert {entry["url"] for entry in first} == {"http://a.example/map.xml", "http://a.example/feed"}
    assert {(entry["url"], entry["lastmod"] is not None) for entry in second} == {
        ("http://a.example/inner.xml", False),
        ("http://a.example/news", True),
    }
    assert [(entry["url"], entry["lastmod"]) for entry in third] == [("http://a.example/found", second_of(second))]
    assert "http://a.example/found" in rows
    assert origin.paths().count("/robots.txt") == 1


def second_of(entries: list[dict[str, object]]) -> object:
    """The one time among entries: all documents here were modified in the same second."""
    (time,) = {entry["lastmod"] for entry in entries if entry["lastmod"]}
    return time
