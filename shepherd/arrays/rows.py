"""What rows say by several of their columns together, for every phase that asks; and the same of journal records."""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.arrays.keys import with_flag
from shepherd.formats.tables import U32, Bools, Columns, Flag, Records, RowType, in_bucket

OF_BODY: Final = ("digest", "gathered", "oid")  # what `has_body` looks at
BODY_FLAGS: Final = int(Flag.REDIRECT | Flag.TRUNCATED | Flag.NOINDEX | Flag.ELSEWHERE)  # flags that go with the body
THIN_BYTES: Final = 160  # of a thin bucket, about; how much a body frees is known only once its URL has been read
IN_USE: Final = (RowType.SLEEPING, RowType.UNGATHERED, RowType.GATHERED)  # rows whose weights count


def has_body(columns: Columns) -> Bools:
    return np.asarray((columns["digest"] != 0) & (columns["gathered"] > 0) & in_bucket(columns["oid"]))


def counts_as_gathered(index: Columns) -> Bools:
    """Rows that the site table counts as gathered documents: robots files are none."""
    return np.asarray((index["type"] == np.uint8(RowType.GATHERED)) & ~with_flag(index["flags"], Flag.ROBOTS))


def end_s(records: Records) -> U32:
    seconds: U32 = np.clip(records["end_ms"] // 1000, 0, 0xFFFFFFFF).astype(np.uint32)
    return seconds
