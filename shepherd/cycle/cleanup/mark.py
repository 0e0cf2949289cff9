"""Writes what a cleanup marks: the changed columns of the index, thin buckets, and the sites' counts of gathered documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.keys import find_sites
from shepherd.arrays.partitions import partitions
from shepherd.config import Config
from shepherd.cycle.cleanup import rules as cleanup
from shepherd.cycle.cleanup.copy import write_thin
from shepherd.cycle.cleanup.rules import Thin, TrimBar, Wishes
from shepherd.cycle.cleanup.survey import IndexWishes, SegmentSurvey, fill_of, segment_lengths
from shepherd.formats.tables import I64
from shepherd.readers.segments import Claims
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.objects import SegmentWriter

MOST_THIN: Final = 4_000_000  # thin buckets of one state; further bodies go with the next one
_LOOKED_AT: Final = (*cleanup.READ, "changed", "touched", "site")


@dataclass(frozen=True)
class MarkResult:
    counts: dict[str, int]
    after: SegmentSurvey  # of the state that is being made
    rows_waiting: int  # rows that still wait for a thin bucket
    plain: I64  # decoded bytes of gathered documents that go, by section


def write(builder: Builder, state: State, wishes: IndexWishes, bar: TrimBar, survey: SegmentSurvey, config: Config) -> MarkResult:
    step = config.store.partition_rows
    first = builder.control.segments
    segments = builder.segment_writer(config.store.segment_bytes)
    thin, plain, squeezed = _thinned(state, builder.name.number, wishes, bar, segments, step)
    builder.finish_segments(segments)
    lengths = np.append(segment_lengths(state), np.zeros(builder.control.segments - first, np.int64))
    np.add.at(lengths, (thin.oid >> np.uint64(32)).astype(np.int64), thin.size.astype(np.int64))
    ceased, plain_gone = np.zeros(state.sites.rows, np.int64), np.zeros(cleanup.SECTIONS, np.int64)
    after, counts = cleanup.nothing(len(lengths)), Counter[str]()
    table = builder.table("index", cleanup.CHANGED)
    site = state.sites["site"][0 : state.sites.rows]
    for start, stop in partitions(state.index.rows, step):
        part = state.index.slice(start, stop, _LOOKED_AT)
        pressed = np.zeros(stop - start, np.bool_)
        pressed[_within(squeezed, start, stop)] = True
        marked = cleanup.mark(part, wishes.of(start, stop), pressed, _part(thin, start, stop), state=builder.name.number)
        table.append(dict(marked.columns))
        counts.update(marked.counts)
        section = marked.columns["section"][_within(squeezed, start, stop)].astype(np.int64)
        np.add.at(plain_gone, section, plain[np.searchsorted(thin.row, squeezed[(squeezed >= start) & (squeezed < stop)])])
        np.add.at(ceased, find_sites(site, part["site"][marked.ceases]), 1)
        after += cleanup.look({**part, **marked.columns}, Wishes(), len(lengths))
    builder.finish_table(table)
    builder.keep_table("index", cleanup.CHANGED)
    _write_gathered(builder, state, ceased, step)
    new_survey = SegmentSurvey(after, fill_of(after, survey.robots, lengths), survey.robots, survey.deleted)
    return MarkResult({key: value for key, value in counts.items() if value}, new_survey, after.trims, plain_gone)


def _thinned(
    state: State, number: int, wishes: IndexWishes, bar: TrimBar, segments: SegmentWriter, step: int
) -> tuple[Thin, I64, I64]:
    """The thin buckets of rows that sleep, or are to; the decoded bytes that each takes the place of; and which rows are to."""
    rows, pressed = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    oids, sizes = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    room = MOST_THIN
    for start, stop in partitions(state.index.rows, step):
        part = state.index.slice(start, stop, cleanup.READ)
        part_wishes = wishes.of(start, stop)
        squeeze, bar = cleanup.squeezed(part, part_wishes, bar)
        trimmed = np.flatnonzero(cleanup.fates(part, part_wishes).trims | squeeze)[:room]
        room -= len(trimmed)
        rows.append(trimmed + start)
        pressed.append(trimmed[squeeze[trimmed]] + start)
        oids.append(part["oid"][trimmed])
        sizes.append(part["size"][trimmed].astype(np.int64))
        if not room:
            break
    row, oid, size = np.concatenate(rows), np.concatenate(oids), np.concatenate(sizes)
    order = np.argsort(oid, kind="stable")
    thin, plain = write_thin(state, Claims(oid[order], size[order], row[order]), segments, number)
    return thin, plain, np.concatenate(pressed)


def _within(rows: I64, start: int, stop: int) -> I64:
    first, last = np.searchsorted(rows, [start, stop]).tolist()
    return rows[first:last] - start


def _part(thin: Thin, start: int, stop: int) -> Thin:
    first, last = np.searchsorted(thin.row, [start, stop]).tolist()
    return Thin(thin.row[first:last] - start, thin.oid[first:last], thin.size[first:last])


def _write_gathered(builder: Builder, state: State, ceased: I64, step: int) -> None:
    if not ceased.any():
        builder.keep_table("sites")
        return
    table = builder.table("sites", ["gathered"])
    for start, stop in partitions(state.sites.rows, step):
        table.append({"gathered": state.sites["gathered"][start:stop] - ceased[start:stop].astype(np.uint32)})
    builder.finish_table(table)
    builder.keep_table("sites", ["gathered"])
