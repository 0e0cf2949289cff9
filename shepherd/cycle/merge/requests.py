"""Requests from the inbox, as JSON lines: an insert is a contribution with a weight of its own, all else edits a known URL.

Lines are read one by one and twice: first for the edits, then for the inserts, because a deletion that comes later takes an
insert back. What is kept of a line is numbers; a bad line is counted, and its reason reported if it is among the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shepherd.config import Config
from shepherd.cycle.merge.edits import EDIT, Op
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.tables import U64, ContribFlag, Records
from shepherd.store.state.inbox import InboxItem, parse_request
from shepherd.store.state.inserts import add_insert
from shepherd.urls import Footprints, parse

MOST_LISTED: Final = 100  # bad lines in a report
MOST_CHARACTERS: Final = 400  # of the reason of each
EDITS_HELD: Final = 1 << 14
MOST_U16: Final = 65_535
MOST_U8: Final = 255
PLACE_BITS: Final = 40  # of the line, in the place of a request among all


def place_of(item: int, line: int) -> int:
    """Requests count in the order of their items and lines."""
    return item << PLACE_BITS | line


def line_of(place: int) -> int:
    return place & (1 << PLACE_BITS) - 1


@dataclass
class Faults:
    """What could not be done, the first of it in words."""

    count: int = 0
    _first: list[tuple[int, int, str]] = field(default_factory=list)  # a heap: the last of the first comes out

    def add(self, place: int, text: str) -> None:
        """What anyone may have dropped must not make the report of a state large."""
        self.count += 1
        text = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
        heapq.heappush(self._first, (-place, -self.count, text))
        if len(self._first) > MOST_LISTED:
            heapq.heappop(self._first)

    def words(self) -> list[str]:
        return [text for _place, _count, text in sorted(self._first, reverse=True)]


@dataclass(frozen=True)
class Edits:
    """Edits in the order in which they were asked for, and the place of each among all requests."""

    records: Records
    places: U64

    def __len__(self) -> int:
        return len(self.records)


class EditList:
    """Collects edits. Most of them are held as records, for a list of objects is twenty times as large."""

    def __init__(self, prints: Footprints) -> None:
        self._prints = prints
        self._rows: list[tuple[int, ...]] = []
        self._places: list[int] = []
        self._parts: list[Edits] = []

    def add(self, place: int, site: str, path: str, op: Op, value: int, time: int) -> None:
        prints = self._prints
        self._rows.append((prints.norm(site), prints.half(path), prints.half(site), time, value, op, 0))
        self._places.append(place)
        if len(self._rows) >= EDITS_HELD:
            self._settle()

    def edits(self) -> Edits:
        self._settle()
        records = np.concatenate([np.zeros(0, EDIT), *(part.records for part in self._parts)])
        return Edits(records, np.concatenate([np.zeros(0, np.uint64), *(part.places for part in self._parts)]))

    def _settle(self) -> None:
        self._parts.append(Edits(np.array(self._rows, EDIT), np.array(self._places, np.uint64)))
        self._rows, self._places = [], []


class RequestLines:
    """Reads the lines of items. `order` is the place of an item among all that wait."""

    def __init__(self, filters: Filter, config: Config, faults: Faults) -> None:
        self._filters, self._config, self._faults = filters, config, faults

    def read_edits(self, order: int, item: InboxItem, edits: EditList, purges: BlockBuilder) -> int:
        """Take the edits of an item, and note what is wrong with its lines; how many inserts it has. The URLs that are purged are
        contributed, too: an unknown one needs a row and a tombstone to be kept out for ever."""
        inserts = 0
        for number, line in item.lines():
            try:
                request = parse_request(line)
                if request["op"] == "insert":
                    inserts += 1
                else:
                    self._add_edits(place_of(order, number), request, min(item.time_s, 0xFFFFFFFF), edits, purges)
            except (ValueError, BadUrl) as error:
                self._faults.add(place_of(order, number), f"{item.path.name} line {number}: {error}")
        return inserts

    def read_inserts(self, order: int, item: InboxItem, blocks: BlockBuilder) -> Iterator[int]:
        """Add the inserts of an item to blocks, and give the place of each once it is in."""
        for number, line in item.lines():
            try:
                request = parse_request(line)
            except ValueError:
                continue  # reported by now
            if request["op"] == "insert":
                try:
                    self._add_insert(request, blocks)
                except (ValueError, BadUrl) as error:
                    self._faults.add(place_of(order, number), f"{item.path.name} line {number}: {error}")
                    continue
                yield place_of(order, number)

    def _add_insert(self, request: dict[str, Any], blocks: BlockBuilder) -> None:
        weight = _number(request, "weight", MOST_U16, self._config.merge.insert_weight)
        url = parse(request["url"], strict=True)
        href = self._filters.clean(url.href)
        if href is None:
            raise BadUrl(rejection(self._filters, url.href))
        section = _number(request, "section", MOST_U8, 0) if "section" in request else None
        pinned = _truth(request, "pinned")
        add_insert(blocks, self._filters, url.site, href, weight=weight, section=section, pinned=pinned)

    def _add_edits(self, place: int, request: dict[str, Any], time: int, edits: EditList, purges: BlockBuilder) -> None:
        """The filter does not judge them: what it rejects by now may well be deleted. Of an exact URL it strips nothing, either:
        the row may be from before it learnt to."""
        url = parse(request["url"], strict=True)
        path = url.path if _truth(request, "exact") else self._filters.strip(url.href)[len(url.site) :]
        for op, value in _operations(request):
            edits.add(place, url.site, path, op, value, time)
            if op == Op.PURGE:
                purges.add(url.site, path, 0, 0, int(ContribFlag.OWN_WEIGHT))


def rejection(filters: Filter, href: str) -> str:
    verdict = filters.judge(filters.strip(href))
    return f"{href} is rejected by filter line {verdict.line}: {verdict.text}"


def _operations(request: dict[str, Any]) -> list[tuple[Op, int]]:
    """What is to be done, and the value of each; a set may say several things."""
    if request["op"] == "delete":
        return [(Op.PURGE if _truth(request, "purge") else Op.DELETE, 0)]
    if request["op"] == "refresh":
        return [(Op.REFRESH, 0)]
    operations = []
    for key, what, most in (("weight", Op.WEIGHT, MOST_U16), ("section", Op.SECTION, MOST_U8)):
        if key in request:
            operations.append((what, _number(request, key, most, 0)))
    if "frequency" in request:
        frequency = request["frequency"]
        if type(frequency) is not int or frequency not in (1, 2, 4):
            raise ValueError(f"frequency {frequency!r} is not 1, 2 or 4")
        operations.append((Op.FREQUENCY, frequency))
    if "pinned" in request:
        operations.append((Op.PINNED, int(_truth(request, "pinned"))))
    if not operations:
        raise ValueError("nothing to set; there are weight, section, frequency and pinned")
    return operations


def _number(request: dict[str, Any], key: str, most: int, default: int) -> int:
    value = request.get(key, default)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} {value!r} is not from 0 to {most}")
    return value


def _truth(request: dict[str, Any], key: str) -> bool:
    value = request.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} {value!r} is neither true nor false")
    return value
