"""The graph of a state's documents: for each the pages that link to it, put aside in the order in which every turn reads them.

Links come by the normalised site that they lead to, a partition at a time, so each is looked up among few rows. What a partition
gets is cut where more links would be held than MOST_LINKS, or at one document. Memory: two bytes a row, and such a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.arrays.column_spill import SpilledRows
from shepherd.arrays.scratch import Scratch, put_aside
from shepherd.arrays.spill import SealedSpill, Spill
from shepherd.cycle.rank import rules as rank
from shepherd.cycle.rank.links import GraphNodes
from shepherd.formats.tables import U16, U32, U64, Array
from shepherd.store.state.directory import State

MOST_LINKS: Final = 1 << 24
SOME_LINKS: Final = 1 << 21  # looked up at a time, at least


class Graph:
    """`ranges` of rows, and of each range the links to its rows: `source` and `arrivals`, as rank.flow_of takes them."""

    def __init__(self) -> None:
        self.links_to: SealedSpill
        self.ranges: list[tuple[int, int]] = []
        self.links: U16 = np.zeros(0, np.uint16)  # that each row has
        self.total = 0
        self.unknown = 0  # links that lead to nothing that has a rank


def build(state: State, nodes: GraphNodes, links_in: SpilledRows, spill: Spill, scratch: Path) -> Graph:
    """Put the links aside in `spill`; `links_in` are all links by the partition that they lead to."""
    graph, links = Graph(), np.zeros(state.index.rows, np.uint16)
    for part, (start, stop) in enumerate(nodes.parts()):
        index = state.index.slice(start, stop, ("norm", "path"))
        documents = rank.Documents(index["norm"], index["path"], nodes.stands(start, stop))
        arrivals = np.zeros(stop - start, np.uint32)
        with Scratch(scratch) as file:
            lengths = []
            for some in links_in.read_some(part, SOME_LINKS):
                target = documents.find(some["norm"], some["path"])
                graph.unknown += int(np.count_nonzero(target < 0))
                distinct = rank.distinct_links(some["source"], target, start)
                np.add.at(links, rank.sources_of(distinct), np.uint16(1))
                arrivals += np.bincount(rank.targets_of(distinct), minlength=stop - start).astype(np.uint32)
                file.append(distinct)
                lengths.append(len(distinct))
            chunks = _chunks(file, lengths)
            for first, last in ranges(arrivals, MOST_LINKS):
                source = rank.sources_of(_joined(chunks, first, last))
                spill.add({"source": source, "arrivals": arrivals[first:last]})
                graph.ranges.append((start + first, start + last))
                graph.total += len(source)
    graph.links_to = spill.seal()
    graph.links = put_aside(links, scratch)
    return graph


def ranges(arrivals: U32, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that together have at most so many links, or are one row."""
    ends = np.cumsum(arrivals, dtype=np.int64)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield first, last
        first = last


def _chunks(file: Scratch, lengths: list[int]) -> list[U64]:
    if not file.length:
        return []
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    whole: Array = np.frombuffer(file.mapped(), np.uint64)
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _joined(chunks: list[U64], first: int, last: int) -> U64:
    """The links to some rows, in order; each of the chunks is in order."""
    borders = np.array([first, last], np.uint64) << np.uint64(32)
    parts = [np.zeros(0, np.uint64)]
    for chunk in chunks:
        low, high = np.searchsorted(chunk, borders).tolist()
        parts.append(chunk[low:high])
    links = np.concatenate(parts)
    links.sort()
    return links
