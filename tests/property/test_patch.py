"""Sparse changes of a table against lists."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.batch import patch
from shepherd.batch.partitions import partitions
from shepherd.batch.patch import Added, Changes, Patch
from shepherd.store.columns import Table, TableWriter

VALUES = st.integers(0, 9)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], dict[int, int], list[tuple[int, int]]]:
    old = draw(st.lists(VALUES, max_size=12))
    changed = draw(st.dictionaries(st.integers(0, len(old) - 1), VALUES, max_size=6)) if old else {}
    added = draw(st.lists(st.tuples(st.integers(0, len(old)), VALUES), max_size=5))
    return old, changed, sorted(added, key=lambda one: one[0])


@given(cases(), st.integers(1, 5))
def test_changed_and_added_rows_come_out_in_their_places(
    case: tuple[list[int], dict[int, int], list[tuple[int, int]]], step: int
) -> None:
    old, changed, added = case
    with tempfile.TemporaryDirectory() as where:
        directory = Path(where) / "servers"
        directory.mkdir()
        writer = TableWriter(directory, {"fetches": "<u4"})
        writer.append({"fetches": np.array(old, "<u4")})
        table = Table(directory, {"fetches": "<u4"}, writer.finish())
        rows = sorted(changed)
        sparse = Patch(np.array(rows, np.int64), {"fetches": np.array([changed[row] for row in rows], "<u4")})
        new = Added(np.array([at for at, _ in added], np.int64), {"fetches": np.array([value for _, value in added], "<u4")})
        changes = Changes(sparse, new)
        found = [patch.values(table, changes, "fetches", a, b).tolist() for a, b in partitions(len(old), step)]
        kept = patch.only_changed(table, sparse)
    expected = [changed.get(row, value) for row, value in enumerate(old)]
    assert bool(kept.columns) == (expected != old)
    for at, value in reversed(added):
        expected.insert(at, value)
    assert [value for part in found for value in part] == expected
