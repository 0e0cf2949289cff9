"""What a sitemap says of when its pages were modified makes them due, but no more often than any page of their site can be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shepherd.errors import NothingToDo
from tests.dispatch.test_reap_scenarios import CF, must, page, run
from tests.support.origin import Answer, Origin, ok, serve
from tests.worlds import write_open_filter

DAY_S = 86_400
MAP = "http://a.example/map.xml"
PAGES = ("old", "new", "unnamed", "tomorrow", "theirs")


@dataclass
class World:
    """A site that was gathered at `since`, with a plan of 30 days for a refresh cycle."""

    home: Path
    origin: Origin
    since: int

    def learn(self, times: dict[str, int], days: int, at: str = MAP) -> None:
        """The sitemap at `at` comes to say these times, and is gathered; `days` after `since` a cycle takes them in."""
        host_of, _, path = at.removeprefix("http://").partition("/")
        self.origin.routes[f"{host_of}/{path}"] = sitemap({f"http://a.example/{name}": time_s for name, time_s in times.items()})
        must(self.home, "shep", "refresh", at)
        for program in ("merge", "select", "record", "plan", "reap", "cork"):
            must(self.home, f"shep-{program}", "-q")
        for program in ("merge", "select", "record"):
            must(self.home, f"shep-{program}", "-q", "--now", str(self.since + days * DAY_S))

    def plan(self, days: int) -> set[str]:
        """The pages that are planned `days` after `since`."""
        done = run(self.home, "shep-plan", "-q", "--now", str(self.since + days * DAY_S))
        if done.returncode == NothingToDo.exit_status:
            return set()
        assert done.returncode == 0, done.stderr
        records = (json.loads(line) for line in must(self.home, "shep-dump", "plan", "--json", "-u").splitlines())
        return {record["url"].rpartition("/")[2] for record in records if record["kind"] == "page"}


def sitemap(times: dict[str, int]) -> Answer:
    rows = (
        f"<url><loc>{url}</loc><lastmod>{datetime.fromtimestamp(at, UTC).isoformat()}</lastmod></url>"
        for url, at in times.items()
    )
    return ok(f"<urlset>{''.join(rows)}</urlset>".encode(), "Content-Type: application/xml")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    routes: dict[str, Answer] = {f"a.example/{name}": page(name) for name in PAGES}
    routes |= {"a.example/map.xml": sitemap({}), "b.example/map.xml": sitemap({})}
    with serve(routes, address="127.0.3.10") as origin:
        (tmp_path / "cf").mkdir()
        (tmp_path / "cf" / "shepherd.toml").write_text(CF)
        write_open_filter(tmp_path / "cf")
        hosts = ("a.example", "b.example")
        (tmp_path / "cf" / "static").write_text("".join(f"{host} 127.0.3.10 {origin.port}\n" for host in hosts))
        must(tmp_path, "shep-init", "-q")
        must(tmp_path, "shep", "insert", MAP, "http://b.example/map.xml", *(f"http://a.example/{name}" for name in PAGES))
        for program in ("merge", "select", "record", "plan", "reap", "cork"):
            must(tmp_path, f"shep-{program}", "-q")
        yield World(tmp_path, origin, int(time.time()))


def test_page_that_was_modified_since_it_was_checked_is_due(world: World) -> None:
    four, before = world.since + 4 * DAY_S, world.since - DAY_S
    world.learn({"new": four, "old": before, "tomorrow": world.since + 9 * DAY_S}, days=5)
    assert world.plan(days=8) == {"new"}


def test_modified_page_is_due_at_most_four_times_in_a_refresh_cycle(world: World) -> None:
    """Four times in a refresh cycle of 30 days, and a page may be a tenth early."""
    world.learn(dict.fromkeys(PAGES, world.since + 4 * DAY_S), days=5)
    assert world.plan(days=6) == set()
    assert world.plan(days=8) == set(PAGES)


def test_time_from_the_sitemap_of_another_site_does_not_count(world: World) -> None:
    world.learn(dict.fromkeys(PAGES, world.since + 4 * DAY_S), days=5, at="http://b.example/map.xml")
    assert world.plan(days=8) == set()
