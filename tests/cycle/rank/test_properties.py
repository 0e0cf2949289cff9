"""Ranks against networkx, and the rest of the ranking against plain dictionaries."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cycle.rank import rules as rank
from shepherd.formats.tables import INDEX, Flag, RowType
from tests.support.random_rows import Row, columns, index_rows

HEARD = (RowType.SLEEPING, RowType.UNGATHERED, RowType.GATHERED)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, set[tuple[int, int]]]:
    """Some documents and their links: pages without links, to themselves and in circles are among them."""
    count = draw(st.integers(1, 12))
    place = st.integers(0, count - 1)
    return count, draw(st.sets(st.tuples(place, place), max_size=40))


def by_turns(count: int, links: set[tuple[int, int]], damping: float, step: int) -> list[float]:
    """The ranks by the functions of the phase, all rows in one range."""
    source, target = np.array(sorted(links), np.int64).reshape(-1, 2).T
    found = rank.distinct_links(source.astype(np.uint32), target, 0)
    own = np.bincount(rank.sources_of(found), minlength=count).astype(np.uint16)
    arrivals = np.bincount(rank.targets_of(found), minlength=count).astype(np.uint32)
    stands, share = np.ones(count, np.bool_), np.full(count, rank.WHOLE // count, np.uint64) // np.maximum(own, 1)
    for _turn in range(400):
        flow = rank.flow_of(share, rank.sources_of(found), arrivals, step)
        base = rank.start_over(rank.passed_on(share, own), count, rank.damping_of(damping))
        before, share = share, rank.shares(flow, stands, own, base, rank.damping_of(damping))
        if rank.moved(share, before, own) < rank.WHOLE >> 50:
            break
    return [value / rank.WHOLE for value in rank.ranks(share, own).tolist()]


def by_networkx(count: int, links: set[tuple[int, int]], damping: float) -> list[float]:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from((source, target) for source, target in links if source != target)
    found = networkx.pagerank(graph, alpha=damping, max_iter=1_000, tol=1e-13)
    return [found[node] for node in range(count)]


@given(graphs(), st.sampled_from([0.0, 0.5, 0.85, 0.95]), st.integers(1, 9))
def test_ranks_are_those_of_networkx(graph: tuple[int, set[tuple[int, int]]], damping: float, step: int) -> None:
    assert by_turns(*graph, damping, step) == pytest.approx(by_networkx(*graph, damping), rel=1e-7)


@given(graphs(), st.integers(1, 9))
def test_order_of_adding_does_not_change_a_bit(graph: tuple[int, set[tuple[int, int]]], step: int) -> None:
    assert by_turns(*graph, 0.85, step) == by_turns(*graph, 0.85, 1 << 18)


@given(index_rows())
def test_row_that_stands_for_a_document_is_its_best(rows: list[Row]) -> None:
    found = rank.standing(columns(INDEX, rows)).tolist()
    for at, row in enumerate(rows):
        ranked = [
            n
            for n, other in enumerate(rows)
            if (other["norm"], other["path"]) == (row["norm"], row["path"])
            and other["type"] in HEARD
            and not other["flags"] & Flag.ROBOTS
        ]
        best = min(
            ranked,
            key=lambda n: (rows[n]["type"] != RowType.GATHERED, bool(rows[n]["flags"] & Flag.REDIRECT), n),
            default=-1,
        )
        unclear = best >= 0 and rows[best]["type"] != RowType.GATHERED  # a redirect that was not gathered is nothing special
        assert found[at] == ((ranked[0] if unclear else best) if at in ranked else -1)


@given(index_rows(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_link_leads_to_its_document(rows: list[Row], wanted: list[tuple[int, int]]) -> None:
    index = columns(INDEX, rows)
    stands = rank.standing(index) == np.arange(len(rows))
    known = {(row["norm"], row["path"]): at for at, row in enumerate(rows) if stands[at]}
    asked = [(row["norm"], row["path"]) for row in rows] + wanted
    norm, path = np.array(asked, np.uint64).reshape(-1, 2).T
    found = rank.Documents(index["norm"], index["path"], stands).find(norm.copy(), path.copy())
    assert found.tolist() == [known.get(one, -1) for one in asked]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), max_size=30), st.integers(0, 3))
def test_link_counts_once_and_not_to_its_own_page(links: list[tuple[int, int]], start: int) -> None:
    source, target = np.array(links, np.int64).reshape(-1, 2).T
    found = rank.distinct_links(source.astype(np.uint32), target, start)
    pairs = list(zip(rank.sources_of(found).tolist(), rank.targets_of(found).tolist(), strict=True))
    assert pairs == sorted({(s, t) for s, t in links if t >= 0 and t + start != s}, key=lambda pair: (pair[1], pair[0]))


@given(st.integers(0, (1 << 62) - 1), st.integers(0, 1 << rank.DAMPING_BITS))
def test_damping_does_not_overflow(flow: int, damping: int) -> None:
    assert rank.damped(np.array([flow], np.uint64), damping).tolist() == [flow * damping >> rank.DAMPING_BITS]


@given(st.lists(st.integers(1, 1 << 62), min_size=2, max_size=9), st.integers(1, 1 << 28))
def test_larger_rank_does_not_weigh_less(values: list[int], documents: int) -> None:
    weights = rank.weights(np.array(sorted(values), np.uint64), documents, 40_000).tolist()
    assert weights == sorted(weights)


@pytest.mark.parametrize("documents", [1, 7, 1_000, 10_000_000])
def test_scale_moves_with_the_number_of_documents(documents: int) -> None:
    mean = rank.WHOLE // documents
    values = [min(mean << doublings, rank.WHOLE) for doublings in (0, 1, 4) if mean << doublings < 1 << 63]
    weights = rank.weights(np.array(values, np.uint64), documents, 40_000).tolist()
    assert weights[0] == 40_000 - 4 * 2_048
    if documents >= 16:
        assert weights[1:] == [40_000 - 3 * 2_048, 40_000]


def test_what_an_operator_chose_keeps_its_weight() -> None:
    new, before = np.array([5, 5, 5, 9], np.uint16), np.array([7, 7, 7, 7], np.uint16)
    flags = np.array([0, Flag.INITIAL, Flag.PINNED, Flag.INITIAL], np.uint16)
    assert rank.with_protected(new, before, flags).tolist() == [5, 7, 7, 9]
