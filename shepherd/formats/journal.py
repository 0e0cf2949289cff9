"""One journal record by itself, as a tuple: a reap makes and checks one for every answer, where an array of one row is slow.

Invariant: fields, order and widths are those of `tables.JOURNAL`, which reads many at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shepherd.errors import Corruption
from shepherd.formats import layout
from shepherd.formats.tables import JOURNAL, NO_OID, NO_ROW, JournalFlag, Result

LAYOUT: Final = layout.struct_of(JOURNAL)
FAILED: Final = frozenset((Result.DENIED, Result.SOFT, Result.HARD, Result.SITE, Result.CONNECTION, Result.UNRESOLVED))


class Entry(NamedTuple):
    """docs/formats.md has what the fields mean."""

    norm: int = 0
    path: int = 0
    site: int = 0
    answered: int = 0
    qkey: int = 0
    oid: int = NO_OID
    digest: int = 0
    start_ms: int = 0
    end_ms: int = 0
    plan_row: int = NO_ROW
    download_ms: int = 0
    body_bytes: int = 0
    stored_bytes: int = 0
    wire_bytes: int = 0
    retry_after_s: int = 0
    crawl_delay_ms: int = 0
    valid_s: int = 0
    status: int = 0
    flags: int = 0
    reaper: int = 0
    hops: int = 0
    kind: int = 0
    result: int = 0
    reason: int = 0
    section: int = 0
    spare4: int = 0
    group: int = 0

    def pack(self) -> bytes:
        return LAYOUT.pack(*self)

    @property
    def contacted(self) -> bool:
        """Whether the server saw anything: without that, no delay is due."""
        return bool(self.flags & _CONTACTED)


assert Entry._fields == JOURNAL.names
_CONTACTED: Final = int(JournalFlag.CONTACTED)  # an enumeration's own operators are slow


def unpack(data: bytes) -> Entry:
    if len(data) != LAYOUT.size:
        raise Corruption(f"a journal record of {len(data)} bytes")
    return Entry._make(LAYOUT.unpack(data))
