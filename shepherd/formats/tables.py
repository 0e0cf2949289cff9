"""The columns and records of docs/formats.md, as numpy types, and what kind of value each of them holds.

This module is the one place where a width of the format stands in code. Kinds are in kinds.py, which spells the values; the words
of small numbers are in vocabulary.py, queue keys in queue_keys.py; whoever needs numpy anyway imports all of them from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shepherd.formats import kinds
from shepherd.formats.kinds import NO_LIMIT as NO_LIMIT
from shepherd.formats.kinds import NO_OID as NO_OID
from shepherd.formats.kinds import NO_ROW as NO_ROW
from shepherd.formats.kinds import ColumnKind
from shepherd.formats.queue_keys import QKEY_IPV4 as QKEY_IPV4
from shepherd.formats.queue_keys import QKEY_IPV6 as QKEY_IPV6
from shepherd.formats.queue_keys import QKEY_NONE as QKEY_NONE
from shepherd.formats.queue_keys import is_resolved as is_resolved
from shepherd.formats.queue_keys import qkey_unresolved as qkey_unresolved
from shepherd.formats.queue_keys import show_qkey as show_qkey
from shepherd.formats.vocabulary import DEFERRED_TEXT as DEFERRED_TEXT
from shepherd.formats.vocabulary import REASON_TEXT as REASON_TEXT
from shepherd.formats.vocabulary import SACRED as SACRED
from shepherd.formats.vocabulary import ContribFlag as ContribFlag
from shepherd.formats.vocabulary import Deferred as Deferred
from shepherd.formats.vocabulary import Flag as Flag
from shepherd.formats.vocabulary import JournalFlag as JournalFlag
from shepherd.formats.vocabulary import Kind as Kind
from shepherd.formats.vocabulary import Reason as Reason
from shepherd.formats.vocabulary import Result as Result
from shepherd.formats.vocabulary import RowType as RowType
from shepherd.formats.vocabulary import Why as Why

U8: TypeAlias = npt.NDArray[np.uint8]
U16: TypeAlias = npt.NDArray[np.uint16]
U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
I16: TypeAlias = npt.NDArray[np.int16]
I64: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Records: TypeAlias = npt.NDArray[np.void]  # rows of a structured dtype
Array: TypeAlias = npt.NDArray[Any]
Columns: TypeAlias = Mapping[str, Array]  # some columns of a table, equally long
Oid = TypeVar("Oid", int, I64)

FORMAT_VERSION: Final = 4


class _Column(NamedTuple):
    """A column of a table or a field of a record."""

    name: str
    dtype: str
    kind: ColumnKind


_INDEX: Final = (
    _Column("norm", "<u8", kinds.FOOTPRINT),
    _Column("path", "<u8", kinds.FOOTPRINT),
    _Column("site", "<u8", kinds.FOOTPRINT),
    _Column("oid", "<u8", kinds.OID),
    _Column("digest", "<u8", kinds.DIGEST),
    _Column("type", "u1", kinds.TYPE),
    _Column("reason", "u1", kinds.REASON),
    _Column("flags", "<u2", kinds.ROW_FLAGS),
    _Column("status", "<u2", kinds.STATUS),
    _Column("weight", "<u2", kinds.WEIGHT),
    _Column("section", "u1", kinds.SECTION),
    _Column("frequency", "u1", kinds.COUNT),
    _Column("retry", "u1", kinds.COUNT),
    _Column("deferred", "u1", kinds.DEFERRED),
    _Column("gathered", "<u4", kinds.TIME_S),
    _Column("checked", "<u4", kinds.TIME_S),
    _Column("changed", "<u4", kinds.TIME_S),
    _Column("touched", "<u4", kinds.STATE),
    _Column("download_ms", "<u4", kinds.MS),
    _Column("size", "<u4", kinds.BYTES),
)

_SITES: Final = (
    _Column("site", "<u8", kinds.FOOTPRINT),
    _Column("norm", "<u8", kinds.FOOTPRINT),
    _Column("qkey", "<u8", kinds.QUEUE_KEY),
    _Column("name", "<u8", kinds.BYTES),
    _Column("robots_oid", "<u8", kinds.OID),
    _Column("documents", "<u4", kinds.COUNT),
    _Column("gathered", "<u4", kinds.COUNT),
    _Column("avg_ms", "<u4", kinds.KNOWN_MS),
    _Column("qkey_checked", "<u4", kinds.TIME_S),
    _Column("qkey_next", "<u4", kinds.TIME_S),
    _Column("robots_checked", "<u4", kinds.TIME_S),
    _Column("robots_next", "<u4", kinds.TIME_S),
    _Column("robots_since", "<u4", kinds.TIME_S),
    _Column("robots_status", "<u2", kinds.STATUS),
    _Column("crawl_delay_ms", "<u4", kinds.KNOWN_MS),
    _Column("delay_ms", "<u4", kinds.FILTER_MS),
    _Column("soft_limit", "<u4", kinds.LIMIT),
    _Column("hard_limit", "<u4", kinds.LIMIT),
    _Column("moves", "<u4", kinds.COUNT),
    _Column("group", "<u8", kinds.GROUP),
    _Column("fresh_limit", "<u4", kinds.LIMIT),
    _Column("slots", "<u2", kinds.COUNT),
    _Column("select_bonus", "<i2", kinds.BONUS),
    _Column("queue_bonus", "<i2", kinds.BONUS),
    _Column("refresh_boost", "u1", kinds.COUNT),
    _Column("section", "u1", kinds.SECTION),
    _Column("policy", "<u2", kinds.NUMBER),
    _Column("pause_s", "<u4", kinds.SECONDS),
    _Column("pause_end", "<u4", kinds.TIME_S),
)

_SERVERS: Final = (
    _Column("qkey", "<u8", kinds.QUEUE_KEY),
    _Column("next_ms", "<i8", kinds.TIME_MS),
    _Column("delay_ms", "<u4", kinds.MS),
    _Column("avg_ms", "<u4", kinds.KNOWN_MS),
    _Column("fetches", "<u4", kinds.COUNT),
    _Column("errors", "<u4", kinds.COUNT),
    _Column("slots", "<u2", kinds.COUNT),
    _Column("backoff", "u1", kinds.NUMBER),
    _Column("group", "<u8", kinds.GROUP),
    _Column("documents", "<u4", kinds.COUNT),
)

_JOURNAL: Final = (
    _Column("norm", "<u8", kinds.FOOTPRINT),
    _Column("path", "<u8", kinds.FOOTPRINT),
    _Column("site", "<u8", kinds.FOOTPRINT),
    _Column("answered", "<u8", kinds.FOOTPRINT),
    _Column("qkey", "<u8", kinds.QUEUE_KEY),
    _Column("oid", "<u8", kinds.OID),
    _Column("digest", "<u8", kinds.DIGEST),
    _Column("start_ms", "<i8", kinds.TIME_MS),
    _Column("end_ms", "<i8", kinds.TIME_MS),
    _Column("plan_row", "<u4", kinds.ROW),
    _Column("download_ms", "<u4", kinds.MS),
    _Column("body_bytes", "<u4", kinds.BYTES),
    _Column("stored_bytes", "<u4", kinds.BYTES),
    _Column("wire_bytes", "<u4", kinds.BYTES),
    _Column("retry_after_s", "<u4", kinds.SECONDS),
    _Column("crawl_delay_ms", "<u4", kinds.KNOWN_MS),
    _Column("valid_s", "<u4", kinds.SECONDS),
    _Column("status", "<u2", kinds.STATUS),
    _Column("flags", "<u2", kinds.RECORD_FLAGS),
    _Column("reaper", "<u2", kinds.NUMBER),
    _Column("hops", "<u2", kinds.COUNT),
    _Column("kind", "u1", kinds.RECORD_KIND),
    _Column("result", "u1", kinds.RESULT),
    _Column("reason", "u1", kinds.REASON),
    _Column("section", "u1", kinds.SECTION),
    _Column("spare4", "<u4", kinds.NUMBER),
    _Column("group", "<u8", kinds.GROUP),
)

_PLAN: Final = (
    _Column("norm", "<u8", kinds.FOOTPRINT),
    _Column("path", "<u8", kinds.FOOTPRINT),
    _Column("site", "<u8", kinds.FOOTPRINT),
    _Column("qkey", "<u8", kinds.QUEUE_KEY),
    _Column("oid", "<u8", kinds.OID),
    _Column("digest", "<u8", kinds.DIGEST),
    _Column("row", "<u4", kinds.ROW),
    _Column("priority", "<u4", kinds.NUMBER),
    _Column("weight", "<u2", kinds.WEIGHT),
    _Column("flags", "<u2", kinds.ROW_FLAGS),
    _Column("kind", "u1", kinds.RECORD_KIND),
    _Column("why", "u1", kinds.WHY),
    _Column("section", "u1", kinds.SECTION),
    _Column("spare", "u1", kinds.NUMBER),
)


def _dtypes(columns: tuple[_Column, ...]) -> dict[str, str]:
    return {column.name: column.dtype for column in columns}


INDEX: Final = _dtypes(_INDEX)
SITES: Final = _dtypes(_SITES)
SERVERS: Final = _dtypes(_SERVERS)
TABLES: Final[dict[str, dict[str, str]]] = {"index": INDEX, "sites": SITES, "servers": SERVERS}

JOURNAL: Final = np.dtype(list(_dtypes(_JOURNAL).items()))
PLAN: Final = np.dtype(list(_dtypes(_PLAN).items()))

KINDS: Final[dict[str, dict[str, ColumnKind]]] = {
    name: {column.name: column.kind for column in columns}
    for name, columns in (("index", _INDEX), ("sites", _SITES), ("servers", _SERVERS), ("journal", _JOURNAL), ("plan", _PLAN))
}


# --- object ids -------------------------------------------------------------------------------------------------

CONTRIB_BIT: Final = 1 << 63


def bucket_oid(segment: int, offset: int) -> int:
    return segment << 32 | offset


def split_oid(oid: Oid) -> tuple[Oid, Oid]:
    """Segment and offset of a bucket's oid, or of many."""
    return oid >> 32, oid & 0xFFFFFFFF


def contrib_oid(number: int, ordinal: int) -> int:
    return CONTRIB_BIT | number << 40 | ordinal


def split_contrib(oid: int) -> tuple[int, int]:
    """Contrib file and ordinal of a place in contrib."""
    return (oid & ~CONTRIB_BIT) >> 40, oid & ((1 << 40) - 1)


def in_bucket(oids: U64) -> Bools:
    return np.less(oids, np.uint64(CONTRIB_BIT))


def in_contrib(oids: U64) -> Bools:
    return np.greater_equal(oids, np.uint64(CONTRIB_BIT)) & np.not_equal(oids, np.uint64(NO_OID))


def empty(table: Mapping[str, str], rows: int = 0) -> dict[str, Array]:
    """All columns of a table, `rows` zeros long."""
    return {name: np.zeros(rows, dtype) for name, dtype in table.items()}
