"""shep top, sites and servers, run as a user runs them, on a small database of known content."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.urls import qkey_of_address
from tests.support.page_states import GATHERED, PAGES, SITES, Herd, Page, Run, Site, make_herd, objects, stdout_of
from tests.support.programs import call
from tests.worlds import DAY, NOW

FIRST, SECOND, THIRD = (qkey_of_address(f"127.0.0.{last}") for last in (7, 8, 9))
NOISE = random.Random(1).randbytes(5_000)  # which no codec makes smaller
MORE_PAGES = (
    Page("http://broken.example/1", RowType.ERROR, Reason.CONNECTION),
    Page("http://broken.example/2", RowType.ERROR, Reason.SERVER_ERROR),
    Page("http://broken.example/3", RowType.ERROR, Reason.SERVER_ERROR),
    Page("http://broken.example/robots.txt", RowType.ERROR, Reason.CONNECTION, columns={"flags": Flag.ROBOTS}),
    Page("http://ignored.example/", RowType.GATHERED, Reason.GATHERED, NOISE, {}, GATHERED | {"download_ms": 900, "weight": 9}),
)
MORE_SITES = (
    Site("http://broken.example", {"qkey": SECOND, "robots_checked": NOW - DAY, "robots_status": 404, "avg_ms": 70}),
    Site("http://ignored.example", {"qkey": SECOND, "policy": 1, "crawl_delay_ms": 4_000, "delay_ms": 2_000, "avg_ms": 900}),
)
SERVERS = {
    "qkey": [FIRST, SECOND, THIRD],
    "next_ms": [(NOW + 60) * 1_000, 4_000_000_000_000, 0],
    "delay_ms": [10_000, 2_500, 10_000],
    "fetches": [9, 20, 1],
    "errors": [0, 7, 1],
    "avg_ms": [12, 450, 0],
    "slots": [1, 4, 0],
    "backoff": [0, 3, 0],
    "documents": [5, 4, 0],
    "group": [0, 0xABC, 0],
}


@pytest.fixture(scope="module")
def flock(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """PAGES and some more, on three servers. For tests that change nothing."""
    return make_herd(tmp_path_factory.mktemp("flock"), (*PAGES, *MORE_PAGES), (*SITES, *MORE_SITES), servers=SERVERS)


def by_name(found: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    return {one[key]: one for one in found}


# --- top


@pytest.mark.parametrize(
    ("args", "urls"),
    [
        (["--limit", "1"], ["https://www.b.example/page"]),
        (["--by", "size", "--limit", "1"], ["http://ignored.example/"]),
        (["--by", "download", "--limit", "2"], ["http://ignored.example/", "http://a.example/"]),
        (["--by", "weight", "--type", "error", "--status", "404"], ["http://a.example/gone"]),
        (["--by", "size", "http://a.example/dead"], ["http://a.example/dead"]),
    ],
)
def test_largest_pages(flock: Herd, shep: Run, args: list[str], urls: list[str]) -> None:
    assert [one["url"] for one in objects(shep(flock, "top", "--json", *args))] == urls


def test_robots_file_is_no_page(flock: Herd, shep: Run) -> None:
    found = objects(shep(flock, "top", "--json", "--limit", "1000"))
    assert len(found) == len(PAGES) + len(MORE_PAGES) - 2
    assert not [one for one in found if one["url"] and one["url"].endswith("/robots.txt")]


def test_how_long_a_download_took_is_shown_where_it_counts(flock: Herd, shep: Run) -> None:
    title, first, *_ = stdout_of(shep(flock, "top", "--by", "download")).splitlines()
    assert title.split()[0] == "download"
    assert first.split()[:2] == ["900", "ms"]
    (found,) = objects(shep(flock, "top", "--by", "download", "--limit", "1", "--json"))
    assert found["download_ms"] == 900


def test_sites_with_most_errors(flock: Herd, shep: Run) -> None:
    first, second = objects(shep(flock, "top", "--by", "errors", "--json"))
    assert first == {
        "site": "http://broken.example",
        "errors": 3,
        "urls": 4,
        "mostly": "server-error",
        "address": "127.0.0.8",
    }
    assert (second["site"], second["errors"], second["address"]) == ("http://a.example", 2, "127.0.0.7")
    title, line, _ = stdout_of(shep(flock, "top", "--by", "errors")).splitlines()
    assert title.split() == ["errors", "urls", "share", "mostly", "address", "site"]
    assert line.split() == ["3", "4", "75.0%", "server-error", "127.0.0.8", "http://broken.example"]


def test_errors_are_those_that_selectors_choose(flock: Herd, shep: Run) -> None:
    (found,) = objects(shep(flock, "top", "--by", "errors", "--reason", "connection", "--json"))
    assert (found["site"], found["errors"], found["mostly"]) == ("http://broken.example", 1, "connection")
    answer = shep(flock, "top", "--by", "errors", "--reason", "parser")
    assert (stdout_of(answer), answer.stderr) == ("", b"no matching page is an error\n")


@pytest.mark.parametrize(("by", "first"), [("slowest", "127.0.0.8"), ("failing", "127.0.0.8")])
def test_servers_with_most(flock: Herd, shep: Run, by: str, first: str) -> None:
    found = objects(shep(flock, "top", "--by", by, "--json"))
    assert found[0]["address"] == first
    assert len(found) == 3
    answer = shep(flock, "top", "--by", by, "--type", "error")
    assert stdout_of(answer, 2) == ""
    assert b"selectors choose pages" in answer.stderr


def test_unknown_url_is_reported_after_the_others(flock: Herd, shep: Run) -> None:
    answer = shep(flock, "top", "--json", "http://a.example/gone", "http://a.example/never\x1b")
    assert [one["url"] for one in objects(answer, 2)] == ["http://a.example/gone"]
    assert b"\x1b" not in answer.stderr


# --- sites


def test_sites_show_pages_by_type_robots_delay_and_address(flock: Herd, shep: Run) -> None:
    found = by_name(objects(shep(flock, "sites", "--json")), "site")
    assert set(found) == {
        "http://a.example", "https://www.b.example", "http://down.example", "http://broken.example", "http://ignored.example",
    }  # fmt: skip
    known = found["http://a.example"]
    assert known["types"] == {"sleeping": 1, "ungathered": 1, "gathered": 3, "error": 2, "forgotten": 1}
    assert (known["urls"], known["host"], known["scheme"]) == (9, "a.example", "http")
    assert (known["robots"], known["robots_status"], known["server_delay_ms"]) == ("answered", 200, 10_000)
    assert {name: one["robots"] for name, one in found.items()} == {
        "http://a.example": "answered",
        "https://www.b.example": "not-asked",
        "http://down.example": "unreachable",
        "http://broken.example": "absent",
        "http://ignored.example": "ignored",
    }
    ignored = found["http://ignored.example"]
    assert (ignored["crawl_delay_ms"], ignored["filter_delay_ms"], ignored["server_delay_ms"]) == (4_000, 2_000, 20_000)
    assert found["https://www.b.example"]["address"] is None


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["b.example"], ["https://www.b.example"]),
        (["http://a.example/whatever", "down.example"], ["http://a.example", "http://down.example"]),
        (["--server", "127.0.0.8", "--sort", "slowest"], ["http://ignored.example", "http://broken.example"]),
        (["--glob", "https://*"], ["https://www.b.example"]),
        (["--glob", "http://?.example"], ["http://a.example"]),
        (["--glob", "http://[ab].example"], []),
        (["--robots", "unreachable"], ["http://down.example"]),
        (["--robots", "absent", "--server", "127.0.0.8"], ["http://broken.example"]),
        (["--sort", "crawl-delay", "--limit", "1"], ["http://ignored.example"]),
        (["--limit", "1"], ["http://a.example"]),
        (["nowhere.example"], []),
    ],
)
def test_sites_by_argument_and_option(flock: Herd, shep: Run, args: list[str], names: list[str]) -> None:
    answer = shep(flock, "sites", "--json", *args)
    assert [one["site"] for one in objects(answer)] == names
    lines = stdout_of(shep(flock, "sites", *args)).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == names
    assert bool(lines) == bool(names)


def test_pages_of_many_sites_are_those_of_each_by_itself(tmp_path: Path, shep: Run) -> None:
    """Beyond a thousand sites the whole index is read, below that only their rows."""
    pages = [Page(f"http://s{n}.example/{m}", RowType(m + 1)) for n in range(1_100) for m in range(n % 3 + 1)]
    herd = make_herd(tmp_path, pages, ())
    whole = by_name(objects(shep(herd, "sites", "--json", "--limit", "2000")), "site")
    assert len(whole) == 1_100
    some = objects(shep(herd, "sites", "--json", "--limit", "900"))
    assert len(some) == 900
    assert all(whole[one["site"]] == one for one in some)
    assert {sum(one["types"].values()) for one in whole.values()} == {1, 2, 3}


# --- servers


def test_servers_show_what_politeness_knows(flock: Herd, shep: Run) -> None:
    found = by_name(objects(shep(flock, "servers", "--json")), "address")
    assert list(found) == ["127.0.0.7", "127.0.0.8", "127.0.0.9"]  # by pages
    assert found["127.0.0.8"] == {
        "address": "127.0.0.8",
        "sites": 2,
        "pages": 4,
        "fetches": 20,
        "errors": 7,
        "average_ms": 450,
        "delay_ms": 2_500,
        "backoff": 3,
        "slots": 4,
        "group": "0000000000000abc",
        "next_contact": "2096-10-02T07:06:40.000Z",
        "asks": {"site": "http://ignored.example", "crawl_delay_ms": 4_000, "until": None},
    }
    assert (found["127.0.0.9"]["next_contact"], found["127.0.0.9"]["average_ms"], found["127.0.0.9"]["sites"]) == (None, None, 0)
    lines = {line.split()[-1]: line.split() for line in stdout_of(shep(flock, "servers")).splitlines()}
    assert lines["127.0.0.8"][:9] == ["2", "4", "20", "7", "450", "ms", "2.5", "s", "x8"]
    assert lines["127.0.0.9"][-3:] == ["at", "once", "127.0.0.9"]


@pytest.mark.parametrize(
    ("args", "addresses"),
    [
        (["127.0.0.9", "127.0.0.7"], ["127.0.0.7", "127.0.0.9"]),
        (["--backing-off"], ["127.0.0.8"]),
        (["--sort", "sites", "--limit", "2"], ["127.0.0.8", "127.0.0.7"]),
        (["--sort", "errors"], ["127.0.0.8", "127.0.0.9", "127.0.0.7"]),
        (["--sort", "next", "--limit", "1"], ["127.0.0.8"]),
        (["192.0.2.1"], []),
    ],
)
def test_servers_by_argument_and_option(flock: Herd, shep: Run, args: list[str], addresses: list[str]) -> None:
    assert [one["address"] for one in objects(shep(flock, "servers", "--json", *args))] == addresses
    lines = stdout_of(shep(flock, "servers", *args)).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == addresses


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["servers", "a.example"], "allowed is an address such as 192.0.2.7"),
        (["sites", "http://a b/"], "not a host or URL"),
        (["sites", "--sort", "size"], "is not one of"),
        (["top", "--by", "luck"], "is not one of"),
        (["top", "--limit", "0"], "0 is not in the range"),
    ],
)
def test_bad_argument_is_refused_in_one_sentence(flock: Herd, shep: Run, args: list[str], why: str) -> None:
    answer = shep(flock, *args)
    assert stdout_of(answer, 2) == ""
    assert why in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("what", [["top"], ["top", "--by", "errors"], ["top", "--by", "slowest"], ["sites"], ["servers"]])
def test_new_database_has_nothing_to_show(tmp_path: Path, what: list[str]) -> None:
    db = tmp_path / "db"
    assert call("shep-init", "--db", str(db), "--cf", str(tmp_path / "cf")).returncode == 0
    done = call("shep", *what, "--db", str(db))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no ")
    assert call("shep", *what, "--json", "--db", str(db)).stdout == ""
