from __future__ import annotations

import numpy as np
import pytest

from shepherd.cycle.record.rules import Placed, changed_columns, may_need, needs, place, too_old
from shepherd.formats.tables import (
    INDEX,
    NO_OID,
    QKEY_NONE,
    SITES,
    Array,
    Flag,
    Reason,
    RowType,
    bucket_oid,
    contrib_oid,
    empty,
    in_contrib,
)

STATE = 4
ROWS = [  # type, reason, oid, flags, touched, where its URL stands if it needs a bucket
    (RowType.UNGATHERED, Reason.LINK, contrib_oid(1, 5), 0, 4, "contrib"),
    (RowType.SLEEPING, Reason.BELOW_BAR, contrib_oid(1, 6), 0, 4, "contrib"),
    (RowType.FORGOTTEN, Reason.BELOW_SLEEP, contrib_oid(1, 7), 0, 4, ""),
    (RowType.UNGATHERED, Reason.LINK, bucket_oid(1, 0), 0, 4, ""),
    (RowType.UNGATHERED, Reason.LINK, NO_OID, Flag.ROBOTS, 4, "robots"),
    (RowType.GATHERED, Reason.GATHERED, bucket_oid(1, 64), Flag.ROBOTS, 4, ""),
    (RowType.FORGOTTEN, Reason.BELOW_SLEEP, NO_OID, 0, 4, ""),
    (RowType.FORGOTTEN, Reason.DELETED, bucket_oid(1, 128), 0, 4, "bucket"),
    (RowType.FORGOTTEN, Reason.PURGED, contrib_oid(1, 8), 0, 4, "contrib"),
    (RowType.FORGOTTEN, Reason.DELETED, bucket_oid(1, 192), 0, 3, ""),  # an earlier record has seen to it
]


@pytest.fixture
def index() -> dict[str, Array]:
    columns = empty(INDEX, len(ROWS))
    for number, (type_, reason, oid, flags, touched, _) in enumerate(ROWS):
        columns["type"][number], columns["reason"][number], columns["oid"][number] = type_, reason, oid
        columns["flags"][number], columns["touched"][number] = flags, touched
    columns["digest"][:], columns["gathered"][:] = 5, 6
    return columns


def test_rows_need_a_bucket_by_where_their_url_stands(index: dict[str, Array]) -> None:
    found = needs(index, state=STATE)
    for source in ("contrib", "robots", "bucket"):
        mask = getattr(found, source)
        assert mask.tolist() == [where == source for *_, where in ROWS], source
        assert may_need(index)[mask].all()


def test_no_row_points_into_contrib_after_record(index: dict[str, Array]) -> None:
    before = {name: values.copy() for name, values in index.items()}
    rows = np.flatnonzero([bool(where) for *_, where in ROWS])
    oids = np.array([bucket_oid(2, 100 * number) for number in range(len(rows))], np.uint64)
    oids[1] = NO_OID  # the filter has refused it
    dead = index["type"][rows] == RowType.FORGOTTEN
    placed = Placed(rows, oids, np.full(len(rows), 90, np.uint32), dead)
    new = {name: place(name, index[name], index["type"], placed, state=9) for name in changed_columns(3, 1, 2, 1)}
    assert set(new) == {"oid", "type", "reason", "size", "touched", "digest", "gathered"}
    assert not in_contrib(new["oid"]).any()
    assert new["oid"][rows].tolist() == oids.tolist()
    assert new["oid"][2] == NO_OID
    assert new["touched"].tolist() == [9 if where else touched for *_, touched, where in ROWS]
    assert (new["type"][1], new["reason"][1]) == (RowType.FORGOTTEN, Reason.FILTER)
    assert new["digest"].tolist() == [0 if n in (7, 8) else 5 for n in range(len(ROWS))]
    assert all(np.array_equal(index[name], before[name]) for name in index), "the given columns are left alone"


def test_columns_that_nothing_changes_are_not_written() -> None:
    assert changed_columns(0, 0, 0, 0) == []
    assert changed_columns(0, 0, 0, 1) == ["oid"]
    assert changed_columns(1, 0, 0, 0) == ["oid", "size", "touched"]


def test_a_failed_lookup_is_forgotten_when_it_is_too_old() -> None:
    sites = empty(SITES, 4)
    sites["qkey"][:] = QKEY_NONE << 56
    sites["qkey"][3] = 4 << 56 | 1
    sites["qkey_checked"][:] = [0, 50, 51, 50]
    assert too_old(sites, now_s=100, reset_s=50).tolist() == [False, True, False, False]
