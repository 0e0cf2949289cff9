"""A plan as a source of work: all of its rows at once, as columns. No row becomes an object before it is handed out.

What an interrupted run of the same reap has settled is left out. `begun_s` says of each row when it was handed out, because a
request to refresh its page may come meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from shepherd.dispatch.items import Item
from shepherd.dispatch.sites import SiteBook, Stage, address_of
from shepherd.dispatch.source import SourceDesk, WorkSource
from shepherd.errors import Corruption
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Records, Result

NEVER_BEGUN: Final = 2  # in `begun_s`: it was never handed out, and has its record all the same


class PlanSource(WorkSource):
    def __init__(
        self,
        plan: Records,
        on_settled: Callable[[int], object] = lambda more: None,
        on_resumed: Callable[[int], object] = lambda settled: None,
    ) -> None:
        """`on_resumed` gets how many rows were settled before; `on_settled` how many more are."""
        self.rows, self._on_settled, self._on_resumed = plan, on_settled, on_resumed
        self.begun_s = np.zeros(len(plan), np.uint32)  # 0 = not yet

    def open(self, desk: SourceDesk) -> None:
        """Pages wait for their sites; a planned robots.txt is asked for even if the stored one is still good."""
        plan = self.rows
        settled = desk.journalled[np.flatnonzero(desk.journalled["flags"] & JournalFlag.HOP == 0)]
        is_open = np.ones(len(plan), np.bool_)
        done_rows = settled["plan_row"]
        is_open[done_rows[done_rows < len(plan)]] = False
        desk.items.enter_rows(plan, desk.number, ~is_open)
        pages = np.flatnonzero(is_open & (plan["kind"] == Kind.PAGE)).astype(np.uint32)
        desk.book.enter_pages(pages, np.ascontiguousarray(plan["site"][pages]))
        for number in np.flatnonzero(is_open & (plan["kind"] != Kind.PAGE)).tolist():
            site = desk.book.get(int(plan["site"][number]))
            if site is None:
                raise Corruption(f"row {number} of the plan is of a site that is not in the site table")
            site.robots_item, site.rules_known = number, False
            if site.stage == Stage.SHUT:
                site.stage = Stage.NEW
        _replay(desk.book, settled)
        self._recall(settled)
        self._on_resumed(len(plan) - int(np.count_nonzero(is_open)))

    def _recall(self, settled: Records) -> None:
        pages = settled[(settled["kind"] == Kind.PAGE) & (settled["plan_row"] < len(self.begun_s))]
        self.begun_s[pages["plan_row"]] = begun_s_of(pages)

    def take(self, most: int, now_ms: int) -> Sequence[Item]:
        """Nothing more than what was entered."""
        return ()

    def handed_out(self, item: Item, now_ms: int) -> None:
        self.begun_s[item.plan_row] = now_ms // 1000

    def settled(self, item: Item, record: Entry) -> None:
        self.begun_s[item.plan_row] = max(int(self.begun_s[item.plan_row]), NEVER_BEGUN)
        self._on_settled(1)


def begun_s_of(settled: Records) -> Records:
    """When what these records settle was handed out."""
    contacted = settled["flags"] & JournalFlag.CONTACTED
    return np.where(contacted, settled["start_ms"] // 1000, NEVER_BEGUN)


def _replay(book: SiteBook, settled: Records) -> None:
    """Addresses and crawl delays are taken over; robots files are fetched again."""
    for record in settled[np.isin(settled["kind"], (Kind.QKEY, Kind.ROBOTS))]:
        site = book.get(int(record["site"]))
        if site is None:
            continue
        if record["kind"] == Kind.ROBOTS:
            site.crawl_delay_ms = max(site.crawl_delay_ms, int(record["crawl_delay_ms"]))
        elif record["result"] == Result.RESOLVED:
            book.located(site, int(record["qkey"]), address_of(int(record["qkey"])))
