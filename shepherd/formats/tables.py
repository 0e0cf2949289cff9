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

FORMAT_VERSION: Final = 3


class Column(NamedTuple):
    """A column of a table or a field of a record."""

    name: str
    dtype: str
    kind: ColumnKind


_INDEX: Final = (
    Column("norm", "<u8", kinds.FOOTPRINT),
    Column("path", "<u8", kinds.FOOTPRINT),
    Column("site", "<u8", kinds.FOOTPRINT),
    Column("oid", "<u8", kinds.OID),
    Column("digest", "<u8", kinds.DIGEST),
    Column("type", "u1", kinds.TYPE),
    Column("reason", "u1", kinds.REASON),
    Column("flags", "<u2", kinds.ROW_FLAGS),
    Column("status", "<u2", kinds.STATUS),
    Column("weight", "<u2", kinds.WEIGHT),
    Column("section", "u1", kinds.SECTION),
    Column("frequency", "u1", kinds.COUNT),
    Column("retry", "u1", kinds.COUNT),
    Column("deferred", "u1", kinds.DEFERRED),
    Column("gathered", "<u4", kinds.TIME_S),
    Column("checked", "<u4", kinds.TIME_S),
    Column("changed", "<u4", kinds.TIME_S),
    Column("touched", "<u4", kinds.STATE),
    Column("download_ms", "<u4", kinds.MS),
    Column("size", "<u4", kinds.BYTES),
)

_SITES: Final = (
    Column("site", "<u8", kinds.FOOTPRINT),
    Column("norm", "<u8", kinds.FOOTPRINT),
    Column("qkey", "<u8", kinds.QUEUE_KEY),
    Column("name", "<u8", kinds.BYTES),
    Column("robots_oid", "<u8", kinds.OID),
    Column("documents", "<u4", kinds.COUNT),
    Column("gathered", "<u4", kinds.COUNT),
    Column("avg_ms", "<u4", kinds.KNOWN_MS),
    Column("qkey_checked", "<u4", kinds.TIME_S),
    Column("qkey_next", "<u4", kinds.TIME_S),
    Column("robots_checked", "<u4", kinds.TIME_S),
    Column("robots_next", "<u4", kinds.TIME_S),
    Column("robots_since", "<u4", kinds.TIME_S),
    Column("robots_status", "<u2", kinds.STATUS),
    Column("crawl_delay_ms", "<u4", kinds.KNOWN_MS),
    Column("delay_ms", "<u4", kinds.FILTER_MS),
    Column("soft_limit", "<u4", kinds.LIMIT),
    Column("hard_limit", "<u4", kinds.LIMIT),
    Column("moves", "<u4", kinds.COUNT),
    Column("group", "<u8", kinds.GROUP),
    Column("fresh_limit", "<u4", kinds.LIMIT),
    Column("slots", "<u2", kinds.COUNT),
    Column("select_bonus", "<i2", kinds.BONUS),
    Column("queue_bonus", "<i2", kinds.BONUS),
    Column("refresh_boost", "u1", kinds.COUNT),
    Column("section", "u1", kinds.SECTION),
    Column("policy", "<u2", kinds.NUMBER),
)

_SERVERS: Final = (
    Column("qkey", "<u8", kinds.QUEUE_KEY),
    Column("next_ms", "<i8", kinds.TIME_MS),
    Column("delay_ms", "<u4", kinds.MS),
    Column("avg_ms", "<u4", kinds.KNOWN_MS),
    Column("fetches", "<u4", kinds.COUNT),
    Column("errors", "<u4", kinds.COUNT),
    Column("slots", "<u2", kinds.COUNT),
    Column("backoff", "u1", kinds.NUMBER),
    Column("group", "<u8", kinds.GROUP),
    Column("documents", "<u4", kinds.COUNT),
)

_JOURNAL: Final = (
    Column("norm", "<u8", kinds.FOOTPRINT),
    Column("path", "<u8", kinds.FOOTPRINT),
    Column("site", "<u8", kinds.FOOTPRINT),
    Column("answered", "<u8", kinds.FOOTPRINT),
    Column("qkey", "<u8", kinds.QUEUE_KEY),
    Column("oid", "<u8", kinds.OID),
    Column("digest", "<u8", kinds.DIGEST),
    Column("start_ms", "<i8", kinds.TIME_MS),
    Column("end_ms", "<i8", kinds.TIME_MS),
    Column("plan_row", "<u4", kinds.ROW),
    Column("download_ms", "<u4", kinds.MS),
    Column("body_bytes", "<u4", kinds.BYTES),
    Column("stored_bytes", "<u4", kinds.BYTES),
    Column("wire_bytes", "<u4", kinds.BYTES),
    Column("retry_after_s", "<u4", kinds.SECONDS),
    Column("crawl_delay_ms", "<u4", kinds.KNOWN_MS),
    Column("valid_s", "<u4", kinds.SECONDS),
    Column("status", "<u2", kinds.STATUS),
    Column("flags", "<u2", kinds.RECORD_FLAGS),
    Column("reaper", "<u2", kinds.NUMBER),
    Column("hops", "<u2", kinds.COUNT),
    Column("kind", "u1", kinds.RECORD_KIND),
    Column("result", "u1", kinds.RESULT),
    Column("reason", "u1", kinds.REASON),
    Column("section", "u1", kinds.SECTION),
    Column("spare4", "<u4", kinds.NUMBER),
    Column("group", "<u8", kinds.GROUP),
)

_PLAN: Final = (
    Column("norm", "<u8", kinds.FOOTPRINT),
    Column("path", "<u8", kinds.FOOTPRINT),
    Column("site", "<u8", kinds.FOOTPRINT),
    Column("qkey", "<u8", kinds.QUEUE_KEY),
    Column("oid", "<u8", kinds.OID),
    Column("digest", "<u8", kinds.DIGEST),
    Column("row", "<u4", kinds.ROW),
    Column("priority", "<u4", kinds.NUMBER),
    Column("weight", "<u2", kinds.WEIGHT),
    Column("flags", "<u2", kinds.ROW_FLAGS),
    Column("kind", "u1", kinds.RECORD_KIND),
    Column("why", "u1", kinds.WHY),
    Column("section", "u1", kinds.SECTION),
    Column("spare", "u1", kinds.NUMBER),
)


def _dtypes(columns: tuple[Column, ...]) -> dict[str, str]:
    return {one.name: one.dtype for one in columns}


INDEX: Final = _dtypes(_INDEX)
SITES: Final = _dtypes(_SITES)
SERVERS: Final = _dtypes(_SERVERS)
TABLES: Final[dict[str, dict[str, str]]] = {"index": INDEX, "sites": SITES, "servers": SERVERS}

JOURNAL: Final = np.dtype([(one.name, one.dtype) for one in _JOURNAL])
PLAN: Final = np.dtype([(one.name, one.dtype) for one in _PLAN])

KINDS: Final[dict[str, dict[str, ColumnKind]]] = {
    name: {one.name: one.kind for one in columns}
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
