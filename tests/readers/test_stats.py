"""What `shep stats`, `shep top` and `shep sites` compute over columns, beside loops over rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays import site_types as sitetypes
from shepherd.arrays.largest import Largest
from shepherd.formats.tables import INDEX, Flag, RowType
from shepherd.readers import stats

EDGES = (10, 100)
SMALL = st.integers(0, 5) | st.sampled_from((200, 255))
ROW = st.fixed_dictionaries(
    dict.fromkeys(("type", "reason", "section", "status"), SMALL)
    | {"flags": st.integers(0, 7), "weight": st.integers(0, 65_535), "checked": st.integers(0, 2_000), "size": st.integers(0, 9)}
)
NOW = st.integers(0, 3_000)


def age_of(checked: int, now: int) -> int:
    if not checked:
        return len(EDGES) + 1
    return next((place for place, edge in enumerate(EDGES) if now - checked < edge), len(EDGES))


def counted(values: list[int], length: int) -> list[int]:
    counts = Counter(values)
    return [counts[value] for value in range(length)]


@given(st.lists(st.lists(ROW, max_size=20), max_size=3), NOW)
def test_partitions_add_up_to_the_counts_of_a_loop(parts: list[list[dict[str, int]]], now: int) -> None:
    found = stats.none(EDGES)
    for part in parts:
        columns = {name: np.array([row[name] for row in part], INDEX[name]) for name in stats.COLUMNS}
        found += stats.count(columns, now, EDGES)
    rows = [row for part in parts for row in part]
    pages = [row for row in rows if not row["flags"] & Flag.ROBOTS]
    assert (found.rows, found.robots) == (len(rows), len(rows) - len(pages))
    assert found.stored_bytes == sum(row["size"] for row in rows)
    for column, counts in (("type", found.types), ("reason", found.reasons), ("section", found.sections)):
        assert counts.tolist() == counted([row[column] for row in pages], 256)
    assert found.statuses.tolist() == counted([row["status"] for row in pages], 65_536)
    assert found.weights.tolist() == counted([row["weight"] // 4_096 for row in pages], 16)
    assert found.ages.tolist() == counted([age_of(row["checked"], now) for row in pages], len(EDGES) + 2)


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=6), st.integers(1, 8), st.randoms(use_true_random=False))
def test_largest_are_those_of_a_sort(parts: list[list[int]], limit: int, random: object) -> None:
    values = [value for part in parts for value in part]
    order = list(range(len(values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    best, at = Largest(limit), 0
    for part in parts:
        rows = np.array(order[at : at + len(part)], np.int64)
        best = best.with_more(rows, np.array([values[row] for row in rows], np.uint16))
        at += len(part)
    expected = sorted(order, key=lambda row: (-values[row], row))[:limit]
    assert best.rows.tolist() == expected
    assert best.values.tolist() == [values[row] for row in expected]


SITES = np.array([2, 3, 5, 9], np.uint64)
ROW_OF_SITE = st.fixed_dictionaries(
    {
        "site": st.sampled_from((2, 3, 4, 9)),  # 4 is in no table
        "type": st.sampled_from((RowType.GATHERED, RowType.ERROR)),
        "reason": st.sampled_from((0, 1, 255)),
        "flags": st.sampled_from((0, Flag.ROBOTS, Flag.PINNED)),
    }
)


@given(
    st.lists(st.lists(ROW_OF_SITE, max_size=12), max_size=4), st.integers(1, 3), st.sampled_from((1, 7, sitetypes.UNCOUNTED_ROWS))
)
def test_errors_and_types_of_sites_are_those_of_a_loop(parts: list[list[dict[str, int]]], limit: int, held: int) -> None:
    errors, types = sitetypes.Errors(uncounted_rows=held), np.zeros((len(SITES), sitetypes.TYPES), np.int64)
    for part in parts:
        columns = {name: np.array([row[name] for row in part], INDEX[name]) for name in sitetypes.ERROR_COLUMNS}
        errors, types = errors.with_more(SITES, columns), types + sitetypes.types_of_sites(SITES, columns)
    places = {site: place for place, site in enumerate(SITES.tolist())}
    pages = [row for part in parts for row in part if not row["flags"] & Flag.ROBOTS and row["site"] in places]
    for site, place in places.items():
        assert types[place].tolist() == counted([row["type"] for row in pages if row["site"] == site], sitetypes.TYPES)
    expected = []
    for site, place in places.items():
        reasons = Counter(row["reason"] for row in pages if row["site"] == site and row["type"] == RowType.ERROR)
        if reasons:
            expected.append((place, reasons.total(), min(reasons, key=lambda reason: (-reasons[reason], reason))))
    expected.sort(key=lambda one: (-one[1], one[0]))
    assert [(one.place, one.errors, one.mostly) for one in errors.most(limit)] == expected[:limit]
