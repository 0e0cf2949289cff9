"""Sparse changes of a table against lists."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.arrays import patch
from shepherd.arrays.partitions import partitions
from shepherd.arrays.patch import AddedRows, Patch, TableChanges, TableRewriter
from shepherd.formats.tables import SERVERS, empty
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.columns import Table, TableWriter
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder, State
from tests.support import sampling

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
        new = AddedRows(np.array([at for at, _ in added], np.int64), {"fetches": np.array([value for _, value in added], "<u4")})
        changes = TableChanges(sparse, new)
        found = [patch.values(table, changes, "fetches", a, b).tolist() for a, b in partitions(len(old), step)]
        kept = patch.only_changed(table, sparse)
    expected = [changed.get(row, value) for row, value in enumerate(old)]
    assert bool(kept.columns) == (expected != old)
    for at, value in reversed(added):
        expected.insert(at, value)
    assert [value for part in found for value in part] == expected


@st.composite
def partition_changes(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, int, dict[str, dict[int, int]]]]]:
    """Two columns, and partitions of them in order, not all of them there, with what changes of each column."""
    rows = draw(st.integers(1, 12))
    columns = [draw(st.lists(VALUES, min_size=rows, max_size=rows)) for _ in range(2)]
    cuts = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=4))) if rows > 1 else []
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, rows], strict=True):
        touched = draw(st.sets(st.integers(start, stop - 1), max_size=3))
        names = draw(st.sets(st.sampled_from(["fetches", "errors"])))
        if draw(st.booleans()):
            parts.append((start, stop, {name: {row: draw(VALUES) for row in sorted(touched)} for name in sorted(names)}))
    return columns, parts


@settings(max_examples=sampling.examples(25))  # each makes a database
@given(partition_changes(), st.integers(1, 5), st.booleans())
def test_table_is_rewritten_while_its_changes_are_computed(
    case: tuple[list[list[int]], list[tuple[int, int, dict[str, dict[int, int]]]]], step: int, twice: bool
) -> None:
    (fetches, errors), parts = case
    old = {"fetches": fetches, "errors": errors}
    with tempfile.TemporaryDirectory() as where:
        database.create(Path(where) / "db", bytes(16), 1, 0)
        with Database(Path(where) / "db").writing("test") as writer:
            builder = writer.build(writer.furthest(), StateName(2, "closed"), 1)
            columns = empty(SERVERS, len(fetches)) | {name: np.array(values, "<u4") for name, values in old.items()}
            builder.write_table("servers", columns)
            for name in ("index", "sites"):
                builder.keep_table(name)
            state = writer.publish(builder, {})
            builder = writer.build(state, StateName(3, "closed"), 1)
            rewriting = _put(builder, state, parts, step)
            if twice:  # the first time was in vain
                rewriting.discard()
                rewriting = _put(builder, state, parts, step)
            rewriting.finish()
            for name in ("index", "sites"):
                builder.keep_table(name)
            new = writer.publish(builder, {})
        for name, values in old.items():
            changes = {row: value for _, _, part in parts for row, value in part.get(name, {}).items()}
            assert new.servers[name][0 : len(values)].tolist() == [changes.get(row, v) for row, v in enumerate(values)]
        for name in SERVERS:
            linked = (new.path / "servers" / name).samefile(state.path / "servers" / name)
            assert linked == (not any(name in part for _, _, part in parts))


def _put(builder: Builder, state: State, parts: list[tuple[int, int, dict[str, dict[int, int]]]], step: int) -> TableRewriter:
    rewriting = TableRewriter(builder, "servers", state.servers, step)
    for start, stop, changed in parts:
        rows = sorted({row for changes in changed.values() for row in changes})
        columns = {name: np.array([changes[row] for row in rows], "<u4") for name, changes in changed.items()}
        rewriting.put(start, stop, Patch(np.array(rows, np.int64), columns))
    return rewriting
