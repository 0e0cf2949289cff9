from __future__ import annotations

import numpy as np

from shepherd.formats.tables import INDEX, NO_OID, Flag, RowType, bucket_oid, contrib_oid, empty, in_contrib
from shepherd.phases.record import needs_bucket, place_oids

ROWS = [  # type, oid, flags, needs a bucket
    (RowType.UNGATHERED, contrib_oid(1, 5), 0, True),
    (RowType.SLEEPING, contrib_oid(1, 6), 0, True),
    (RowType.FORGOTTEN, contrib_oid(1, 7), 0, False),
    (RowType.UNGATHERED, bucket_oid(1, 0), 0, False),
    (RowType.UNGATHERED, NO_OID, Flag.ROBOTS, True),
    (RowType.GATHERED, bucket_oid(1, 64), Flag.ROBOTS, False),
    (RowType.FORGOTTEN, NO_OID, 0, False),
]


def test_no_row_points_into_contrib_after_record() -> None:
    index = empty(INDEX, len(ROWS))
    for number, (type_, oid, flags, _) in enumerate(ROWS):
        index["type"][number], index["oid"][number], index["flags"][number] = type_, oid, flags
    mask = needs_bucket(index)
    assert mask.tolist() == [wanted for *_, wanted in ROWS]
    rows = np.flatnonzero(mask)
    oids = np.array([bucket_oid(2, 100 * number) for number in range(len(rows))], np.uint64)
    placed = place_oids(index, rows, oids, np.full(len(rows), 90, np.uint32), state=4)
    assert not in_contrib(placed["oid"]).any()
    assert placed["oid"][rows].tolist() == oids.tolist()
    assert placed["oid"][2] == NO_OID
    assert placed["touched"].tolist() == [4 if wanted else 0 for *_, wanted in ROWS]
    assert in_contrib(index["oid"]).any(), "the given columns are left alone"
