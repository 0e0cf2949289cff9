"""Point queries by bisection: the same answers as looking at every row, and damage met on the way is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import Corruption
from shepherd.formats import tables
from shepherd.formats.tables import NO_OID, RowType
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, lookup
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State

NOW = 1_790_000_000
TOP = 2**64 - 1


def made(path: Path, keys: list[tuple[int, int, int]]) -> State:
    """A state whose index has these (norm, path, site), and a site and a server for each distinct site."""
    database.create(path, bytes(16), NOW, 0)
    index = tables.empty(tables.INDEX, len(keys))
    if keys:
        index["norm"], index["path"], index["site"] = np.array(sorted(keys), np.uint64).T
    index["type"][:], index["oid"][:] = RowType.FORGOTTEN, NO_OID
    known = sorted({site for _, _, site in keys})
    sites, servers = tables.empty(tables.SITES, len(known)), tables.empty(tables.SERVERS, len(known))
    sites["site"] = servers["qkey"] = np.array(known, np.uint64)
    db = Database(path)
    with db.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "closed"), NOW)
        for table, columns in (("index", index), ("sites", sites), ("servers", servers)):
            builder.write_table(table, columns)
        builder.write_site_names([])
        return writer.publish(builder, {})


KEYS = [(0, 0, 9), (0, 5, 9), (3, 5, 1), (3, 5, 2), (3, 5, TOP), (3, 7, 1), (4, 7, 4), (TOP, 0, 6), (TOP, TOP, 6)]


def test_lookup_returns_every_key_and_no_other(tmp_path: Path) -> None:
    state = made(tmp_path / "db", KEYS)
    values = sorted({value for key in KEYS for value in key} | {8, TOP - 1})
    for norm in values:
        assert list(lookup.rows_of_norm(state, norm)) == [row for row, key in enumerate(KEYS) if key[0] == norm]
        for path in values:
            assert list(lookup.rows_of(state, norm, path)) == [r for r, key in enumerate(KEYS) if key[:2] == (norm, path)]
            for site in values:
                key = (norm, path, site)
                assert lookup.row_of(state, *key) == (KEYS.index(key) if key in KEYS else None)


def test_lookup_returns_sites_and_servers_by_their_keys(tmp_path: Path) -> None:
    state = made(tmp_path / "db", KEYS)
    known = sorted({site for _, _, site in KEYS})
    for value in (*known, 0, 3, TOP - 1):
        expected = known.index(value) if value in known else None
        assert lookup.site_row(state, value) == lookup.server_row(state, value) == expected


def test_empty_database_has_no_rows(tmp_path: Path) -> None:
    state = made(tmp_path / "db", [])
    assert not lookup.rows_of_norm(state, 0)
    assert not lookup.rows_of(state, 0, 0)
    assert lookup.row_of(state, 0, 0, 0) is lookup.site_row(state, 0) is lookup.server_row(state, 0) is None


def test_damage_elsewhere_does_not_stop_a_query_and_damage_on_its_way_does(tmp_path: Path) -> None:
    """The first query touches the blocks of its bisection alone: 600,000 rows are five blocks of norm."""
    state = made(tmp_path / "db", [(n, 1, 1) for n in range(600_000)])
    norm = state.path / "index" / "norm"
    norm.chmod(0o644)
    with norm.open("r+b") as file:
        file.seek(5)
        file.write(b"\x01")
    assert list(lookup.rows_of(state, 599_999, 1)) == [599_999]
    with pytest.raises(Corruption, match="norm at 0"):
        lookup.rows_of(state, 3, 1)
