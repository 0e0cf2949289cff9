"""Looking keys up, and putting them in order, by ways that are fast where keys are evenly spread: and right wherever they are."""

from __future__ import annotations

import bisect

import numpy as np
import pytest

from shepherd.arrays.keys import find_servers, stable_order
from shepherd.arrays.lookup import Lookup, ranges_of
from shepherd.formats.tables import U64

LARGEST = 2**64 - 1


def spread(count: int) -> U64:
    return np.random.default_rng(count).integers(0, LARGEST, count, np.uint64, endpoint=True)


COLUMNS = {
    "none": [],
    "one": [5],
    "the ends": [0, LARGEST],
    "even": spread(3_000).tolist(),
    "neighbours": list(range(2**63 - 500, 2**63 + 500)),
    "at both ends": [*range(400), *range(LARGEST - 400, LARGEST + 1)],
    "addresses": [*(4 << 56 | int(n) >> 32 for n in spread(2_000)), *(0x7F << 56 | n for n in range(50))],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_lookup_returns_the_row_of_each_key_and_of_no_other(name: str) -> None:
    keys = np.array(sorted(set(COLUMNS[name])), np.uint64)
    asked = [*keys.tolist(), *(int(key) ^ 1 for key in keys), 0, 1, LARGEST, LARGEST - 1, *spread(100).tolist()]
    queries = np.random.default_rng(1).permutation(np.array(asked, np.uint64))
    row = {key: place for place, key in enumerate(keys.tolist())}
    expected = [row.get(query, -1) for query in queries.tolist()]
    assert Lookup(keys).find(queries).tolist() == expected
    assert find_servers(keys, queries).tolist() == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_a_key_is_in_the_range_of_the_last_split_that_is_not_above_it(name: str) -> None:
    splits = np.array(sorted(set(COLUMNS[name])), np.uint64)
    asked = [*splits.tolist(), *(int(key) ^ 1 for key in splits), 0, 1, LARGEST, LARGEST - 1, *spread(100).tolist()]
    expected = [bisect.bisect_right(splits.tolist(), key) for key in asked]
    assert ranges_of(splits, np.array(asked, np.uint64)).tolist() == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_equal_keys_keep_their_order_and_close_ones_are_sorted(name: str) -> None:
    keys = np.random.default_rng(2).permutation(np.array(COLUMNS[name] * 2, np.uint64))
    assert stable_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()
