"""The site table in memory, and what a new site begins with."""

from __future__ import annotations

import numpy as np

from shepherd.cycle.common.site_table import Sites, add_sites, site_rows
from shepherd.filters import parse_filter
from shepherd.formats.tables import NO_LIMIT, NO_OID, SITES, U64, is_resolved


def test_new_sites_come_to_stand_in_their_places_with_their_names() -> None:
    def column(*values: int) -> U64:
        return np.array(values, np.uint64)

    known = Sites(site_rows(column(10, 30), column(1, 3)), [b"http://a", b"http://c"])
    found = add_sites(known, column(40, 20), column(4, 2), [b"http://d", b"http://b"], parse_filter(""))
    assert found.columns["site"].tolist() == [10, 20, 30, 40]
    assert found.columns["norm"].tolist() == [1, 2, 3, 4]
    assert found.names == [b"http://a", b"http://b", b"http://c", b"http://d"]
    assert add_sites(known, column(), column(), [], parse_filter("")) is known


def test_a_new_site_has_no_address_no_robots_file_and_no_limits() -> None:
    rows = site_rows(np.array([0xABCDEF0123456789], np.uint64), np.array([1], np.uint64))
    assert {name: column.dtype.str.lstrip("|") for name, column in rows.items()} == SITES
    assert not is_resolved(int(rows["qkey"][0]))
    assert rows["robots_oid"][0] == NO_OID
    assert rows["soft_limit"][0] == rows["hard_limit"][0] == rows["delay_ms"][0] == NO_LIMIT
