from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays import keys
from shepherd.arrays.distinct_urls import Paths, find_known
from shepherd.formats.tables import U64

BITS = st.sampled_from([0, 1, 2, 3, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
TRIPLES = st.lists(st.tuples(BITS, BITS, BITS), max_size=40)


def split(triples: list[tuple[int, int, int]]) -> tuple[U64, U64, U64]:
    norm, path, site = (np.array([triple[i] for triple in triples], np.uint64) for i in range(3))
    return norm, path, site


@given(TRIPLES.map(lambda rows: sorted(set(rows))), TRIPLES, st.sampled_from([0, keys.ROWS_FOR_A_QUERY]))
def test_lookups_agree_with_a_dictionary(
    rows: list[tuple[int, int, int]], queries: list[tuple[int, int, int]], rows_for_a_query: int
) -> None:
    norm, path, site = split(rows)
    exact = {row: number for number, row in enumerate(rows)}
    asked = split(queries + rows)
    with mock.patch.object(keys, "ROWS_FOR_A_QUERY", rows_for_a_query):  # with 0 step by step, however many are asked for
        found = keys.find_rows(norm, path, site, *asked)
        bound = keys.lower_bound(norm, path, site, *asked)
    assert found.tolist() == [exact.get(query, -1) for query in queries + rows]
    assert bound.tolist() == [sum(row < query for row in rows) for query in queries + rows]


@given(TRIPLES.map(lambda rows: sorted(set(rows))), TRIPLES)
def test_document_has_the_norm_and_path_and_a_special_one_the_site_too(
    rows: list[tuple[int, int, int]], queries: list[tuple[int, int, int]]
) -> None:
    paths = Paths(robots=3, root=2**63)
    first: dict[tuple[int, ...], int] = {}
    for number, row in enumerate(rows):
        first.setdefault(row if row[1] in (3, 2**63) else row[:2], number)
    names = ("norm", "path", "site")
    asked = dict(zip(names, split(queries + rows), strict=True))
    known, place = find_known(dict(zip(names, split(rows), strict=True)), asked, paths)
    assert known.tolist() == [first.get(query, first.get(query[:2], -1)) for query in queries + rows]
    new = [number for number, row in enumerate(known) if row < 0]
    assert [place[number] for number in new] == [sum(row < (queries + rows)[number] for row in rows) for number in new]


@given(st.lists(BITS), st.lists(BITS))
def test_sites_and_distinct_keys(values: list[int], queries: list[int]) -> None:
    column = keys.distinct(np.array(values, np.uint64))
    assert column.tolist() == sorted(set(values))
    found = keys.find_sites(column, np.array(queries, np.uint64))
    assert found.tolist() == [sorted(set(values)).index(query) if query in values else -1 for query in queries]


@given(TRIPLES)
def test_order_is_that_of_tuples(rows: list[tuple[int, int, int]]) -> None:
    order = keys.sort_order(*split(rows))
    assert order.tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


def test_lookup_in_a_million_rows_of_one_norm() -> None:
    """The run of a huge site is bisected like any other, and neighbours that share the top half of their bits are distinct."""
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
