from __future__ import annotations

import numpy as np

from shepherd.cycle.common.new_sites import find_new_sites, site_rows
from shepherd.formats.tables import I64, NO_LIMIT, NO_OID, SITES, U64, is_resolved

KNOWN = np.array([10, 20, 30], np.uint64)
CHECKS = np.array([1, 2, 3], np.uint64)


def checks_of(rows: I64) -> U64:
    return CHECKS[rows]


def find(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    site, check = (np.array([pair[i] for pair in pairs], np.uint64) for i in range(2))
    found = find_new_sites(KNOWN, checks_of, site, check)
    return found.new.tolist(), found.refused.tolist()


def test_new_sites_come_once_and_sorted() -> None:
    assert find([(40, 8), (20, 2), (15, 7), (40, 8)]) == ([2, 0], [])


def test_name_with_a_footprint_in_use_is_refused_and_not_merged() -> None:
    assert find([(20, 99), (20, 2)]) == ([], [0])


def test_two_new_names_with_one_footprint_do_not_depend_on_who_came_first() -> None:
    assert find([(40, 8), (40, 5)]) == ([1], [0])
    assert find([(40, 5), (40, 8)]) == ([0], [1])


def test_nothing_contributed() -> None:
    assert find([]) == ([], [])


def test_a_new_site_has_no_address_no_robots_file_and_no_limits() -> None:
    rows = site_rows(np.array([0xABCDEF0123456789], np.uint64), np.array([1], np.uint64))
    assert {name: column.dtype.str.lstrip("|") for name, column in rows.items()} == SITES
    assert not is_resolved(int(rows["qkey"][0]))
    assert rows["robots_oid"][0] == NO_OID
    assert rows["soft_limit"][0] == rows["hard_limit"][0] == rows["delay_ms"][0] == NO_LIMIT
