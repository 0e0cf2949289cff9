"""Four sites without end beside honest ones, over some cycles: what they get of the plans under limits, and who pays for it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.driver import HTML
from tests.support.origin import Answer, ok, serve
from tests.support.reaping import Home
from tests.worlds import write_open_filter

pytestmark = pytest.mark.waits

HONEST = [f"honest{n}.example" for n in range(4)]
PAGES = 12  # of each
TRAPS = ("calendar.example", "sessions.example", "paths.example", "names.example")
NAMES = 170  # of the last one, as far as anybody gets
CYCLES, MOST_CYCLES = 5, 20  # on a slow machine its servers seem slow, and get fewer pages of each plan
SITE_SOFT, SITE_HARD = 12, 15
SERVER_PAGES = 50
CF = """
[politeness]
delay_s = 0.02
[plan]
refresh_s = 2  # of which half, at this delay, is time for 50 pages of a server
[network]
allow = ["127.0.0.0/8"]
static = "static"
"""
LIMITS = f"[select]\nsite_soft = {SITE_SOFT}\nsite_hard = {SITE_HARD}\nmost_lost = 100\n"


def page(*hrefs: str) -> bytes:
    return ok("".join(f'<a href="{href}">{href}</a>\n' for href in hrefs).encode(), HTML)


class Web(dict[str, Answer]):
    """Host and path to the page there; those of the traps are made when they are asked for."""

    def get(self, route: str, default: Answer | None = None) -> Answer | None:  # type: ignore[override]
        host, slash, rest = route.partition("/")
        path = slash + rest
        numbers = [int(number) for number in re.findall(r"[0-9]+", path)]
        if not host or path == "/robots.txt":
            return default
        if host in HONEST:  # a tree of three
            number = numbers[0] if numbers else 0
            return page(*(f"/{n}.html" for n in range(3 * number + 1, 3 * number + 4) if n < PAGES))
        if host == "calendar.example":
            return page(*(f"/?day={(numbers or [0])[0] + step}" for step in (1, 7, 30, 365)))
        if host == "sessions.example":
            marks = (blake2b(f"{path}/{n}".encode(), digest_size=6).hexdigest() for n in range(10))
            return page(*(f"/{n}.html?sid={mark}" for n, mark in enumerate(marks)))
        if host == "paths.example":
            return page(*(f"{path.rpartition('/')[0]}/{name}/page.html" for name in ("wool", "hay", "oats")))
        number = int((re.findall(r"^n([0-9]+)", host) or ["0"])[0])
        return page(*(f"http://n{n}.names.example/page.html" for n in range(5 * number + 1, 5 * number + 6) if n < NAMES))


@dataclass(frozen=True)
class Cycle:
    """How many pages a plan had, and how many of them were of each trap; robots files do not count."""

    planned: int
    trapped: dict[str, int]
    strangers: int  # sites that no earlier plan had: until it is looked up, each counts as a server of its own

    @property
    def share(self) -> float:
        return sum(self.trapped.values()) / self.planned


@contextlib.contextmanager
def web(home: Path, limits: str) -> Iterator[Home]:
    """Every honest site and every trap has an address of its own."""
    (home / "cf").mkdir(parents=True)
    (home / "cf" / "shepherd.toml").write_text(CF + limits)
    with contextlib.ExitStack() as stack:
        table = []
        for number, host in enumerate([*HONEST, *TRAPS]):
            address = f"127.0.5.{number + 1}"
            origin = stack.enter_context(serve(Web(), address=address))
            names = [host] if host != "names.example" else [host, *(f"n{n}.names.example" for n in range(NAMES))]
            table += [f"{name} {address} {origin.port}" for name in names]
        (home / "cf" / "static").write_text("\n".join(table) + "\n")
        write_open_filter(home / "cf")
        yield Home(home, home / "db", [])


def gather(made: Home) -> list[Cycle]:
    """Cycles until all honest pages are gathered; their plans."""
    made.must("shep-init", "-q")
    made.must("shep", "insert", *(f"http://{host}/page.html" for host in (*HONEST, *TRAPS)))
    found: list[Cycle] = []
    known: set[str] = set()
    while len(found) < CYCLES or (honest_pages(made) < len(HONEST) * PAGES and len(found) < MOST_CYCLES):
        for program in ("merge", "select", "record", "plan"):
            made.must(f"shep-{program}", "-q")
        rows = [json.loads(line) for line in made.must("shep-dump", "plan", "--json", "-u").splitlines()]
        hosts = [row["url"].split("/")[2] for row in rows if not row["url"].endswith("/robots.txt")]
        trapped = {trap: sum(host.endswith(trap) for host in hosts) for trap in TRAPS}
        found.append(Cycle(len(hosts), trapped, len(set(hosts) - known)))
        known |= set(hosts)
        made.must("shep-reap", "-q")
        made.must("shep-cork", "-q")
    return found


def honest_pages(made: Home) -> int:
    """How many are gathered."""
    gathered = [url for url, fate in made.fates().items() if fate[0] == "gathered"]
    return sum(url.split("/")[2] in HONEST for url in gathered if not url.endswith("/robots.txt"))


def test_endless_sites_get_no_more_of_a_plan_than_their_limits_and_honest_ones_all_they_have(tmp_path: Path) -> None:
    with web(tmp_path, LIMITS) as made:
        cycles, honest = gather(made), honest_pages(made)
    for cycle in cycles:
        print(f"{cycle.planned} pages planned, {cycle.share:.0%} of them of traps: {cycle.trapped}; {cycle.strangers} new sites")
        assert all(cycle.trapped[trap] <= SITE_SOFT for trap in TRAPS[:3])
        assert cycle.trapped["names.example"] - cycle.strangers <= SERVER_PAGES
    assert all(any(cycle.trapped[trap] >= SITE_SOFT for cycle in cycles) for trap in TRAPS), "no limit was reached"
    names = [cycle.trapped["names.example"] for cycle in cycles]
    assert any(after < before for before, after in pairwise(names)), "no limit of a server was reached"
    assert honest == len(HONEST) * PAGES
