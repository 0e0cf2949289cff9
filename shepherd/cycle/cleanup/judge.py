"""Every needed bucket of a state looked at: is it there, and what does the filter say of its URL now?

Headers and attributes are read and verified, bodies are not. Segments are worked on in several processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.partitions import Tick
from shepherd.arrays.pool import ordered, tasks
from shepherd.cycle.cleanup.rules import SECTIONS, is_document
from shepherd.cycle.cleanup.survey import IndexWishes, SegmentSurvey, claims, groups
from shepherd.filters import Filter
from shepherd.formats.tables import I16, I64, U8, U32, Array, Bools
from shepherd.readers.segments import Claims, Segment
from shepherd.store.state.directory import State

NO_LINE: Final = -1  # no line of the filter says the section
ROWS: Final = 8_000_000  # buckets whose rows are held in memory at a time: some 80 bytes each


@dataclass(frozen=True)
class FilterJudgement:
    """What the filter says of each row, and the decoded bytes of the bodies of gathered documents by section."""

    rejected: Bools
    section: U8
    plain: I64

    def wishes(self, rest: IndexWishes) -> IndexWishes:
        return IndexWishes(self.rejected, self.section, rest.hollow, rest.settled)


def judge(state: State, survey: SegmentSurvey, filters: Filter, step: int, jobs: int, tick: Tick) -> FilterJudgement:
    """A document that no section line of the filter speaks of keeps the section it has."""
    rejected = np.zeros(state.index.rows, np.bool_)
    section = state.index["section"][0 : state.index.rows].copy()
    plain = np.zeros(SECTIONS, np.int64)
    for numbers in groups(state, survey.robots, ROWS, step):
        needed = claims(state, numbers, survey.robots, step)
        parts = [(number, needed.of(number)) for number in numbers.tolist()]
        work = tasks(_judge_segment, state, filters, parts)
        for (_number, mine), (refused, sections, bodies) in zip(parts, ordered(work, jobs), strict=True):
            row = mine.row
            real = row >= 0
            rejected[row[real]] = refused[real]
            has_line = real & (sections != NO_LINE)
            section[row[has_line]] = sections[has_line]
            survives = real & ~refused & (bodies > 0)
            _add_bodies(plain, state, row[survives], bodies[survives], section)
            tick(len(row))
    return FilterJudgement(rejected, section, plain)


def _judge_segment(state: State, filters: Filter, claimed: tuple[int, Claims]) -> tuple[Bools, I16, U32]:
    segment = Segment(state, *claimed)
    count = len(segment.claims)
    refused, sections, plain = np.zeros(count, np.bool_), np.full(count, NO_LINE, np.int16), np.zeros(count, np.uint32)
    for part in segment.verify(bodies=False):
        urls = [url.decode("ascii") for url in segment.urls(part)]
        here = slice(part.first, part.first + len(urls))
        refused[here] = [filters.clean(url) is None for url in urls]
        plain[here] = part.heads["plain_bytes"]
        lines = [filters.section_of(url) for url in urls]
        sections[here] = [line.section if line.line else NO_LINE for line in lines]
    return refused, sections, plain


def _add_bodies(plain: I64, state: State, rows: I64, bodies: Array, section: U8) -> None:
    gathered = is_document(state.index.take(rows, ("type", "flags", "digest", "gathered", "oid")))
    np.add.at(plain, section[rows][gathered].astype(np.int64), bodies[gathered].astype(np.int64))
