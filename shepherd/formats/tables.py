"""The columns, records and small vocabularies of docs/formats.md, as numpy types.

This module is the one place where a width or a number of the format stands in code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

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
NO_ROW: Final = 0xFFFFFFFF
NO_LIMIT: Final = 0xFFFFFFFF

INDEX: Final[dict[str, str]] = {
    "norm": "<u8",
    "path": "<u8",
    "site": "<u8",
    "oid": "<u8",
    "digest": "<u8",
    "type": "u1",
    "reason": "u1",
    "flags": "<u2",
    "status": "<u2",
    "weight": "<u2",
    "section": "u1",
    "frequency": "u1",
    "retry": "u1",
    "deferred": "u1",
    "gathered": "<u4",
    "checked": "<u4",
    "changed": "<u4",
    "touched": "<u4",
    "download_ms": "<u4",
    "size": "<u4",
}

SITES: Final[dict[str, str]] = {
    "site": "<u8",
    "norm": "<u8",
    "qkey": "<u8",
    "name": "<u8",
    "robots_oid": "<u8",
    "documents": "<u4",
    "gathered": "<u4",
    "avg_ms": "<u4",
    "qkey_checked": "<u4",
    "qkey_next": "<u4",
    "robots_checked": "<u4",
    "robots_next": "<u4",
    "robots_since": "<u4",
    "robots_status": "<u2",
    "crawl_delay_ms": "<u4",
    "delay_ms": "<u4",
    "soft_limit": "<u4",
    "hard_limit": "<u4",
    "moves": "<u4",
    "group": "<u8",
    "fresh_limit": "<u4",
    "slots": "<u2",
    "select_bonus": "<i2",
    "queue_bonus": "<i2",
    "refresh_boost": "u1",
    "section": "u1",
    "policy": "<u2",
}

SERVERS: Final[dict[str, str]] = {
    "qkey": "<u8",
    "next_ms": "<i8",
    "delay_ms": "<u4",
    "avg_ms": "<u4",
    "fetches": "<u4",
    "errors": "<u4",
    "slots": "<u2",
    "backoff": "u1",
    "group": "<u8",
    "documents": "<u4",
}

TABLES: Final[dict[str, dict[str, str]]] = {"index": INDEX, "sites": SITES, "servers": SERVERS}

JOURNAL: Final = np.dtype(
    [
        ("norm", "<u8"),
        ("path", "<u8"),
        ("site", "<u8"),
        ("answered", "<u8"),
        ("qkey", "<u8"),
        ("oid", "<u8"),
        ("digest", "<u8"),
        ("start_ms", "<i8"),
        ("end_ms", "<i8"),
        ("plan_row", "<u4"),
        ("download_ms", "<u4"),
        ("body_bytes", "<u4"),
        ("stored_bytes", "<u4"),
        ("wire_bytes", "<u4"),
        ("retry_after_s", "<u4"),
        ("crawl_delay_ms", "<u4"),
        ("valid_s", "<u4"),
        ("status", "<u2"),
        ("flags", "<u2"),
        ("reaper", "<u2"),
        ("hops", "<u2"),
        ("kind", "u1"),
        ("result", "u1"),
        ("reason", "u1"),
        ("section", "u1"),
        ("spare4", "<u4"),
        ("spare8", "<u8"),
    ]
)

PLAN: Final = np.dtype(
    [
        ("norm", "<u8"),
        ("path", "<u8"),
        ("site", "<u8"),
        ("qkey", "<u8"),
        ("oid", "<u8"),
        ("digest", "<u8"),
        ("row", "<u4"),
        ("priority", "<u4"),
        ("weight", "<u2"),
        ("flags", "<u2"),
        ("kind", "u1"),
        ("why", "u1"),
        ("section", "u1"),
        ("spare", "u1"),
    ]
)


class RowType(IntEnum):
    SLEEPING = 1
    UNGATHERED = 2
    GATHERED = 3
    ERROR = 4
    FORGOTTEN = 5


class Flag(IntFlag):
    """Flags of an index row."""

    ROBOTS = 1
    INITIAL = 2
    PINNED = 4
    REFRESH = 8
    EQUIV = 16
    UNREFERENCED = 32
    ELSEWHERE = 64
    REDIRECT = 128
    TRUNCATED = 256
    NOINDEX = 512


SACRED: Final = int(Flag.ROBOTS | Flag.INITIAL | Flag.PINNED | Flag.EQUIV)  # select never drops these


class Reason(IntEnum):
    NONE = 0
    LINK = 1
    INSERTED = 2
    GATHERED = 3
    UNCHANGED = 4
    REDIRECT = 5
    MOVED = 6
    BODY_LOST = 7
    SITE_SOFT = 10
    SITE_HARD = 11
    BELOW_BAR = 12
    BELOW_SLEEP = 13
    FILTER = 14
    DUPLICATE = 15
    DELETED = 16
    DEAD = 17
    PURGED = 18
    ROBOTS_DENIED = 20
    ROBOTS_UNREACHABLE = 21
    NO_ADDRESS = 22
    GUARD = 23
    CONNECTION = 24
    DEADLINE = 25
    TOO_SLOW = 26
    MALFORMED = 27
    CLIENT_ERROR = 28
    SERVER_ERROR = 29
    DECODING = 30
    MOVES = 31
    TYPE = 32
    REAPER_LOST = 33
    SERVER_SOFT = 34
    SERVER_HARD = 35
    SECTION_SOFT = 36
    SECTION_HARD = 37
    SPACE = 38
    FRESH = 39
    SITE_EMPTY = 40
    TLS = 41
    LOOKUP = 42
    PARSER = 43


REASON_TEXT: Final[dict[Reason, str]] = {
    Reason.NONE: "none",
    Reason.LINK: "found by a link",
    Reason.INSERTED: "inserted",
    Reason.GATHERED: "gathered",
    Reason.UNCHANGED: "unchanged",
    Reason.REDIRECT: "redirect",
    Reason.MOVED: "moved to its equivalent",
    Reason.BODY_LOST: "its body was damaged",
    Reason.SITE_SOFT: "over the site's soft limit",
    Reason.SITE_HARD: "over the site's hard limit",
    Reason.BELOW_BAR: "below the bar of gathering",
    Reason.BELOW_SLEEP: "below the bar of sleeping",
    Reason.FILTER: "filter",
    Reason.DUPLICATE: "duplicate of an equivalent",
    Reason.DELETED: "deleted by an operator",
    Reason.DEAD: "dead error",
    Reason.PURGED: "purged by an operator",
    Reason.ROBOTS_DENIED: "robots denied",
    Reason.ROBOTS_UNREACHABLE: "robots unreachable",
    Reason.NO_ADDRESS: "address does not resolve",
    Reason.GUARD: "address refused by the guard",
    Reason.CONNECTION: "connection failed",
    Reason.DEADLINE: "deadline passed",
    Reason.TOO_SLOW: "too slow",
    Reason.MALFORMED: "answer malformed",
    Reason.CLIENT_ERROR: "client error (4xx)",
    Reason.SERVER_ERROR: "server error (5xx, 429)",
    Reason.DECODING: "decoding failed or too large",
    Reason.MOVES: "too many moves",
    Reason.TYPE: "type not wanted",
    Reason.REAPER_LOST: "reaper lost",
    Reason.SERVER_SOFT: "over the server's soft limit",
    Reason.SERVER_HARD: "over the server's hard limit",
    Reason.SECTION_SOFT: "over the section's soft limit",
    Reason.SECTION_HARD: "over the section's hard limit",
    Reason.SPACE: "no room for its body",
    Reason.FRESH: "too many new URLs of its site at once",
    Reason.SITE_EMPTY: "its site keeps nothing else",
    Reason.TLS: "certificate or TLS version refused",
    Reason.LOOKUP: "name servers do not answer",
    Reason.PARSER: "kills its parser",
}


class Deferred(IntEnum):
    """Why the last plan left out a row that was due."""

    NOT = 0
    NO_ADDRESS = 1
    ROBOTS_UNREACHABLE = 2
    SERVER_WAITS = 3
    SERVER_QUOTA = 4
    PLAN_FULL = 5


DEFERRED_TEXT: Final[dict[Deferred, str]] = {
    Deferred.NOT: "not deferred",
    Deferred.NO_ADDRESS: "address does not resolve",
    Deferred.ROBOTS_UNREACHABLE: "robots unreachable",
    Deferred.SERVER_WAITS: "server waits beyond the reap",
    Deferred.SERVER_QUOTA: "over the server's quota",
    Deferred.PLAN_FULL: "over the limit of the plan",
}


class Kind(IntEnum):
    """What a plan or journal record is about."""

    PAGE = 1
    ROBOTS = 2
    QKEY = 3
    RESUMED = 4


class Result(IntEnum):
    STORED = 1
    UNCHANGED = 2
    REDIRECT = 3
    DENIED = 4
    SOFT = 5
    HARD = 6
    SITE = 7
    CONNECTION = 8
    RESOLVED = 9
    UNRESOLVED = 10


class JournalFlag(IntFlag):
    CONTACTED = 1
    TRUNCATED = 2
    NOINDEX = 4
    PERMANENT = 8
    ELSEWHERE = 16
    HOP = 32
    STALE = 64


class Why(IntEnum):
    """Why a row was planned."""

    FORCED = 1
    OVERDUE = 2
    NEW = 3
    DUE = 4
    RETRY = 5
    ROBOTS = 6
    ANTICIPATED = 7


class ContribFlag(IntFlag):
    INSERTED = 1
    PINNED = 2
    PERMANENT = 4
    TEMPORARY = 8
    HTTPS = 16
    OWN_WEIGHT = 32
    CANONICAL = 64
    REQUISITE = 128


# --- object ids -------------------------------------------------------------------------------------------------

NO_OID: Final = 0xFFFFFFFFFFFFFFFF
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


# --- queue keys -------------------------------------------------------------------------------------------------

QKEY_IPV4: Final = 0x04
QKEY_IPV6: Final = 0x06
QKEY_NONE: Final = 0x7F


def qkey_unresolved(site: int) -> int:
    return QKEY_NONE << 56 | site & 0xFFFFFF


def is_resolved(qkey: int) -> bool:
    return qkey >> 56 != QKEY_NONE


def show_qkey(qkey: int) -> str:
    kind, value = qkey >> 56, qkey & (1 << 56) - 1
    if kind == QKEY_IPV4:
        return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
    if kind == QKEY_IPV6:
        return f"[v6:{value:014x}]"
    return f"7f{value & 0xFFFFFF:06x}?"


def empty(table: Mapping[str, str], rows: int = 0) -> dict[str, Array]:
    """All columns of a table, `rows` zeros long."""
    return {name: np.zeros(rows, dtype) for name, dtype in table.items()}
