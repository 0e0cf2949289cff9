"""The buckets that rows claim, of all states of a walk at once: each segment is scanned once, however many states share it.

A claim is a row and its oid. Claims and buckets are joined in the order of oids, a range of oids at a time, so memory is bounded
by CLAIMS and by a part of a segment, not by tables and segments. Read after `check_files` found every byte as written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats import tables
from shepherd.formats.tables import CONTRIB_BIT, I64, NO_OID, U64, Bools
from shepherd.store.check.faults import MOST_LISTED, Fault, FaultLimiter
from shepherd.store.disk import names
from shepherd.store.state.directory import State
from shepherd.store.state.segment_table import SegmentPart, SegmentScan
from shepherd.urls import Footprints

CLAIMS: Final = 2_000_000  # held at a time, of all states together: 16 bytes each, and twice as much while they are sorted
STEP_ROWS: Final = 500_000
PIECE_BITS: Final = 24  # claims are counted by pieces of 16 MiB of a segment, to know where to cut

_COMPARED: Final = ("site", "path", "size", "digest")

_StateFaults: TypeAlias = Iterator[tuple[State, Fault]]


def walk_claims(states: Sequence[State], tick: Callable[[int], object], most: int | None = MOST_LISTED) -> _StateFaults:
    """Every row but forgotten ones points at a bucket with its footprint, and no two at the same; every robots file is one."""
    segments = _Segments()
    columns: list[_Column] = []
    for state in states:
        try:
            columns += _columns_of(state, FaultLimiter(most))
            segments.add(state)
        except (Corruption, FileNotFoundError):
            if state.path.exists():
                raise  # else it was deleted since its files were read, and nobody claims anything there any more
    pieces: Counter[int] = Counter()
    for column in columns:
        counts, faults = column.survey()
        pieces += counts
        yield from ((column.state, fault) for fault in faults)
    for low, high in pairwise([0, *_cuts(pieces), CONTRIB_BIT]):
        claims = [column.claims(low, high) for column in columns]
        for claim in claims:
            if claim.column.table == "index":
                yield from claim.claimed_twice()
        yield from segments.judge(claims, high, tick)
    for column in columns:
        if column.table == "index":  # that of the sites has the same teller
            yield from ((column.state, fault) for fault in column.limiter.rest())


def _columns_of(state: State, limiter: FaultLimiter) -> list[_Column]:
    """The columns of oids, with all that is compared with buckets mapped: so it stays there, even if the state is deleted."""
    for name in ("oid", *_COMPARED):
        len(state.index[name])
    len(state.sites["robots_oid"])
    return [_Column(state, "index", "oid", limiter), _Column(state, "sites", "robots_oid", limiter)]


def _cuts(pieces: Counter[int]) -> list[int]:
    """The oids between which there are about as many claims as may be held."""
    cuts, count = [], 0
    for piece in sorted(pieces):
        if count and count + pieces[piece] > CLAIMS:
            cuts.append(piece << PIECE_BITS)
            count = 0
        count += pieces[piece]
    return cuts


@dataclass(frozen=True)
class _Column:
    """A column of oids."""

    state: State
    table: str
    name: str
    limiter: FaultLimiter

    @property
    def path(self) -> Path:
        return self.state.path / self.table / self.name

    def _oids(self) -> Iterator[tuple[int, U64]]:
        table = self.state.index if self.table == "index" else self.state.sites
        for start in range(0, table.rows, STEP_ROWS):
            yield start, table[self.name][start : start + STEP_ROWS]

    def survey(self) -> tuple[Counter[int], list[Fault]]:
        """How many claims each piece of each segment has, and what is wrong with claims of nothing at all."""
        pieces: Counter[int] = Counter()
        faults: list[Fault] = []
        have = np.array(self.state.segments(), np.uint64)
        for start, oid in self._oids():
            claim = tables.in_bucket(oid)
            dangling = claim & ~np.isin(oid >> np.uint64(32), have)
            faults += self.faults(np.flatnonzero(dangling) + start, "points into a segment that is not there")
            if self.table == "sites":  # in the index, rows may wait for their bucket in contrib
                nowhere = ~claim & (oid != np.uint64(NO_OID))
                faults += self.faults(np.flatnonzero(nowhere) + start, "is not the oid of a bucket")
            piece, count = np.unique(oid[claim & ~dangling] >> np.uint64(PIECE_BITS), return_counts=True)
            pieces.update(dict(zip(piece.tolist(), count.tolist(), strict=True)))
        return pieces, faults

    def claims(self, low: int, high: int) -> _Claims:
        """The claims of these oids, in the order of oids."""
        rows, oids = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        for start, oid in self._oids():
            rows_here = np.flatnonzero((oid >= np.uint64(low)) & (oid < np.uint64(high)))
            rows.append(rows_here + start)
            oids.append(oid[rows_here])
        row, oid = np.concatenate(rows), np.concatenate(oids)
        order = np.argsort(oid, kind="stable")
        return _Claims(self, row[order], oid[order])

    def faults(self, rows: I64, what: str, column: str = "", width: int = 8) -> Iterator[Fault]:
        """A fault of this column, or of another one of its table, for each of these rows."""
        return self.limiter.rows(self.path.with_name(column or self.name), rows, width, what)


@dataclass(frozen=True)
class _Claims:
    """Some claims of one column, in the order of oids."""

    column: _Column
    rows: I64
    oids: U64

    def of(self, part: SegmentPart) -> _Claims:
        first, last = np.searchsorted(self.oids, np.array([part.first, part.end], np.uint64)).tolist()
        return _Claims(self.column, self.rows[first:last], self.oids[first:last])

    def faults(self, bad: Bools, what: str, column: str = "", width: int = 8) -> _StateFaults:
        for fault in self.column.faults(self.rows[bad], what, column, width):
            yield self.column.state, fault

    def claimed_twice(self) -> _StateFaults:
        twice = np.zeros(len(self.oids), np.bool_)
        twice[1:] = self.oids[1:] == self.oids[:-1]
        return self.faults(twice, "its bucket is claimed by another row too")

    def judge(self, part: SegmentPart) -> _StateFaults:
        """These claims against the buckets that are there."""
        missing = "no bucket begins there" if self.column.table == "sites" else "no bucket with the row's footprint begins there"
        if not len(part.buckets):
            yield from self.faults(np.ones(len(self.rows), np.bool_), missing)
            return
        places = np.minimum(np.searchsorted(part.buckets["oid"], self.oids), len(part.buckets) - 1)
        good = np.asarray(part.buckets["oid"][places] == self.oids)
        if self.column.table == "sites":
            yield from self.faults(~good, missing)
            return
        here, there = self.column.state.index.take(self.rows, _COMPARED), part.buckets[places]
        good &= (there["site"] == here["site"]) & (there["path"] == here["path"])
        yield from self.faults(~good, missing)
        yield from self.faults(good & (there["length"] != here["size"]), "differs from the length of its bucket", "size", width=4)
        for oid in part.misnamed(places[good], Footprints(self.column.state.control.key)):
            segment, offset = tables.split_oid(oid)
            file = self.column.state.path / names.OBJECTS / names.segment(segment)
            what = "the URL in it has another footprint than its header says"
            for fault in self.column.limiter.single(Fault(file, offset, what), what):
                yield self.column.state, fault
        good &= here["digest"] != 0
        good[good] = part.digests(places[good]) != here["digest"][good]
        yield from self.faults(good, "differs from the digest in its bucket", "digest")


class _Segments:
    """The segments of all states, one for each file however many links it has, swept in the order of oids."""

    def __init__(self) -> None:
        # The number is part of the key because it is part of an oid.
        self._files: dict[tuple[int, int, int], list[State]] = {}
        self._scans: dict[tuple[int, int, int], SegmentScan | None] = {}  # None: it cannot be read any further

    def add(self, state: State) -> None:
        for number in state.segments():
            file = (state.path / names.OBJECTS / names.segment(number)).stat()
            self._files.setdefault((number, file.st_dev, file.st_ino), []).append(state)

    def judge(self, claims: Sequence[_Claims], high: int, tick: Callable[[int], object]) -> _StateFaults:
        """All claims of oids below `high` that were not judged before."""
        for key in sorted(self._files):
            if key[0] << 32 >= high:
                break
            states = self._files[key]
            affected = [claim for claim in claims if any(claim.column.state is state for state in states)]
            try:
                for part in self._parts(key, high):
                    for claim in affected:
                        yield from claim.of(part).judge(part)
                    tick(int(part.buckets["length"].sum()))
            except Corruption as error:
                self._scans[key] = None
                for state in states:
                    yield state, _same_place(state, error)
            if high >= key[0] + 1 << 32:
                self._forget(key)

    def _parts(self, key: tuple[int, int, int], high: int) -> Iterator[SegmentPart]:
        if key not in self._scans:
            paths = [state.path / names.OBJECTS for state in reversed(self._files[key])]
            there = (path for path in paths if (path / names.segment(key[0])).exists())  # a state may have been deleted since
            self._scans[key] = SegmentScan(next(there, paths[0]), key[0])
        scan = self._scans[key]
        return scan.parts(high) if scan is not None else iter(())

    def _forget(self, key: tuple[int, int, int]) -> None:
        del self._files[key]
        scan = self._scans.pop(key, None)
        if scan is not None:
            scan.close()


def _same_place(state: State, error: Corruption) -> Fault:
    """What was found in a segment of another state, said of this one's, which is the same file."""
    directory = state.path / names.OBJECTS
    return Fault(directory / Path(error.path or "").name, error.offset, error.what)
