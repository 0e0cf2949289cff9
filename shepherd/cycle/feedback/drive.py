"""Drives feedback: indexers' uploads that wait in the inbox become weights and flags of the closed state N+1.

An upload is read whole before a row of it counts: one that is damaged stays in the inbox, is reported, and changes nothing. Lines
of a text that cannot be read are reported and skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from shepherd.arrays.column_spill import ColumnSpill, SpilledRows
from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.lookup import Lookup
from shepherd.arrays.partitions import Tick, rows_before, whole_norms
from shepherd.arrays.pool import ordered, tasks
from shepherd.config import Config
from shepherd.cycle.common.limits import OUTDATED
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.feedback import rules as feedback
from shepherd.cycle.feedback.rules import UpdatedRows
from shepherd.errors import Corruption, NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats import feedback as uploads
from shepherd.formats.control import CLOSED
from shepherd.formats.feedback import FEEDBACK
from shepherd.formats.frame import MAGIC
from shepherd.formats.tables import Array, Records
from shepherd.store.disk import names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state import inbox
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import InboxItem
from shepherd.store.state.inbox_files import RefusedItem, item_frames, open_item
from shepherd.urls import Footprints, parse

UPLOAD_COLUMNS: Final = {"norm": "<u8", "path": "<u8", "site": "<u8", "weight": "<u2", "flags": "<u2"}
LINES: Final = 1 << 16  # of a text at a time
MOST_LISTED: Final = 100


@dataclass(frozen=True)
class _Pass:
    """What the work on every partition needs."""

    rows: SpilledRows
    paths: Paths
    number: int  # of the state that is made


@dataclass
class Uploads:
    """What was found in the inbox: the items that can be applied, and what could not be read."""

    good: list[InboxItem] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    bad_lines: list[str] = field(default_factory=list)


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    parent = writer.furthest()
    if not parent.name.closed:
        raise not_now(parent, "feedback needs a closed state")
    prints, filters = parent.prints, load_filter(config.filter_path)
    inbox_uploads = _survey(writer.database.inbox.waiting(parent.control.applied, inbox.FEEDBACK))
    if not inbox_uploads.good:
        raise NothingToDo(f"no feedback waits{''.join(f'; {fault}' for fault in inbox_uploads.bad)}")
    step = config.store.partition_rows
    borders = parent.index["norm"].take(np.array([start for start, _ in whole_norms(parent.index, step)][1:], np.int64))
    builder = writer.build(parent, StateName(parent.number + 1, CLOSED), now)
    try:
        with ColumnSpill(builder.scratch, UPLOAD_COLUMNS, "norm", borders) as spill:
            strangers = _spill(parent, inbox_uploads, spill, prints, filters)
            cuts = rows_before(parent.index["norm"][0 : parent.index.rows], borders).tolist()
            shared = _Pass(spill.settle(), Paths.of(prints), builder.name.number)
            counts: Counter[str] = Counter({"of unknown URLs": strangers})
            index = builder.table("index", feedback.CHANGED)
            work = tasks(_partition, parent, shared, enumerate(pairwise(cuts)))
            for partition in ordered(work, jobs):
                index.append(partition.columns)
                counts.update(partition.counts)
                tick(len(partition.columns["weight"]))
            builder.finish_table(index)
        builder.keep_table("index", feedback.CHANGED)
        for name in ("sites", "servers"):
            builder.keep_table(name)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        applied = (*builder.control.applied, *(item.name for item in inbox_uploads.good))
        builder.change(applied=applied, selection=OUTDATED)
        report: dict[str, object] = {"phase": "feedback", "uploads": len(inbox_uploads.good), **counts}
        report |= {"bad uploads": len(inbox_uploads.bad), "bad lines": len(inbox_uploads.bad_lines)}
        report["bad"] = [*inbox_uploads.bad, *inbox_uploads.bad_lines][:MOST_LISTED]
        return writer.publish(builder, report)
    finally:
        builder.close()


def _survey(items: list[InboxItem]) -> Uploads:
    """Which uploads are whole, before anything of them counts."""
    inbox_uploads = Uploads()
    for item in items:
        try:
            for _part in _parts(item) if _is_binary(item) else item.lines():
                pass
        except RefusedItem as error:
            inbox_uploads.bad.append(f"{item.path}: {error.what}")
            continue
        except Corruption as error:
            place = "" if error.offset is None else f" at {error.offset}"
            inbox_uploads.bad.append(f"{item.path} is damaged{place}: {error.what}; upload it again and remove this one")
            continue
        inbox_uploads.good.append(item)
    return inbox_uploads


def _is_binary(item: InboxItem) -> bool:
    with open_item(item.path) as fd:
        return uploads.is_binary(opening.read_at(item.path, fd, len(MAGIC), 0))


def _parts(item: InboxItem) -> Iterator[Records]:
    """The records of a binary upload, a frame at a time."""
    return map(uploads.unpack, item_frames(item.path))


def _spill(state: State, inbox_uploads: Uploads, spill: ColumnSpill, prints: Footprints, filters: Filter) -> int:
    """Put all lines in the order of the index; how many of them are of unknown sites."""
    lookup, norm = Lookup(state.sites["site"][0 : state.sites.rows]), state.sites["norm"][0 : state.sites.rows]
    strangers = 0
    for item in inbox_uploads.good:
        for part in _good_parts(item, inbox_uploads, prints, filters):
            columns: dict[str, Array] = {name: np.ascontiguousarray(part[name]) for name in ("site", "path", "weight", "flags")}
            row = lookup.find(columns["site"])
            rows = np.flatnonzero(row >= 0)
            strangers += len(row) - len(rows)
            spill.add({name: column.take(rows) for name, column in columns.items()} | {"norm": norm.take(row.take(rows))})
    return strangers


def _good_parts(item: InboxItem, inbox_uploads: Uploads, prints: Footprints, filters: Filter) -> Iterator[Records]:
    """Of an item that somebody has changed since it was found whole, what could be read."""
    try:
        yield from _parts(item) if _is_binary(item) else _parts_of_text(item, inbox_uploads.bad_lines, prints, filters)
    except Corruption as error:
        inbox_uploads.bad_lines.append(f"{item.path.name} was changed while it was read: {error.what}")


def _parts_of_text(item: InboxItem, bad_lines: list[str], prints: Footprints, filters: Filter) -> Iterator[Records]:
    def footprint(text: str) -> tuple[int, int]:
        url = parse(filters.strip(parse(text, strict=True).href))
        return prints.half(url.site), prints.half(url.path)

    records: list[tuple[int, ...]] = []
    for number, line in item.lines():
        try:
            records.append((*uploads.parse_line(line, footprint), 0))
        except ValueError as error:
            bad_lines.append(f"{item.path.name} line {number}: {str(error)[:400]}")
        if len(records) == LINES:
            yield np.array(records, FEEDBACK)
            records = []
    yield np.array(records, FEEDBACK)


def _partition(state: State, shared: _Pass, part: tuple[int, tuple[int, int]]) -> UpdatedRows:
    number, rows = part
    index = state.index.slice(*rows, feedback.READ)
    return feedback.apply(index, shared.rows.read(number), shared.paths, state=shared.number)
