"""Which rows get a thin bucket, and the columns once the buckets are written.

After record no row points into contrib: what is wanted has a bucket, what is forgotten has none.
"""

from __future__ import annotations

import numpy as np

from shepherd.formats.tables import I64, NO_OID, U32, U64, Array, Bools, Columns, Flag, RowType, in_contrib
from shepherd.phases.keys import with_flag


def needs_bucket(index: Columns) -> Bools:
    """New URLs that are wanted or remembered, and robots files that nobody has asked for yet."""
    living = index["type"] != RowType.FORGOTTEN
    robots = with_flag(index["flags"], Flag.ROBOTS) & (index["oid"] == np.uint64(NO_OID))
    return np.asarray(living & (in_contrib(index["oid"]) | robots))


def place_oids(index: Columns, rows: I64, oids: U64, sizes: U32, *, state: int) -> dict[str, Array]:
    """The columns with the buckets of `rows`; places in contrib that nothing needs any more are given up.

    A row that should have got a bucket and is not among `rows` (the filter refused it) must be forgotten by the caller first.
    """
    columns = {name: index[name].copy() for name in ("oid", "size", "touched")}
    columns["oid"][in_contrib(columns["oid"]) & (index["type"] == RowType.FORGOTTEN)] = NO_OID
    columns["oid"][rows] = oids
    columns["size"][rows] = sizes
    columns["touched"][rows] = state
    return columns
