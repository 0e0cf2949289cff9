"""Drives the ranking of a closed state: reads its links, takes turns until the ranks stand still, and writes weights as feedback.

The state is only read. Of all rows no more is held in private memory than two bytes each; what a turn needs of the turn before
is put aside. Read cycle/rank/rules.py first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from shepherd.arrays.column_spill import ColumnSpill
from shepherd.arrays.largest import Largest
from shepherd.arrays.partitions import Tick, no_progress, whole_norms
from shepherd.arrays.scratch import Scratch
from shepherd.arrays.spill import Spill
from shepherd.config import Config
from shepherd.cycle.rank import graph as rank_graph
from shepherd.cycle.rank import links as rank_links
from shepherd.cycle.rank import rules as rank
from shepherd.cycle.rank.graph import Graph
from shepherd.cycle.rank.links import GraphNodes, LinkReader
from shepherd.errors import NothingToDo
from shepherd.filters import load_filter
from shepherd.formats.feedback import FEEDBACK, FeedbackFlag
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import I64, U16, U64, Records
from shepherd.readers import search
from shepherd.readers.stats import WEIGHT_SHIFT
from shepherd.store.state.directory import State

READ: Final = (*rank.READ, "site", "weight")


@dataclass(frozen=True)
class RankOptions:
    """How ranks are computed."""

    damping: float = 0.85
    iterations: int = 100
    tolerance: float = 1e-6  # of all rank: a turn that moves less is the last
    top: int = 10


@dataclass
class RankResult:
    """Figures of one ranking."""

    rows: int
    documents: int
    buckets: int
    links: int
    unknown: int  # links that lead to no document with a rank
    dangling: int  # documents without links
    turns: int
    change: float  # by the last turn, of all rank
    changed: int = 0  # rows that get another weight
    weights: I64 = field(default_factory=lambda: np.zeros(1 << 16 - WEIGHT_SHIFT, np.int64))  # documents by weight
    best: Largest = field(default_factory=lambda: Largest(0))  # rows by rank

    def top(self, state: State, insert_weight: int) -> Iterator[dict[str, Any]]:
        """The documents with the largest ranks: `times_mean` is their rank, with that of a mean document as 1."""
        rows, values = self.best.rows, self.best.values
        weight = rank.weights(values.astype(np.uint64), self.documents, insert_weight).tolist()
        for row, value, new, url in zip(rows.tolist(), values.tolist(), weight, search.urls_of(state, rows), strict=True):
            now = state.index["weight"].value(row)
            times = round(value * self.documents / rank.WHOLE, 3)
            yield {"url": (url or b"").decode("ascii"), "times_mean": times, "weight": new, "weight_now": now}


def run(
    state: State,
    config: Config,
    options: RankOptions,
    scratch: Path,
    on_frame: Callable[[bytes], object] = lambda frame: None,
    tick: Tick = no_progress,
    on_turn: Callable[[float], object] = lambda change: None,
) -> RankResult:
    """Rank the documents of a state, with what is put aside in the directory `scratch`.

    `on_frame` gets the frames of feedback, `tick` rows of which the links are read, `on_turn` what each turn has moved.
    """
    with ExitStack() as stack:
        spill = stack.enter_context(Spill(scratch))
        nodes = _mark(state, config.store.partition_rows, scratch)
        documents = sum(int(np.count_nonzero(nodes.stands(*part))) for part in nodes.parts())
        if not documents:
            raise NothingToDo(f"state {state.name} has no document that could have a rank")
        links = LinkReader(state, nodes, load_filter(config.filter_path))
        with ColumnSpill(scratch, rank_links.SPILLED, "norm", _borders(state, nodes)) as column_spill:
            tick(state.index.rows - links.buckets)  # of these nothing is read
            graph = rank_graph.build(state, nodes, links.spill(column_spill, tick), spill, scratch)
        turns = _Turns(graph, nodes, documents, options, scratch)
        result = RankResult(
            rows=state.index.rows,
            documents=documents,
            buckets=links.buckets,
            links=graph.total,
            unknown=graph.unknown,
            dangling=documents - int(np.count_nonzero(graph.links)),
            turns=0,
            change=1.0,
            best=Largest(options.top),
        )
        while result.turns < options.iterations and result.change > options.tolerance:
            result.change = turns.turn()
            result.turns += 1
            on_turn(result.change)
        for start, stop in nodes.parts():
            value = rank.ranks(turns.share[start:stop], graph.links[start:stop])
            records = _records(state, start, stop, value, result, config.merge.insert_weight)
            if len(records):
                on_frame(pack_frame(FrameKind.FEEDBACK, len(records), records.tobytes()))
    return result


def _mark(state: State, step: int, scratch: Path) -> GraphNodes:
    cuts = [0]
    with Scratch(scratch) as file:
        for start, stop in whole_norms(state.index, step):
            file.append(rank_links.mark(state.index.slice(start, stop, rank_links.READ)))
            cuts.append(stop)
        marks = np.frombuffer(file.mapped(), np.uint8) if file.length else np.zeros(0, np.uint8)
    return GraphNodes(marks, np.array(cuts, np.int64))


def _borders(state: State, nodes: GraphNodes) -> U64:
    return np.asarray(state.index["norm"].take(nodes.cuts[1:-1]))


class _Turns:
    """The power iteration. `share` is of each row what one of its links passes on, or its rank where it has none."""

    def __init__(self, graph: Graph, nodes: GraphNodes, documents: int, options: RankOptions, scratch: Path) -> None:
        self._graph, self._nodes, self._documents, self._scratch = graph, nodes, documents, scratch
        self._damping = rank.damping_of(options.damping)
        self.share, self._passed, _moved = self._round(lambda place, links: np.zeros(len(links), np.uint64), 0)

    def turn(self) -> float:
        """One turn; how much of all rank it has moved."""
        before = self.share

        def flow(place: int, _links: U16) -> U64:
            spilled = self._graph.links_to[place]
            return rank.flow_of(before, spilled["source"], spilled["arrivals"])

        self.share, self._passed, moved = self._round(flow, self._passed, before)
        return moved / rank.WHOLE

    def _round(self, flow: Callable[[int, U16], U64], passed: int, before: U64 | None = None) -> tuple[U64, int, int]:
        """New shares, how much they pass on, and how much has moved."""
        base, more, moved = rank.start_over(passed, self._documents, self._damping), 0, 0
        with Scratch(self._scratch) as file:
            for place, (start, stop) in enumerate(self._graph.ranges):
                links = self._graph.links[start:stop]
                share = rank.shares(flow(place, links), self._nodes.stands(start, stop), links, base, self._damping)
                more += rank.passed_on(share, links)
                if before is not None:
                    moved += rank.moved(share, before[start:stop], links)
                file.append(share)
            return np.frombuffer(file.mapped(), np.uint64), more, moved


def _records(state: State, start: int, stop: int, value: U64, result: RankResult, insert_weight: int) -> Records:
    """Feedback for the rows of a partition whose weight changes; figures of all of them go into `result`."""
    index = state.index.slice(start, stop, READ)
    stands = rank.standing(index)
    rows = np.flatnonzero(stands >= 0)
    own = rows[stands[rows] == rows]
    weight = rank.weights(value[stands[rows]], result.documents, insert_weight)
    new = rank.with_protected(weight, index["weight"][rows], index["flags"][rows])
    result.weights += np.bincount(weight[stands[rows] == rows] >> WEIGHT_SHIFT, minlength=len(result.weights))
    result.best = result.best.with_more(own + start, value[own])
    differs = new != index["weight"][rows]
    records = np.zeros(np.count_nonzero(differs), FEEDBACK)
    for name in ("site", "path"):
        records[name] = index[name][rows[differs]]
    records["weight"], records["flags"] = new[differs], FeedbackFlag.WEIGHT
    result.changed += len(records)
    return records
