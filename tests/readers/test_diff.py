"""diff against one that goes through dictionaries, document by document; and what it promises of any two states."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.distinct_urls import Paths
from shepherd.formats.tables import INDEX, Columns, RowType
from shepherd.readers.diff import NO_ROW, Difference, Differences, diff

Row = dict[str, int]
PATHS = Paths(robots=1, root=2)
BIG = 2**63  # so that a signed type would show

ROWS: st.SearchStrategy[Row] = st.builds(
    dict,
    norm=st.sampled_from([1, 2, BIG, BIG + 1]),
    path=st.sampled_from([1, 2, 3, 4, BIG + 5]),
    site=st.sampled_from([7, 8, BIG + 9]),
    type=st.sampled_from([int(one) for one in RowType]),
    digest=st.sampled_from([0, 5, BIG]),
    checked=st.sampled_from([0, 100, 200]),
)
SLICES = st.lists(ROWS, max_size=25, unique_by=lambda row: (row["norm"], row["path"], row["site"]))


def columns(rows: list[Row]) -> Columns:
    rows = sorted(rows, key=key)
    return {name: np.array([row.get(name, 0) for row in rows], dtype) for name, dtype in INDEX.items()}


def key(row: Row) -> tuple[int, int, int]:
    return row["norm"], row["path"], row["site"]


def naive(old: list[Row], new: list[Row]) -> list[tuple[tuple[int, ...] | None, tuple[int, ...] | None, int]]:
    before = {key(row): row for row in old if row["type"] != RowType.FORGOTTEN}
    after = {key(row): row for row in new if row["type"] != RowType.FORGOTTEN}
    pairs = [(before[one], after[one]) for one in before.keys() & after.keys()]
    gone = sorted(before.keys() - after.keys())
    come = sorted(after.keys() - before.keys())
    found: list[tuple[tuple[int, ...] | None, tuple[int, ...] | None, int]] = []
    for document in {one[:2] for one in (*gone, *come)}:
        mine, theirs = ([one for one in some if one[:2] == document] for some in (gone, come))
        together = (
            zip_longest(mine, theirs)
            if document[1] not in (PATHS.robots, PATHS.root)
            else [*((m, None) for m in mine), *((None, t) for t in theirs)]
        )
        for was, now in together:
            if was is not None and now is not None:
                pairs.append((before[was], after[now]))
            else:
                found.append((was, now, int(Difference.ADDED if was is None else Difference.FORGOTTEN)))
    for was, now in pairs:
        what = Difference(0)
        what |= Difference.CHANGED if was["digest"] != now["digest"] else Difference(0)
        what |= Difference.REFRESHED if was["checked"] != now["checked"] and was["digest"] == now["digest"] else Difference(0)
        what |= Difference.MOVED if was["site"] != now["site"] else Difference(0)
        what |= Difference.TYPE if was["type"] != now["type"] else Difference(0)
        if what:
            found.append((key(was), key(now), int(what)))
    return sorted(found, key=lambda one: one[1] or one[0] or ())


def difference_rows(
    old: Columns, new: Columns, found: Differences
) -> list[tuple[tuple[int, ...] | None, tuple[int, ...] | None, int]]:
    def keys(index: Columns, row: int) -> tuple[int, ...] | None:
        return None if row == NO_ROW else tuple(int(index[name][row]) for name in ("norm", "path", "site"))

    lines = zip(found.old.tolist(), found.new.tolist(), found.what.tolist(), strict=True)
    return [(keys(old, was), keys(new, now), what) for was, now, what in lines]


@given(SLICES, SLICES)
def test_diff_agrees_with_dictionaries(old: list[Row], new: list[Row]) -> None:
    before, after = columns(old), columns(new)
    found = difference_rows(before, after, diff(before, after, PATHS))
    assert sorted(found, key=str) == sorted(naive(old, new), key=str)
    places = [one[1] or one[0] for one in found]
    assert [place or () for place in places] == sorted(place or () for place in places)


@given(SLICES, SLICES)
def test_diff_the_other_way_round_is_the_inverse(old: list[Row], new: list[Row]) -> None:
    before, after = columns(old), columns(new)
    turned = {int(Difference.ADDED): int(Difference.FORGOTTEN), int(Difference.FORGOTTEN): int(Difference.ADDED)}
    there = difference_rows(before, after, diff(before, after, PATHS))
    back = [(now, was, turned.get(what, what)) for was, now, what in difference_rows(after, before, diff(after, before, PATHS))]
    assert sorted(there, key=str) == sorted(back, key=str)


@given(SLICES)
def test_state_does_not_differ_from_itself(rows: list[Row]) -> None:
    assert len(diff(columns(rows), columns(rows), PATHS)) == 0
