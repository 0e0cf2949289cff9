"""Every needed bucket of a state looked at: is it there, and what does the filter say of its URL now?

Headers and attributes are read and verified, bodies are not. Segments are worked on in several processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.batch.cleanup_read import Segment
from shepherd.batch.cleanup_survey import Known, Survey, claims, groups
from shepherd.batch.partitions import Tick
from shepherd.batch.pool import ordered
from shepherd.filters import Filter
from shepherd.formats.tables import I64, U8, U32, Array, Bools
from shepherd.phases.cleanup import SECTIONS, is_document
from shepherd.store.state import State

ROWS: Final = 8_000_000  # buckets whose rows are held in memory at a time: some 80 bytes each


@dataclass(frozen=True)
class Judged:
    """What the filter says of each row, and the decoded bytes of the bodies of gathered documents by section."""

    rejected: Bools
    section: U8 | None
    plain: I64

    def known(self, rest: Known) -> Known:
        return Known(self.rejected, self.section, rest.hollow, rest.settled)


def judge(state: State, found: Survey, filters: Filter, step: int, jobs: int, tick: Tick) -> Judged:
    """A filter without sections leaves them as they are."""
    section_of: Callable[[str], int] | None = getattr(filters, "section_of", None)
    rejected = np.zeros(state.index.rows, np.bool_)
    section = state.index["section"][0 : state.index.rows].copy() if section_of is not None else None
    plain = np.zeros(SECTIONS, np.int64)
    for numbers in groups(state, found.robots, ROWS, step):
        held = claims(state, numbers, found.robots, step)

        def one(number: int, held: object = held) -> tuple[Bools, U8, U32]:
            return _judge_segment(Segment(state, number, held.of(number)), filters, section_of)  # type: ignore[attr-defined]

        for number, (refused, sections, bodies) in zip(numbers, ordered(one, numbers.tolist(), jobs), strict=True):
            row = held.of(int(number)).row
            real = row >= 0
            rejected[row[real]] = refused[real]
            if section is not None:
                section[row[real]] = sections[real]
            counted = real & ~refused & (bodies > 0)
            _add_bodies(plain, state, row[counted], bodies[counted], section)
            tick(len(row))
    return Judged(rejected, section, plain)


def _judge_segment(segment: Segment, filters: Filter, section_of: Callable[[str], int] | None) -> tuple[Bools, U8, U32]:
    count = len(segment.held)
    refused, sections, plain = np.zeros(count, np.bool_), np.zeros(count, np.uint8), np.zeros(count, np.uint32)
    for part in segment.verify(bodies=False):
        urls = [url.decode("ascii") for url in segment.urls(part)]
        here = slice(part.first, part.first + len(urls))
        refused[here] = [filters.clean(url) is None for url in urls]
        plain[here] = part.heads["plain"]
        if section_of is not None:
            sections[here] = [section_of(url) for url in urls]
    return refused, sections, plain


def _add_bodies(plain: I64, state: State, rows: I64, bodies: Array, section: U8 | None) -> None:
    columns = state.index.take(rows, ("type", "flags", "digest", "gathered", "oid", "section"))
    gathered = is_document(columns)
    sections = columns["section"] if section is None else section[rows]
    np.add.at(plain, sections[gathered].astype(np.int64), bodies[gathered].astype(np.int64))
