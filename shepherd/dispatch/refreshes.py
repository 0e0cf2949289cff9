"""Refresh requests that come while a reap runs: read from the inbox, and never taken out of it.

A page that an operator wants again is asked for in the reap that runs, ahead of what its server has queued, if its row may be
gathered at all. The merge that takes the request later sees that the page was checked since, and lets it be.

Invariant: a row is fetched again only if its last fetch, in the state or in this reap, did not begin after the request; and
where the plan has the row too, and has not come to it yet, only one of the two is asked for. Stored times are in seconds: so a
request is looked at when its second is over, and what is asked for then is seen to be later. What is read at once is bounded in
bytes and requests: however many wait, nobody else does.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from shepherd.dispatch.items import Item
from shepherd.dispatch.plan_source import NEVER_BEGUN, PlanSource, begun_s_of
from shepherd.dispatch.source import SourceDesk, WorkSource
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import CONTRIB_BIT, NO_ROW, U32, Flag, JournalFlag, Kind, Reason, RowType
from shepherd.politeness.delays import AHEAD_S
from shepherd.store.disk import names
from shepherd.store.state import inbox, lookup
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import Arrivals, parse_request
from shepherd.store.state.inbox_files import RefusedItem, item_pieces
from shepherd.urls import OWN_PATHS, parse

LOG = logging.getLogger("shepherd.reap")
AT_ONCE: Final = 200  # requests that are looked at together
AT_ONCE_BYTES: Final = 1 << 20  # that are read together
LINE_BYTES: Final = 100  # that a line counts for at least
ITEM_BYTES: Final = 2_000  # that the opening of an item counts for
MOST: Final = 100_000  # pages that one reap takes up; the next plan has the others
MOST_BYTES: Final = 1 << 16  # of a line; more is no request of ours
FRONT: Final = 0xFFFFFFFE  # as urgent as a page can be
QUEUED: Final = 1  # instead of a time: wanted again, and not handed out yet
LOOK_MS: Final = 3_000  # from one look into the inbox to the next
MORE_MS: Final = 1_000  # the same where lines wait
GATHERABLE: Final = (RowType.UNGATHERED, RowType.GATHERED, RowType.ERROR)
OF_ITEM: Final = ("oid", "digest", "weight", "section")


class Refreshes(WorkSource):
    """An item with a `plan_row` takes the place of that row of the plan."""

    def __init__(self, state: State, plan: PlanSource, filters: Filter) -> None:
        self._state, self._plan, self._filters = state, plan, filters
        self._arrivals = Arrivals(state.path.parents[1] / names.INBOX, inbox.REQUESTS, state.control.applied)
        self._planned: U32 = np.ascontiguousarray(plan.rows["row"])
        self._order: U32 | None = None  # places in the plan, by row; made when first needed
        # when rows were handed out that are not in the plan, or are fetched once more, in seconds
        self._begun_s: dict[tuple[int, int, int], int] = {}
        self._unread: deque[inbox.InboxItem] = deque()
        self._now_s = 0
        self._lines = self._read()
        self._warned = False
        self._next_look_ms = 0
        self.more = False  # lines wait that were not looked at yet
        self.count = 0

    # --- what this reap does ----------------------------------------------------------------------------------------

    def open(self, desk: SourceDesk) -> None:
        """An interrupted run of this reap may have done some. Of those that took the place of a row the plan knows."""
        journalled = desk.journalled
        pages = journalled[(journalled["kind"] == Kind.PAGE) & (journalled["flags"] & JournalFlag.HOP == 0)]
        others = pages[pages["plan_row"] >= len(self._planned)]
        for record, begun_s in zip(others, begun_s_of(others).tolist(), strict=True):
            self._begun_s[int(record["norm"]), int(record["path"]), int(record["site"])] = begun_s

    def handed_out(self, item: Item, now_ms: int) -> None:
        if item.plan_row != NO_ROW:
            self._plan.handed_out(item, now_ms)
        else:
            self._begun_s[item.norm, item.path, item.planned_site] = now_ms // 1000

    def settled(self, item: Item, record: Entry) -> None:
        if item.plan_row != NO_ROW:
            self._plan.settled(item, record)
        else:
            key = item.norm, item.path, item.planned_site
            self._begun_s[key] = max(self._begun_s[key], NEVER_BEGUN)

    def takes_back(self, item: Item) -> bool:
        """It is left to the next reap: what the plan has stays where it is."""
        self.count -= 1
        if item.plan_row != NO_ROW:
            self._plan.begun_s[item.plan_row] = 0
        else:
            del self._begun_s[item.norm, item.path, item.site]
        return True

    # --- what is asked for ------------------------------------------------------------------------------------------

    def take(self, most: int, now_ms: int) -> list[Item]:
        """Every few seconds: what came into the inbox."""
        if now_ms < self._next_look_ms or most < AT_ONCE:
            return []
        items = self.look(now_ms)
        self._next_look_ms = now_ms + (MORE_MS if self.more else LOOK_MS)
        return items

    def look(self, now_ms: int) -> list[Item]:
        """Pages to be fetched, out of the next few lines of what came into the inbox."""
        self._now_s, self.more = now_ms // 1000, False
        items: list[Item] = []
        self._arrive()
        room, requests = AT_ONCE_BYTES, 0
        while self.count < MOST and (dated_line := next(self._lines)) is not None:
            time_s, line = dated_line
            room -= LINE_BYTES + len(line) if line else ITEM_BYTES
            if b"refresh" in line:
                requests += 1
                item = self._item(time_s, line.decode("utf-8", "replace"))
                items += [] if item is None else [item]
                self.count += item is not None
            if room <= 0 or requests >= AT_ONCE:
                self.more = self.count < MOST
                break
        return items

    def _arrive(self) -> None:
        try:
            new_items = self._arrivals.new()
        except OSError as error:  # the merge needs the inbox, a reap does not
            if not self._warned:
                LOG.warning("refresh requests cannot be read: %s", error)
            self._warned = True
            return
        if new_items:
            self._unread = deque(sorted((*self._unread, *new_items), key=lambda item: item.time_s))

    def _read(self) -> Iterator[tuple[int, bytes] | None]:
        """Every line of every item, with its time; None where there is none yet. What cannot be read is for the merge to tell."""
        while True:
            if not self._unread or self._unread[0].time_s >= self._now_s:
                yield None
                continue
            item = self._unread.popleft()
            yield item.time_s, b""
            with contextlib.suppress(RefusedItem):
                for line in item_pieces(item.path, MOST_BYTES):
                    yield item.time_s, line

    def _item(self, time_s: int, line: str) -> Item | None:
        try:
            request = parse_request(line)
            if request["op"] != "refresh":
                return None
            url = parse(request["url"], strict=True)
            url = url if request.get("exact") is True else parse(self._filters.strip(url.href))
        except (ValueError, BadUrl):
            return None  # the merge reports it
        if self._filters.clean(url.href) is None:
            return None  # it was accepted once; no request leads out of what is in scope now
        norm, path, site = self._state.prints.of(url)
        rows = lookup.rows_of(self._state, norm, path)
        sites = self._state.index["site"]
        best = sorted(rows, key=lambda row: sites.value(row) != site)[:1]
        return self._of_row(best[0], time_s) if best and (sites.value(best[0]) == site or url.path not in OWN_PATHS) else None

    def _of_row(self, row: int, time_s: int) -> Item | None:
        """The page of a row, if it may be asked for, and was not since."""
        index = self._state.index
        gatherable = index["type"].value(row) in GATHERABLE and index["reason"].value(row) != Reason.ROBOTS_DENIED
        if not gatherable or index["flags"].value(row) & Flag.ROBOTS or index["oid"].value(row) >= CONTRIB_BIT:
            return None
        norm, path, site = key = (index["norm"].value(row), index["path"].value(row), index["site"].value(row))
        number = self._place(row)
        planned, own = 0 if number == NO_ROW else int(self._plan.begun_s[number]), self._begun_s.get(key, 0)
        if QUEUED in (planned, own) or max(planned, own, self._checked_s(row)) > time_s:
            return None
        again = bool(planned or own)  # the reap has come to it: this is one more item, and not in the place of any
        if number == NO_ROW or again:
            self._begun_s[key], number = QUEUED, NO_ROW
        else:
            self._plan.begun_s[number] = QUEUED
        oid, digest, weight, section = (index[name].value(row) for name in OF_ITEM)
        item = Item(Kind.PAGE, norm, path, site, site, site, "", oid, digest, weight, section, FRONT, plan_row=number)
        return item._replace(again=again)

    def _checked_s(self, row: int) -> int:
        """When it was last fetched; what a wrong clock has put ahead of now does not count."""
        checked_s = self._state.index["checked"].value(row)
        return checked_s if checked_s <= self._now_s + AHEAD_S else 0

    def _place(self, row: int) -> int:
        """Where in the plan a row stands, or NO_ROW."""
        if self._order is None:
            self._order = np.argsort(self._planned, kind="stable").astype(np.uint32)
        position = int(np.searchsorted(self._planned, row, sorter=self._order))
        if position == len(self._order):
            return NO_ROW
        number = int(self._order[position])
        return number if self._planned[number] == row else NO_ROW
