"""The links of a state, read from the buckets of its documents and put aside by the normalised site that they lead to.

Of a redirect the link is its target; of a page that calls another URL its own, that URL, if it is known. Of all others the links
are those that the reaper has kept, so none that the page asked not to follow. Buckets are read in the order of the segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.column_spill import ColumnSpill, SpilledRows
from shepherd.arrays.keys import with_flag
from shepherd.arrays.partitions import Tick
from shepherd.cycle.common.norms import norm_map
from shepherd.cycle.rank import rules as rank
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.attributes import MAX_LINKS, TABLE
from shepherd.formats.tables import I64, U64, Array, Bools, Flag, RowType, in_bucket
from shepherd.readers import search
from shepherd.readers.segments import Part, Segment
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import parse

SPILLED: Final = {"norm": "<u8", "path": "<u8", "source": "<u4"}
READ: Final = (*rank.READ, "oid", "gathered")
STANDS: Final = 1  # marks of rows
SPEAKS: Final = 2
_LINK_BYTES: Final = TABLE["L"].unit
_MOST_BYTES: Final = MAX_LINKS * _LINK_BYTES


@dataclass(frozen=True)
class GraphNodes:
    """Which rows stand for a document, and which of them have a bucket in which links may be."""

    marks: Array
    cuts: I64  # where partitions begin, with the end behind them

    def parts(self) -> Iterator[tuple[int, int]]:
        yield from zip(self.cuts[:-1].tolist(), self.cuts[1:].tolist(), strict=True)

    def stands(self, start: int, stop: int) -> Bools:
        return np.asarray((self.marks[start:stop] & STANDS) != 0)


def mark(index: dict[str, Array]) -> Array:
    """The marks of one partition."""
    stands = rank.standing(index) == np.arange(len(index["norm"]))
    full = (index["type"] == RowType.GATHERED) | (index["gathered"] > 0) | with_flag(index["flags"], Flag.REDIRECT)
    return np.asarray((stands * np.uint8(STANDS)) | ((stands & full & in_bucket(index["oid"])) * np.uint8(SPEAKS)))


class LinkReader:
    """Reads the links of the documents of a state."""

    def __init__(self, state: State, nodes: GraphNodes, filters: Filter) -> None:
        self._state, self._nodes, self._filters = state, nodes, filters
        self._norms = norm_map(state.equiv, state.prints)
        self._counts = search.count(state, self._pieces)

    @property
    def buckets(self) -> int:
        """How many are read."""
        return int(self._counts.sum())

    def spill(self, spill: ColumnSpill, tick: Tick) -> SpilledRows:
        """Put all links aside; those of one page always together."""
        for rows, segment, part in search.read(self._state, self._pieces, self._counts):
            spill.add(self._links(rows, segment, part))
            tick(len(rows))
        return spill.settle()

    def _pieces(self) -> Iterator[I64]:
        for start, stop in self._nodes.parts():
            yield np.flatnonzero(self._nodes.marks[start:stop] & SPEAKS) + start

    def _links(self, rows: I64, segment: Segment, part: Part) -> dict[str, Array]:
        attributes = segment.contents(part, b"LEK")
        flags = self._state.index["flags"].take(rows)
        moved = np.flatnonzero(with_flag(flags, Flag.REDIRECT))
        elsewhere = np.flatnonzero(with_flag(flags, Flag.ELSEWHERE) & ~with_flag(flags, Flag.REDIRECT))
        here, norm, path = self._targets(moved, [attributes["E"][n] for n in moved.tolist()])
        there, to_norm, to_path = self._targets(elsewhere, [attributes["K"][n] for n in elsewhere.tolist()])
        is_known = self._is_known(rows[there], to_norm, to_path)
        there, to_norm, to_path = there[is_known], to_norm[is_known], to_path[is_known]
        for n in (*moved.tolist(), *there.tolist()):
            attributes["L"][n] = b""
        texts = [text[:_MOST_BYTES] for text in attributes["L"]]
        counts = np.fromiter(map(len, texts), np.int64, len(texts)) // _LINK_BYTES
        if any(len(text) % _LINK_BYTES for text in texts):  # of no reaper of ours
            texts = [text[: count * _LINK_BYTES] for text, count in zip(texts, counts.tolist(), strict=True)]
        pairs = np.frombuffer(b"".join(texts), "<u8").reshape(-1, 2)
        return {
            "norm": np.concatenate([self._norms.of_norms(pairs[:, 0]), norm, to_norm]),
            "path": np.concatenate([pairs[:, 1], path, to_path]),
            "source": np.concatenate([np.repeat(rows, counts), rows[here], rows[there]]).astype(np.uint32),
        }

    def _targets(self, places: I64, texts: list[bytes]) -> tuple[I64, U64, U64]:
        """The footprints of URLs as the filter leaves them, of those that are URLs, and whose they are."""
        targets: list[tuple[int, int, int]] = []
        for place, text in zip(places.tolist(), texts, strict=True):
            try:
                url = parse(self._filters.strip(parse(text.decode("utf-8", "replace")).href))
            except BadUrl:
                continue
            targets.append((place, *self._state.prints.of(url)[:2]))
        columns = np.array(targets, np.uint64).reshape(-1, 3)
        return columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2]

    def _is_known(self, rows: I64, norm: U64, path: U64) -> Bools:
        """Whether URLs are those of documents with a rank, and of others than these rows are."""
        here = self._state.index.take(rows, ("norm", "path"))
        is_other: Bools = (here["norm"] != norm) | (here["path"] != path)
        for n in np.flatnonzero(is_other).tolist():
            rows_of_url = lookup.rows_of(self._state, int(norm[n]), int(path[n]))
            is_other[n] = bool((self._nodes.marks[rows_of_url.start : rows_of_url.stop] & STANDS).any())
        return is_other
