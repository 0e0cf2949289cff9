"""shep refresh: have documents asked for again, before they are due."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shepherd.cli.shep import edit_requests
from shepherd.cli.shep.edit_requests import ASLEEP, FORGOTTEN, ROBOTS, EditOptions, EditRequest
from shepherd.console import common, selectors
from shepherd.console.selectors import Selection
from shepherd.console.shared import iso, many

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Columns
    from shepherd.store.state.directory import State

SOON_S: Final = 60  # a wait that a reap sits out


@click.command("refresh")
@selectors.selecting
@edit_requests.edit_options
def command(selection: Selection, options: EditOptions) -> None:
    """Fetch documents again, before they are due.

    It needs no lock. A running reap takes them up within seconds and fetches them next, as far as it can still ask their servers;
    the next plan puts first those that were not checked since. A host without an address is looked up again at once; other waits
    stay, and those of the documents that must wait are counted. Robots files, which are fetched again by themselves, and sleeping
    rows are skipped.

    \b
    Examples:
      shep refresh https://example.org/news
      shep refresh --site example.org --older 7d
      shep refresh --status 5xx --dry-run
    """
    spares = (FORGOTTEN, ROBOTS, ASLEEP)
    waits = _Waits(int(time.time()))
    what = EditRequest("refresh", "refreshed", spares=spares, is_filtered=True, effect=_effect(options.db))
    edit_requests.change(selection, what, options, waits.add)
    for count, why in waits.as_lines():
        common.LOG.warning("%s must wait: %s", many(count, "URL"), why)


class _Waits:
    """Which of the documents cannot be asked for as soon as somebody wishes, and until when."""

    def __init__(self, now_s: int) -> None:
        self._now_s = now_s
        self._tables: tuple[Columns, Columns] | None = None
        self._robots = self._servers = self._robots_s = self._servers_s = 0

    def add(self, state: State, rows: I64) -> None:
        import numpy as np

        from shepherd.arrays.keys import find_sites
        from shepherd.filters import ignore_robots

        if self._tables is None:  # of the one state that all rows are of
            of_sites = ("site", "qkey", "robots_since", "robots_next", "policy")
            of_servers = ("qkey", "next_ms")
            self._tables = (
                state.sites.slice(0, state.sites.rows, of_sites),
                state.servers.slice(0, state.servers.rows, of_servers),
            )
        sites, servers = self._tables
        site_row = find_sites(sites["site"], state.index["site"].take(rows))
        site_row = site_row[site_row >= 0]
        shut = (sites["robots_since"] > 0) & (sites["robots_next"] > self._now_s) & ~ignore_robots(sites["policy"])
        self._robots += int(np.count_nonzero(shut[site_row]))
        self._robots_s = max(self._robots_s, int(sites["robots_next"][site_row][shut[site_row]].max(initial=0)))
        server = find_sites(servers["qkey"], sites["qkey"][site_row[~shut[site_row]]])
        next_s = -(-servers["next_ms"][server[server >= 0]] // 1_000)
        waiting = next_s[next_s > self._now_s + SOON_S]
        self._servers += len(waiting)
        self._servers_s = max(self._servers_s, int(waiting.max(initial=0)))

    def as_lines(self) -> Iterator[tuple[int, str]]:
        if self._robots:
            yield self._robots, f"no robots.txt of their sites can be reached; it is asked for again by {iso(self._robots_s)}"
        if self._servers:
            yield self._servers, f"their servers wait, the last of them until {iso(self._servers_s)}"


def _effect(db: Path) -> str:
    """A reap that runs holds the lock of its harvest."""
    from shepherd.errors import ShepherdError
    from shepherd.store.disk import locks, names
    from shepherd.store.state.database import Database

    locks_held: list[bool | None] = []
    with contextlib.suppress(ShepherdError, OSError):  # somebody is just making the next directory
        state = Database(db).furthest()
        locks_held = [locks.is_held(path / names.LOCK) for path in state.harvests()] if state.name.phase == "reap" else []
    if True in locks_held:
        return f"within seconds by the reap that runs, or {edit_requests.NEXT_CYCLE}"
    if None in locks_held:
        return f"by the reap of {state.name} if it runs, or {edit_requests.NEXT_CYCLE}"
    return edit_requests.NEXT_CYCLE
