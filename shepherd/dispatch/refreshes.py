"""Refresh requests that come while a reap runs: read from the inbox, and never taken out of it.

A page that an operator wants again is asked for in the reap that runs, ahead of what its server has queued, if its row may be
gathered at all. The merge that takes the request later sees that the page was checked since, and lets it be.

Invariant: a row is asked for again only if its last fetch, in the state or in this reap, did not begin after the request; and
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
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import CONTRIB_BIT, NO_ROW, U32, Flag, JournalFlag, Kind, Reason, Records, RowType
from shepherd.store.disk import names
from shepherd.store.state import inbox, lookup
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import Arrivals, parse_request
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
SETTLED: Final = 2  # instead of a time: it was never handed out, and has its record all the same
GATHERABLE: Final = (RowType.UNGATHERED, RowType.GATHERED, RowType.ERROR)
OF_ITEM: Final = ("oid", "digest", "weight", "section")


class Refreshes:
    def __init__(self, state: State, plan: Records, filters: Filter) -> None:
        self._state, self._filters = state, filters
        self._arrivals = Arrivals(state.path.parents[1] / names.INBOX, inbox.REQUESTS, state.control.applied)
        self._planned: U32 = np.ascontiguousarray(plan["row"])
        self._order: U32 | None = None  # places in the plan, by row; made when first needed
        self._begun = np.zeros(len(plan), np.uint32)  # the second in which each row of the plan was handed out; 0 = not yet
        self._own: dict[tuple[int, int, int], int] = {}  # the same of rows that are not in the plan, or are asked for once more
        self._unread: deque[inbox.InboxItem] = deque()
        self._now = 0
        self._lines = self._read()
        self._warned = False
        self.more = False  # lines wait that were not looked at yet
        self.count = 0

    # --- what this reap does ----------------------------------------------------------------------------------------

    def resumed(self, journalled: Records) -> None:
        """What an interrupted run of this reap has done."""
        pages = journalled[(journalled["kind"] == Kind.PAGE) & (journalled["flags"] & JournalFlag.HOP == 0)]
        began = np.where(pages["flags"] & JournalFlag.CONTACTED, pages["start_ms"] // 1000, SETTLED)
        planned = pages["plan_row"] < len(self._begun)
        self._begun[pages["plan_row"][planned]] = began[planned]
        for one, second in zip(pages[~planned], began[~planned].tolist(), strict=True):
            self._own[int(one["norm"]), int(one["path"]), int(one["site"])] = second

    def begun(self, item: Item, now_ms: int) -> None:
        """An item was handed out."""
        if item.plan_row < len(self._begun):
            self._begun[item.plan_row] = now_ms // 1000
        elif (key := (item.norm, item.path, item.planned_site)) in self._own:
            self._own[key] = now_ms // 1000

    def settled(self, entry: Entry) -> None:
        """A journal record was written, perhaps of what was never handed out."""
        if entry.kind != Kind.PAGE:
            return
        if entry.plan_row < len(self._begun):
            if self._begun[entry.plan_row] < SETTLED:
                self._begun[entry.plan_row] = SETTLED
        elif (key := (entry.norm, entry.path, entry.site)) in self._own:
            self._own[key] = max(self._own[key], SETTLED)

    def left(self, item: Item) -> None:
        """It cannot be asked for, after all: what the plan has stays where it is."""
        self.count -= 1
        if item.plan_row != NO_ROW:
            self._begun[item.plan_row] = 0
        else:
            del self._own[item.norm, item.path, item.site]

    # --- what is asked for ------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> list[Item]:
        """Pages to be asked for, out of the next few lines of what came into the inbox. An item with a `plan_row` takes the place
        of that row of the plan."""
        self._now, self.more = now_ms // 1000, False
        found: list[Item] = []
        self._arrive()
        room, requests = AT_ONCE_BYTES, 0
        while self.count < MOST and (told := next(self._lines)) is not None:
            time, line = told
            room -= LINE_BYTES + len(line) if line else ITEM_BYTES
            if b"refresh" in line:
                requests += 1
                item = self._item(time, line.decode("utf-8", "replace"))
                found += [] if item is None else [item]
                self.count += item is not None
            if room <= 0 or requests >= AT_ONCE:
                self.more = self.count < MOST
                break
        return found

    def _arrive(self) -> None:
        try:
            came = self._arrivals.new()
        except OSError as error:  # the merge needs the inbox, a reap does not
            if not self._warned:
                LOG.warning("refresh requests cannot be read: %s", error)
            self._warned = True
            return
        if came:
            self._unread = deque(sorted((*self._unread, *came), key=lambda item: item.time_s))

    def _read(self) -> Iterator[tuple[int, bytes] | None]:
        """Every line of every item, with its time; None where there is none yet. What cannot be read is for the merge to tell."""
        while True:
            if not self._unread or self._unread[0].time_s >= self._now:
                yield None
                continue
            item = self._unread.popleft()
            yield item.time_s, b""
            with contextlib.suppress(OSError), item.path.open("rb") as file:
                while line := file.readline(MOST_BYTES):
                    yield item.time_s, line

    def _item(self, time: int, line: str) -> Item | None:
        try:
            request = parse_request(line)
            if request["op"] != "refresh":
                return None
            url = parse(request["url"], strict=True)
            url = url if request.get("exact") is True else parse(self._filters.strip(url.href))
        except (ValueError, BadUrl):
            return None  # the merge tells
        norm, path, site = self._state.prints.of(url)
        rows = lookup.rows_of(self._state, norm, path)
        known = self._state.index["site"]
        best = sorted(rows, key=lambda row: known.value(row) != site)[:1]
        return self._of_row(best[0], time) if best and (known.value(best[0]) == site or url.path not in OWN_PATHS) else None

    def _of_row(self, row: int, time: int) -> Item | None:
        """The page of a row, if it may be asked for, and was not since."""
        index = self._state.index
        gatherable = index["type"].value(row) in GATHERABLE and index["reason"].value(row) != Reason.ROBOTS_DENIED
        if not gatherable or index["flags"].value(row) & Flag.ROBOTS or index["oid"].value(row) >= CONTRIB_BIT:
            return None
        norm, path, site = key = (index["norm"].value(row), index["path"].value(row), index["site"].value(row))
        number = self._place(row)
        planned, own = 0 if number == NO_ROW else int(self._begun[number]), self._own.get(key, 0)
        if QUEUED in (planned, own) or max(planned, own, index["checked"].value(row)) > time:
            return None
        again = bool(planned or own)  # the reap has come to it: this is one more item, and not in the place of any
        if number == NO_ROW or again:
            self._own[key], number = QUEUED, NO_ROW
        else:
            self._begun[number] = QUEUED
        oid, digest, weight, section = (index[name].value(row) for name in OF_ITEM)
        item = Item(Kind.PAGE, norm, path, site, site, site, "", oid, digest, weight, section, FRONT, plan_row=number)
        return item._replace(again=again)

    def _place(self, row: int) -> int:
        """Where in the plan a row stands, or NO_ROW."""
        if self._order is None:
            self._order = np.argsort(self._planned, kind="stable").astype(np.uint32)
        at = int(np.searchsorted(self._planned, row, sorter=self._order))
        if at == len(self._order):
            return NO_ROW
        number = int(self._order[at])
        return number if self._planned[number] == row else NO_ROW
