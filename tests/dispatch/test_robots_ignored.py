"""`set robots ignore` in whole cycles: by every reap, for the sites that the line names alone, and seen by whoever asks why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.origin import ok
from tests.support.reaping import Home, planned

SHUT = ok(b"User-agent: *\nDisallow: /\nCrawl-delay: 0.02\nSitemap: http://ignored.example/map.xml\n", "Content-Type: text/plain")
MAP = b"<urlset><url><loc>http://ignored.example/mapped</loc></url></urlset>"
HTML = "Content-Type: text/html"
FAILS = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
ROUTES = {
    **{f"{host}.example/robots.txt": SHUT for host in ("ignored", "obeyed")},
    **{f"{host}.example/robots.txt": FAILS for host in ("silent", "down")},
    **{f"{host}.example/a": ok(b"<p>one <a href=/b>two</a>", HTML) for host in ("ignored", "obeyed", "silent", "down")},
    **{f"{host}.example/b": ok(b"<p>two", HTML) for host in ("ignored", "obeyed", "silent", "down")},
    "ignored.example/map.xml": ok(MAP, "Content-Type: application/xml"),
    "ignored.example/mapped": ok(b"<p>mapped", HTML),
    "ranged.example/robots.txt": SHUT,
    "ranged.example/a": ok(b"<p>by address", HTML),
}
FILTER = "set robots ignore host ignored.example silent.example\n"
HOSTS = ("ignored", "obeyed", "silent", "down")


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, str]]:
    """After two cycles; and what the reaps logged."""
    urls = [f"http://{host}.example/a" for host in HOSTS]
    with planned(tmp_path_factory.mktemp("ignored"), ROUTES, urls, [], filter_lines=FILTER) as home:
        log = ""
        for programs in (("reap", "cork", "merge", "select", "record", "plan"), ("reap", "cork")):
            for program in programs:
                done = home.run(f"shep-{program}")
                assert done.returncode == 0, done.stderr
                log += done.stderr if program == "reap" else ""
        yield home, log


def verdict_of(home: Home, url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.must("shep", "explain", "--json", url))
    return found


@pytest.mark.parametrize("path", ["a", "b"])
@pytest.mark.parametrize("host", ["ignored", "silent"])
def test_site_that_a_line_names_is_gathered_against_its_robots(gathered: tuple[Home, str], host: str, path: str) -> None:
    """/a by the rules that the first reap fetched, /b by those that the state had stored."""
    home, _log = gathered
    assert home.fates()[f"http://{host}.example/{path}"] == ("gathered", "gathered")


def test_other_sites_obey(gathered: tuple[Home, str]) -> None:
    home, _log = gathered
    assert home.fates()["http://obeyed.example/a"][0] == "error"
    assert home.request_counts().keys() & {"obeyed.example/a", "down.example/a"} == set()


def test_robots_file_is_fetched_all_the_same(gathered: tuple[Home, str]) -> None:
    """Once; its Crawl-delay and its sitemaps are of use."""
    home, _log = gathered
    assert home.request_counts()["ignored.example/robots.txt"] == 1
    (site,) = map(json.loads, home.must("shep", "sites", "--json", "ignored.example").splitlines())
    assert site["crawl_delay_ms"] == 20
    assert home.fates()["http://ignored.example/map.xml"][0] == "gathered"


def test_explain_and_robots_agree_with_the_reap(gathered: tuple[Home, str]) -> None:
    home, _log = gathered
    for host, judged in (("ignored", "allowed"), ("silent", "allowed"), ("obeyed", "denied"), ("down", "denied")):
        url = f"http://{host}.example/a"
        explained = verdict_of(home, url)
        assert explained["robots"]["verdict"] == judged
        assert ("robots" in explained["verdict"]) == (judged == "denied"), explained["verdict"]
        assert json.loads(home.must("shep", "robots", "--json", url))["verdict"] == judged
    words = {site["site"]: site["robots"] for site in map(json.loads, home.must("shep", "sites", "--json").splitlines())}
    assert [words[f"http://{host}.example"] for host in HOSTS] == ["ignored", "answered", "ignored", "unreachable"]


def test_each_reap_logs_the_line_once_for_each_site(gathered: tuple[Home, str]) -> None:
    _home, log = gathered
    lines = [line for line in log.splitlines() if "robots.txt is ignored" in line]
    assert sum("http://ignored.example" in line and "line 1 of the filter" in line for line in lines) == 2
    assert sum("http://silent.example" in line for line in lines) == 2
    assert len(lines) == 4


def test_page_that_was_denied_is_due_once_a_line_names_its_site(tmp_path: Path) -> None:
    """At once: neither its refresh nor the next reading of its robots.txt is waited for. And the other way round."""
    url = "http://obeyed.example/a"
    with planned(tmp_path, ROUTES, [url], []) as home:
        home.must("shep-reap", "-q")
        home.must("shep-cork", "-q")
        assert home.fates()[url][0] == "error"
        lines = home.path / "cf" / "filter"
        lines.write_text("set robots ignore host obeyed.example\ndefault accept\n")
        home.must("shep", "insert", "http://ignored.example/a")
        for program in ("merge", "select", "record"):
            home.must(f"shep-{program}", "-q")
        explained = verdict_of(home, url)
        assert (
            "it is due, and the next plan can take it" in explained["verdict"]
            or "its server may be asked" in explained["verdict"]
        )
        for program in ("plan", "reap", "cork"):
            home.must(f"shep-{program}", "-q")
        assert home.fates()[url] == ("gathered", "gathered")


def test_line_by_address_counts_once_the_address_is_known(tmp_path: Path) -> None:
    url = "http://ranged.example/a"
    with planned(tmp_path, ROUTES, [url], [], filter_lines="set robots ignore address 127.0.4.0/24\n") as home:
        home.must("shep-reap", "-q")
        home.must("shep-cork", "-q")
        assert home.fates()[url] == ("gathered", "gathered")
        fetched = home.run("shep", "fetch", "--json", "--wait", url)
        assert fetched.returncode == 0, fetched.stderr
        assert json.loads(fetched.stdout)["robots"]["verdict"] == "allowed"
