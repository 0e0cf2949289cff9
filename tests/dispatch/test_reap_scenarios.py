"""One reap of many small sites, each with a trouble of its own: the outcome of its pages, and what its server saw."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.origin import Answer, Origin, ok, reset, serve
from tests.support.programs import call
from tests.worlds import write_open_filter

ROOT = Path(__file__).resolve().parents[2]
HTML = "Content-Type: text/html"
CF = """
[politeness]
delay_s = 0.01
[network]
allow = ["127.0.0.0/8"]
static = "static"
[fetch]
timeout_s = 5
[reap]
workers = 2
"""


def page(text: str = "a page") -> bytes:
    return ok(f"<html><title>{text}</title>{text}</html>".encode(), HTML)


def redirect(url: str, status: str = "301 Moved Permanently") -> bytes:
    return ok(b"", f"Location: {url}", status=status)


def robots(text: str) -> bytes:
    return ok(text.encode(), "Content-Type: text/plain")


def once_busy() -> Callable[[socket.socket], None]:
    """503 with Retry-After to the first request, a page to the others."""
    answers = [ok(b"", "Retry-After: 1", status="503 Service Unavailable")]
    return lambda connection: connection.sendall(answers.pop() if answers else page("at last"))


ROUTES: dict[str, Answer] = {
    "plain.example/": page("<a href=/deeper>x</a>"),
    "moved.example/a": redirect("http://www.moved.example/a"),
    "moved.example/secret": redirect("http://www.moved.example/secret"),
    "www.moved.example/a": page("moved"),
    "www.moved.example/secret": page("secret"),
    "www.moved.example/robots.txt": robots("User-agent: *\nDisallow: /secret"),
    "loop.example/a": redirect("http://www.loop.example/a"),
    "www.loop.example/a": redirect("http://loop.example/a"),
    "self.example/a": redirect("http://self.example/a"),
    "elsewhere.example/a": redirect("http://plain.example/", "302 Found"),
    "hop.example/robots.txt": redirect("http://forbidden.example/robots.txt"),
    "hop.example/a": page(),
    "five.example/robots.txt": redirect("/r1"),
    **{f"five.example/r{n}": redirect(f"http://five.example/r{n + 1}") for n in range(1, 5)},
    "five.example/r5": robots("User-agent: *\nDisallow: /no"),
    "five.example/yes": page(),
    "five.example/no": page(),
    "six.example/robots.txt": redirect("/r1"),
    **{f"six.example/r{n}": redirect(f"http://six.example/r{n + 1}") for n in range(1, 9)},
    "six.example/no": page("robots.txt counts as absent"),
    "busy.example/a": once_busy(),
    "silent.example/robots.txt": ok(b"", status="503 Service Unavailable"),
    "silent.example/a": page(),
    **{f"dead.example/{n}": reset for n in range(8)},
    "away.example/robots.txt": redirect("http://shared.example/robots.txt"),
    "away.example/no": page(),
    "away.example/yes": page(),
    "shared.example/robots.txt": robots("User-agent: *\nDisallow: /no"),
    "shared.example/no": page(),
    "shared.example/yes": page(),
}
INSERTED = [
    "http://plain.example/",
    "http://moved.example/a",
    "http://moved.example/secret",
    "http://loop.example/a",
    "http://self.example/a",
    "http://elsewhere.example/a",
    "http://hop.example/a",
    "http://five.example/yes",
    "http://five.example/no",
    "http://six.example/no",
    "http://busy.example/a",
    "http://silent.example/a",
    *(f"http://dead.example/{n}" for n in range(8)),
    "http://forbidden.example/a",
    "http://away.example/no",
    "http://away.example/yes",
    "http://shared.example/no",
    "http://shared.example/yes",
]


@dataclass(frozen=True)
class Reaped:
    rows: dict[str, dict[str, Any]]
    journal: list[dict[str, Any]]
    asked: dict[str, int]
    check: int
    home: Path

    def fate(self, url: str) -> tuple[str, str]:
        row = self.rows[url]
        return row["type"], row["reason"]


@pytest.fixture(scope="module")
def reaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reaped]:
    home = tmp_path_factory.mktemp("reap")
    hosts = sorted({route.partition("/")[0] for route in ROUTES})
    with contextlib.ExitStack() as stack:
        origins: list[Origin] = []
        table = ["forbidden.example 10.9.9.9 80"]  # an address that the guard refuses
        for number in range(4):  # several sites on each server
            origin = stack.enter_context(serve(ROUTES, address=f"127.0.3.{number + 1}"))
            origins.append(origin)
            table += [f"{host} 127.0.3.{number + 1} {origin.port}" for host in hosts[number::4]]
        (home / "cf").mkdir()
        (home / "cf" / "shepherd.toml").write_text(CF)
        write_open_filter(home / "cf")
        (home / "cf" / "static").write_text("\n".join(table) + "\n")
        must(home, "shep-init", "-q")
        must(home, "shep", "insert", *INSERTED)
        for program in ("merge", "select", "record", "plan", "reap", "cork"):
            must(home, f"shep-{program}", "-q")
        rows = [json.loads(line) for line in must(home, "shep", "list", "--json", "--limit", "10000").splitlines()]
        journal = [json.loads(line) for line in must(home, "shep-dump", "journal", "--json").splitlines()]
        asked: dict[str, int] = {}
        for url in (url for origin in origins for url in origin.urls()):
            asked[url] = asked.get(url, 0) + 1
        must(home, "shep-check")
        for program in ("merge", "select", "record"):
            must(home, f"shep-{program}", "-q")
        yield Reaped({row["url"]: row for row in rows}, journal, asked, run(home, "shep-check").returncode, home)


def run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return call(*command, SHEPHERD_DB=str(home / "db"), SHEPHERD_CF=str(home / "cf"))


def must(home: Path, *command: str) -> str:
    done = run(home, *command)
    assert done.returncode == 0, f"{command}: {done.returncode} {done.stderr}"
    return done.stdout


def test_page_that_answers_at_its_equivalent_is_gathered_there_in_the_same_reap(reaped: Reaped) -> None:
    assert reaped.fate("http://www.moved.example/a") == ("gathered", "moved")
    assert "http://moved.example/a" not in reaped.rows


def test_rules_of_the_site_that_a_page_moved_to_are_obeyed(reaped: Reaped) -> None:
    assert reaped.fate("http://moved.example/secret") == ("error", "robots-denied")
    assert "www.moved.example/secret" not in reaped.asked


def test_page_that_moves_to_and_fro_is_an_error_after_a_few_moves(reaped: Reaped) -> None:
    assert reaped.fate("http://loop.example/a") == ("error", "moves")
    assert reaped.asked["loop.example/a"] + reaped.asked["www.loop.example/a"] == 4


def test_page_that_redirects_to_itself_is_an_error(reaped: Reaped) -> None:
    assert reaped.fate("http://self.example/a") == ("error", "moves")
    assert reaped.asked["self.example/a"] == 1


def test_other_redirect_is_a_gathered_row_and_not_followed(reaped: Reaped) -> None:
    assert reaped.fate("http://elsewhere.example/a") == ("gathered", "redirect")
    assert reaped.asked["plain.example/"] == 1


def test_robots_that_redirects_to_a_forbidden_address_is_unreachable(reaped: Reaped) -> None:
    assert reaped.fate("http://hop.example/a")[0] == "ungathered"
    assert "hop.example/a" not in reaped.asked


def test_robots_behind_five_redirects_decides(reaped: Reaped) -> None:
    assert reaped.fate("http://five.example/yes") == ("gathered", "gathered")
    assert reaped.fate("http://five.example/no") == ("error", "robots-denied")


def test_robots_behind_more_redirects_counts_as_absent(reaped: Reaped) -> None:
    assert reaped.fate("http://six.example/no") == ("gathered", "gathered")
    assert "six.example/r6" not in reaped.asked


def test_robots_of_another_site_decides_where_a_redirect_leads_to_it(reaped: Reaped) -> None:
    for host in ("away.example", "shared.example"):
        assert reaped.fate(f"http://{host}/yes") == ("gathered", "gathered")
        assert reaped.fate(f"http://{host}/no") == ("error", "robots-denied")
        assert f"{host}/no" not in reaped.asked


def test_server_that_asks_to_come_back_soon_is_asked_again_in_the_same_reap(reaped: Reaped) -> None:
    assert reaped.fate("http://busy.example/a") == ("gathered", "gathered")
    assert reaped.asked["busy.example/a"] == 2


def test_pages_of_a_site_whose_robots_fails_are_not_fetched(reaped: Reaped) -> None:
    assert reaped.fate("http://silent.example/a")[0] == "ungathered"
    assert "silent.example/a" not in reaped.asked


def test_site_whose_connections_fail_is_given_up_after_three(reaped: Reaped) -> None:
    assert sum(count for url, count in reaped.asked.items() if url.startswith("dead.example/") and "robots" not in url) == 3
    assert {reaped.fate(f"http://dead.example/{n}") for n in range(8)} == {("error", "connection")}


def test_site_at_a_forbidden_address_is_an_error_without_a_contact(reaped: Reaped) -> None:
    assert reaped.fate("http://forbidden.example/a") == ("error", "guard")


def test_refused_site_is_looked_up_again_once_its_url_is_inserted_again(reaped: Reaped) -> None:
    """The address was refused for a day; whoever mends that and inserts the URL again need not wait."""
    home = reaped.home
    assert must(home, "shep", "list", "--site", "forbidden.example", "--type", "error").count("guard")
    must(home, "shep", "insert", "http://forbidden.example/a")
    for program in ("merge", "select", "record", "plan"):
        must(home, f"shep-{program}", "-q")
    planned = {json.loads(line)["site"] for line in must(home, "shep-dump", "plan", "--json").splitlines()}
    shown = must(home, "shep", "url", "--db", str(home / "db"), "--json", "http://forbidden.example/a")
    assert json.loads(shown)["site_footprint"] in planned


def test_every_contact_is_in_the_journal(reaped: Reaped) -> None:
    """One record with the flag `contacted` per request: the politeness audit relies on it.

    These servers close without a word, so a request on a kept connection reaches nobody; it counts all the same.
    """
    contacted = [record for record in reaped.journal if "contacted" in record["flags"]]
    assert len([r for r in contacted if "stale" not in r["flags"]]) == sum(reaped.asked.values())


def test_database_checks_after_cork_and_after_record(reaped: Reaped) -> None:
    assert reaped.check == 0
