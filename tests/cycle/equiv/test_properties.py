"""Rows that get another norm, against lists; and the map of norms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.distinct_urls import Paths
from shepherd.cycle.common.norms import norm_map, sites_named, version_of
from shepherd.cycle.equiv.rules import rejoin
from shepherd.equiv import parse_equiv
from shepherd.formats.tables import INDEX, SACRED, Flag, Reason, RowType
from shepherd.urls import Footprints, parse
from tests.support.random_rows import FIRSTS, ROBOTS_PATH, ROOT_PATH, Row, columns, index_rows, key, rows_of

PATHS = Paths(ROBOTS_PATH, ROOT_PATH)
STATE = 9


def rank(row: Row) -> int:
    """What an operator asked to go stands for its document."""
    return {Reason.PURGED: 0, Reason.DELETED: 1}.get(Reason(row["reason"]), 2) if row["type"] == RowType.FORGOTTEN else 2


def document(row: Row) -> tuple[int, ...]:
    return key(row) if row["path"] in (ROBOTS_PATH, ROOT_PATH) else (row["norm"], row["path"])


def naive(rows: list[Row]) -> list[Row]:
    """The best row of each document, with what it inherits."""
    found = []
    for name in {document(row) for row in rows}:
        same = sorted(
            (row for row in rows if document(row) == name),
            key=lambda row: (
                *(rank(row), row["type"] != RowType.GATHERED, row["site"] not in FIRSTS.tolist()),
                *(not row["flags"] & SACRED, -row["weight"], row["site"]),
            ),
        )
        best = dict(same[0])
        if len(same) > 1:
            best["weight"] = max(row["weight"] for row in same)
            best["touched"] = STATE
            for row in same:
                best["flags"] |= row["flags"] & (Flag.INITIAL | Flag.PINNED)
        found.append(best)
    return sorted(found, key=key)


@given(index_rows(), st.sampled_from([(10, 11), (11, 10), (10, 2**63 + 1), (2**63 + 1, 10)]))
def test_joined_sites_agree_with_a_dictionary(index: list[Row], move: tuple[int, int]) -> None:
    index = naive(index)  # an index has a document once
    old, new = move
    moved = sorted((row | {"norm": new, "touched": STATE} for row in index if row["norm"] == old), key=key)
    gone = np.array([n for n, row in enumerate(index) if row["norm"] == old], np.int64)
    result = rejoin(columns(INDEX, index), gone, columns(INDEX, moved), PATHS, FIRSTS, state=STATE)
    expected = naive([row for row in index if row["norm"] != old] + moved)
    assert rows_of(result.columns) == expected
    assert len(result.joined) == len(index) - len(expected)
    for tally, rows in ((result.before, index), (result.after, expected)):
        assert tally.site.tolist() == sorted({row["site"] for row in rows})
        assert tally.documents.tolist() == [sum(row["site"] == site for row in rows) for site in tally.site.tolist()]


TABLE = "a.example b.example c.example:8080\napart d.example\n"
NAMES = ("a.example", "b.example", "c.example:8080", "c.example", "d.example", "e.example")


@given(st.sampled_from(NAMES), st.booleans(), st.booleans())
def test_mapped_norm_is_that_of_the_name(name: str, www: bool, https: bool) -> None:
    url = parse(f"http{'s' if https else ''}://{'www.' if www else ''}{name}/")
    equiv, key_ = parse_equiv(TABLE), bytes(range(16))
    implicit, by_table = Footprints(key_), Footprints(key_, equiv.norm_of)
    norm, site = (np.array([half], np.uint64) for half in (implicit.norm(url.site), implicit.half(url.site)))
    (mapped,) = norm_map(equiv, implicit).apply(norm, site).tolist()
    assert mapped == by_table.norm(url.site)
    if mapped != implicit.norm(url.site):
        assert url.site in sites_named(equiv)


def test_table_of_comments_is_no_table() -> None:
    assert version_of(parse_equiv("# nothing\n")) == 0
    assert version_of(parse_equiv(TABLE)) == parse_equiv(TABLE).version != 0
