"""What waits in the inbox for a merge: requests, and inserted URLs as contributions; each item once, in the order of names.

Of an insert and a deletion of the same document the later one holds; a purge holds whatever else is asked. So edits are read
first, as records; then the inserts go by block by block, and of each block are taken the rows that no deletion takes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from shepherd.arrays import keys
from shepherd.arrays.distinct_urls import Paths, find_known
from shepherd.config import Config
from shepherd.cycle.common.norms import NormMap
from shepherd.cycle.merge.edits import Op
from shepherd.cycle.merge.requests import EditList, Edits, Faults, RequestLines, line_of, place_of, rejection
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats import contrib
from shepherd.formats.block_builder import BlockBuilder
from shepherd.formats.contribkeys import BlockKeys, decode_keys
from shepherd.formats.frame import Frame, FrameKind
from shepherd.formats.tables import I64, U64, Array, Bools, Columns, ContribFlag, Records
from shepherd.store.state import inserts
from shepherd.store.state.inbox import CONTRIB, InboxItem
from shepherd.store.state.inbox_files import RefusedItem
from shepherd.urls import Footprints

KEY = ("norm", "path", "site")


@dataclass(frozen=True)
class InboxSurvey:
    """The items that can be taken, how many URLs the contributions among them have, and why the others stay."""

    items: Sequence[InboxItem]
    contributed: int
    refused: Sequence[str]


def survey(items: Sequence[InboxItem], key: bytes) -> InboxSurvey:
    """An item that cannot be read waits until it can; one that is damaged, until somebody has looked at it."""
    good, urls, refused = [], 0, []
    for item in items:
        try:
            if item.kind == CONTRIB:
                urls += inserts.inspect(item.path, key).urls
            else:
                for _line in item.lines():
                    pass
        except RefusedItem as error:
            refused.append(f"{item.path.name}: {error.what}")
            continue
        except Corruption as error:
            damage = Corruption(error.what, item.path.name, error.offset, error.advice)
            refused.append(f"{damage}; nothing of it was taken: insert its URLs again, and remove it")
            continue
        good.append(item)
    return InboxSurvey(good, urls, refused)


class Removals:
    """The documents that requests delete or purge, and which of their inserts and deletions hold."""

    def __init__(self, edits: Edits, paths: Paths) -> None:
        self._edits, self._paths = edits, paths
        removes = np.isin(edits.records["op"], (Op.DELETE, Op.PURGE))
        self._rows = np.flatnonzero(removes)
        columns = {name: np.ascontiguousarray(edits.records[name][removes]) for name in KEY}
        columns["site"] = np.where(paths.special(columns["path"]), columns["site"], np.uint64(0))
        order = keys.sort_order(*(columns[name] for name in KEY))
        starts = keys.run_starts(*(columns[name][order] for name in KEY))
        self._documents: Columns = {name: columns[name][order[starts]] for name in KEY}
        self._document = np.empty(len(order), np.int64)  # of each of these edits
        self._document[order] = np.cumsum(starts) - 1
        deleted = edits.records["op"][removes] == Op.DELETE
        places = edits.places[removes]
        self._deleted, self._inserted = (np.zeros(len(self._documents["norm"]), np.uint64) for _ in range(2))
        np.maximum.at(self._deleted, self._document[deleted], places[deleted])
        self._purged = np.zeros(len(self._deleted), np.bool_)
        self._purged[self._document[~deleted]] = True

    def judge(self, urls: Columns, places: U64) -> tuple[Bools, Bools]:
        """Of inserts: which hold, and which a purge keeps out."""
        if not len(self._purged):
            return np.ones(len(places), np.bool_), np.zeros(len(places), np.bool_)
        document, _place = find_known(self._documents, urls, self._paths)
        is_removed = document >= 0
        purged, holds = is_removed & self._purged[document], ~is_removed | (self._deleted[document] < places)
        holds &= ~purged
        np.maximum.at(self._inserted, document[is_removed & holds], places[is_removed & holds])
        return np.asarray(holds), np.asarray(purged)

    def lasting(self) -> Records:
        """The edits that hold once all inserts were judged."""
        overtaken = self._edits.records["op"][self._rows] == Op.DELETE
        overtaken &= self._inserted[self._document] > self._edits.places[self._rows]
        return np.delete(self._edits.records, self._rows[overtaken])


@dataclass(frozen=True)
class ContribBlock:
    """A block for a contrib file, and which of its rows count."""

    frame: Frame
    keys: BlockKeys
    rows: I64


class Waiting:
    """Reads the items of a survey: `read_edits`, then all of `contributed`, then there are `edits` and the counts."""

    def __init__(
        self, inbox_survey: InboxSurvey, filters: Filter, config: Config, prints: Footprints, norms: NormMap, paths: Paths
    ) -> None:
        self._survey, self._items, self._filters, self._prints = inbox_survey, inbox_survey.items, filters, prints
        self.norms, self.paths = norms, paths
        self.faults = Faults()
        self.in_vain = Faults()  # inserts beside a purge
        self._lines = RequestLines(filters, config, self.faults)
        self._purges: list[Frame] = []
        self._removals = Removals(EditList(prints).edits(), paths)
        self.inserted = 0

    def read_edits(self) -> int:
        """Every request but the inserts; how many rows all that waits may need."""
        edits, purges, inserted = EditList(self._prints), BlockBuilder(self._prints, self._filters.version), 0
        for order, item in enumerate(self._items, 1):
            if item.kind != CONTRIB:
                with self._changing(order, item):
                    inserted += self._lines.read_edits(order, item, edits, purges)
            if purges.is_full:
                self._purges.append(_frame(purges))
        if len(purges):
            self._purges.append(_frame(purges))
        all_edits = edits.edits()
        all_edits.records["norm"] = self.norms.apply(all_edits.records["norm"], all_edits.records["site"])
        self._removals = Removals(all_edits, self.paths)
        return len(all_edits) + inserted + self._survey.contributed

    def contributed(self) -> Iterator[ContribBlock]:
        """What is inserted, and what is purged."""
        blocks = BlockBuilder(self._prints, self._filters.version)
        places: list[int] = []
        for order, item in enumerate(self._items, 1):
            if item.kind == CONTRIB:
                if places:
                    yield self._judge_block(_frame(blocks), places)
                    places = []
                with self._changing(order, item):
                    yield from self._of_frames(order, item)
                continue
            with self._changing(order, item):
                for place in self._lines.read_inserts(order, item, blocks):
                    places.append(place)
                    if blocks.is_full:
                        yield self._judge_block(_frame(blocks), places)
                        places = []
        if places:
            yield self._judge_block(_frame(blocks), places)
        for frame in self._purges:
            block = decode_keys(frame.payload)
            yield ContribBlock(frame, block, np.arange(len(block)))

    @property
    def edits(self) -> Records:
        """In the order of their norms, and for each norm in their own."""
        records = self._removals.lasting()
        return records[np.argsort(records["norm"], kind="stable")]

    def _judge_block(self, frame: Frame, places: Sequence[int] | U64) -> ContribBlock:
        block, request_places = decode_keys(frame.payload), np.asarray(places, np.uint64)
        columns: dict[str, Array] = {"norm": self.norms.apply(block.norm, block.site), "path": block.path, "site": block.site}
        holds, purged = self._removals.judge(columns, request_places)
        for row, url in _urls(frame.payload, np.flatnonzero(purged)):
            self.in_vain.add(int(request_places[row]), f"{url} is not inserted: another request purges it")
        self.inserted += int(np.count_nonzero(holds))
        return ContribBlock(frame, block, np.flatnonzero(holds))

    @contextmanager
    def _changing(self, order: int, item: InboxItem) -> Iterator[None]:
        """Of an item that somebody changes after it was found whole, what could be read until then counts."""
        try:
            yield
        except Corruption as error:
            self.faults.add(place_of(order, 0), f"{item.path.name} was changed while it was read: {error.what}")

    def _of_frames(self, order: int, item: InboxItem) -> Iterator[ContribBlock]:
        """An item of contributions: its blocks as they are, unless the filter has changed since."""
        first = 1
        for frame in inserts.frames(item.path):
            places = np.arange(place_of(order, first), place_of(order, first + frame.records), dtype=np.uint64)
            first += frame.records
            if contrib.filter_version(frame.payload) == self._filters.version:
                yield self._judge_block(frame, places)
                continue
            blocks, good = self._filtered(frame, places, item)
            if len(blocks):
                yield self._judge_block(_frame(blocks), places[good])

    def _filtered(self, frame: Frame, places: U64, item: InboxItem) -> tuple[BlockBuilder, list[int]]:
        """A block that another filter has judged, judged by ours; and the rows that are left of it."""
        block, good = contrib.decode(frame.payload), []
        blocks = BlockBuilder(self._prints, self._filters.version)
        weights, flags, sections = block.parent_weight.tolist(), block.flags.tolist(), block.section.tolist()
        for row, url in _urls(frame.payload, np.arange(len(block))):
            try:
                href = self._filters.clean(url)
                why = rejection(self._filters, url) if href is None else ""
            except ValueError:
                href, why = None, f"{url} is not a URL"
            if href is None:
                place = int(places[row])
                self.faults.add(place, f"{item.path.name} URL {line_of(place)}: {why}")
                continue
            site = url[: len(url) - len(block.texts[row])]
            section = sections[row] if flags[row] & ContribFlag.OWN_SECTION else self._filters.section_of(href).section
            blocks.add(site, href[len(site) :], weights[row], section, flags[row])
            good.append(row)
        return blocks, good


def _frame(blocks: BlockBuilder) -> Frame:
    block = blocks.block()
    return Frame(0, 0, FrameKind.CONTRIB, len(block), memoryview(contrib.encode(block)))


def _urls(payload: memoryview, rows: I64) -> Iterator[tuple[int, str]]:
    """The URLs of some records of a block, and which those are."""
    if not len(rows):
        return
    block = contrib.decode(payload, only=rows)
    names = dict(zip(block.sites.tolist(), block.names, strict=True))
    for row, site, text in zip(rows.tolist(), block.site[rows].tolist(), block.texts, strict=True):
        yield row, (names[site] + text).decode("ascii")
