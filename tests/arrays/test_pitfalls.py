"""Pits that prototypes of the phases fell into, which small samples do not show: each is a test that fails in the pit.

Elsewhere: room for more rows than there are, and ties at a bar (test_rules.py of select and plan, test_drive.py of cleanup);
sorts that are slow by nature (tests/test_layers.py); everything beyond a million sites (bench/against).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.partitions import whole_norms
from shepherd.config import Plan, Politeness
from shepherd.cycle.cork import rules as cork
from shepherd.cycle.merge import rules as merge
from shepherd.cycle.merge.edits import EDIT
from shepherd.formats.tables import (
    INDEX,
    JOURNAL,
    NO_OID,
    SERVERS,
    SITES,
    Array,
    Columns,
    JournalFlag,
    Kind,
    Records,
    Result,
    RowType,
    contrib_oid,
    empty,
)
from shepherd.politeness import contacts

ROWS = 40_000
ROBOTS, ROOT = 7, 3
NOW_S = 100_000


def colliding(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    """Keys whose upper halves are all alike, in norm and in path: a key packed from these could not tell them apart."""
    norm = np.uint64(0xAAAA_AAAA << 32) + rng.integers(0, 50, rows, np.uint64)
    path = np.uint64(0xBBBB_BBBB << 32) + rng.integers(0, 2_000, rows, np.uint64)
    return {"norm": norm, "path": path, "site": norm + np.uint64(1)}


def nothing_known(site: Array) -> Columns:
    facts = ("status", "checked", "gathered", "changed", "size", "digest")
    return {name: np.zeros(len(site), np.uint64) for name in facts} | {"oid": np.full(len(site), NO_OID, np.uint64)}


def test_documents_that_share_the_upper_halves_of_their_keys_stay_distinct() -> None:
    rng = np.random.default_rng(1)
    known, linked = colliding(rng, ROWS), colliding(rng, ROWS)
    wanted = {
        part: {*zip(keys["norm"].tolist(), keys["path"].tolist(), strict=True)} for part, keys in (("a", known), ("b", linked))
    }
    rows = np.array(sorted(wanted["a"]), np.uint64)
    index = empty(INDEX, len(rows)) | {"norm": rows[:, 0].copy(), "path": rows[:, 1].copy(), "site": rows[:, 0] + np.uint64(1)}
    index["type"][:], index["weight"][:] = RowType.GATHERED, 9
    contributed = linked | {"weight": np.full(ROWS, 5, np.uint16)}
    contributed |= {"oid": contrib_oid(1, 0) + np.arange(ROWS, dtype=np.uint64)}
    contributed |= {"section": np.zeros(ROWS, np.uint8), "flags": np.zeros(ROWS, np.uint16), "lastmod": np.zeros(ROWS, np.uint32)}
    merged = merge.merge(
        *(index, contributed, np.zeros(0, EDIT), nothing_known, Paths(ROBOTS, ROOT), np.zeros(0, np.uint64)),
        state=2,
        now_s=NOW_S,
        max_retries=4,
    ).columns
    pages = merged["path"] != ROBOTS
    found = list(zip(merged["norm"][pages].tolist(), merged["path"][pages].tolist(), strict=True))
    assert found == sorted(wanted["a"] | wanted["b"])


class Column:
    """A column in memory, as far as ranges are cut from it."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def value(self, row: int) -> int:
        return int(self._values[row])

    def __getitem__(self, rows: slice) -> Array:
        return self._values[rows]


class Index:
    def __init__(self, norm: Array) -> None:
        self.rows = len(norm)
        self._norm = Column(norm)

    def __getitem__(self, name: str) -> Column:
        assert name == "norm"
        return self._norm


def test_sites_that_share_the_upper_bits_of_their_footprints_fill_several_partitions() -> None:
    """Ranges are cut where the rows of the index say, and not where the space of footprints is cut evenly."""
    step, longest = 500, 40
    norm = np.uint64(1 << 60) + np.repeat(np.arange(2_000, dtype=np.uint64), np.arange(2_000) % longest + 1)
    ranges: list[tuple[int, int]] = list(whole_norms(Index(norm), step))  # type: ignore[arg-type]
    assert [start for start, _stop in ranges] == [0, *(stop for _start, stop in ranges[:-1])]
    assert ranges[-1][1] == len(norm)
    assert max(stop - start for start, stop in ranges) < step + longest
    assert all(norm[start - 1] != norm[start] for start, _stop in ranges[1:])


class Watched(np.ndarray[Any, Any]):
    """Records that refuse to be taken row by row: numpy copies each as a whole, which takes several times as long."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray | list) and self.dtype.names:
            pytest.fail("records were taken by fancy indexing: keys.pick is for that")
        return super().__getitem__(key)


def journal(rows: int) -> Records:
    made = np.zeros(rows, JOURNAL)
    made["norm"] = made["site"] = made["answered"] = np.arange(rows) % 9 + 1
    made["path"] = np.arange(rows) % 4 + 10
    made["qkey"] = np.uint64(4 << 56) + made["site"]
    made["kind"] = np.array([Kind.PAGE, Kind.ROBOTS, Kind.QKEY])[np.arange(rows) % 3]
    made["result"] = np.where(made["kind"] == Kind.QKEY, Result.RESOLVED, np.arange(rows) % 8 + 1)
    made["flags"], made["oid"], made["end_ms"] = JournalFlag.CONTACTED, NO_OID, (NOW_S + np.arange(rows)) * 1000
    return made


def test_records_are_not_taken_row_by_row() -> None:
    watched = journal(200).view(Watched)
    with pytest.raises(pytest.fail.Exception):
        watched[np.arange(3)]  # the watch itself
    settled = cork.newest(watched).view(Watched)
    sites = empty(SITES, 9)
    sites["site"][:] = sites["norm"][:] = np.arange(1, 10)
    sites |= contacts.apply_sites(sites, watched, settled, Politeness())
    servers = contacts.apply_servers(empty(SERVERS), sites, watched, Politeness())
    assert servers["fetches"].sum() == np.count_nonzero(watched["kind"] != Kind.QKEY)
    index = empty(INDEX, 36)
    index["norm"][:] = index["site"][:] = np.repeat(np.arange(1, 10), 4)
    index["path"][:] = np.tile(np.arange(10, 14), 9)
    corked = cork.apply_index(index, settled, sites, state=2, now_s=NOW_S, plan=Plan(), politeness=Politeness())
    assert len(corked.rows) > 0
