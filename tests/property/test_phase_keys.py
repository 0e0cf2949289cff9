from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.formats.tables import U64
from shepherd.phases import keys

BITS = st.sampled_from([0, 1, 2, 3, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
TRIPLES = st.lists(st.tuples(BITS, BITS, BITS), max_size=40)


def split(triples: list[tuple[int, int, int]]) -> tuple[U64, U64, U64]:
    norm, path, site = (np.array([triple[i] for triple in triples], np.uint64) for i in range(3))
    return norm, path, site


@given(TRIPLES.map(lambda rows: sorted(set(rows))), TRIPLES)
def test_lookups_agree_with_a_dictionary(rows: list[tuple[int, int, int]], queries: list[tuple[int, int, int]]) -> None:
    norm, path, site = split(rows)
    exact = {row: number for number, row in enumerate(rows)}
    first: dict[tuple[int, int], int] = {}
    for number, row in enumerate(rows):
        first.setdefault(row[:2], number)
    asked = split(queries + rows)
    found = keys.find_rows(norm, path, site, *asked)
    assert found.tolist() == [exact.get(query, -1) for query in queries + rows]
    found = keys.find_equivalent(norm, path, asked[0], asked[1])
    assert found.tolist() == [first.get(query[:2], -1) for query in queries + rows]
    bound = keys.lower_bound(norm, path, site, *asked)
    assert bound.tolist() == [sum(row < query for row in rows) for query in queries + rows]


@given(st.lists(BITS), st.lists(BITS))
def test_sites_and_distinct_keys(values: list[int], queries: list[int]) -> None:
    column = keys.distinct(np.array(values, np.uint64))
    assert column.tolist() == sorted(set(values))
    found = keys.find_sites(column, np.array(queries, np.uint64))
    assert found.tolist() == [sorted(set(values)).index(query) if query in values else -1 for query in queries]


@given(TRIPLES)
def test_order_is_that_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    order = keys.sort_order(*split(rows))
    assert [rows[i] for i in order] == sorted(rows)


def test_a_million_rows_of_one_norm_are_found() -> None:
    """The run of a huge site is bisected like any other, and neighbours that share the top half of their bits are told apart."""
    count = 1_000_000
    path = np.arange(count, dtype=np.uint64) * np.uint64(3) + np.uint64(2**63)
    norm, site = np.full(count, 5, np.uint64), np.full(count, 9, np.uint64)
    rows = np.arange(0, count, 997)
    queries = path[rows]
    same = np.full(len(rows), 5, np.uint64), np.full(len(rows), 9, np.uint64)
    assert np.array_equal(keys.find_rows(norm, path, site, same[0], queries, same[1]), rows)
    assert (keys.find_rows(norm, path, site, same[0], queries + np.uint64(1), same[1]) == -1).all()


@given(st.lists(st.integers(0, 3)).map(sorted))
def test_ranks_count_within_a_run(values: list[int]) -> None:
    ranks = keys.run_ranks(keys.run_starts(np.array(values)))
    assert ranks.tolist() == [values[:position].count(value) for position, value in enumerate(values)]
