"""Small random databases as lists of plain rows, and the same as columns: what the models of the phases work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shepherd.formats.tables import INDEX, NO_LIMIT, NO_OID, SERVERS, SITES, Array, Columns, Flag, Reason, RowType, bucket_oid

Row = dict[str, int]

ROBOTS_PATH, ROOT_PATH = 7, 3
REASONS = (Reason.LINK, Reason.GATHERED, Reason.ROBOTS_DENIED, Reason.SERVER_ERROR, Reason.DELETED, Reason.PURGED)
PATHS = st.sampled_from([1, 2, ROOT_PATH, 4, 5, 6, ROBOTS_PATH, 2**63, 2**64 - 1])
NORMS = st.sampled_from([10, 11, 2**63 + 1])


def site_of(norm: int, which: int) -> int:
    """Sites are grouped under their norm: two of each."""
    return norm + (1 << 40) + (which << 8)


SITES_OF_ALL = [site_of(norm, which) for norm in (10, 11, 2**63 + 1) for which in (0, 1)]


def columns(table: Mapping[str, str], rows: Iterable[Mapping[str, int]]) -> dict[str, Array]:
    rows = list(rows)
    return {name: np.array([row[name] for row in rows], dtype) for name, dtype in table.items()}


def rows_of(table: Columns) -> list[Row]:
    names = list(table)
    return [dict(zip(names, values, strict=True)) for values in zip(*(table[name].tolist() for name in names), strict=True)]


FIRSTS = np.array([site_of(10, 1), site_of(11, 1)], np.uint64)  # sites that stand for their class, in models that know of any


def key(row: Mapping[str, int]) -> tuple[int, int, int]:
    return row["norm"], row["path"], row["site"]


@st.composite
def index_row(draw: st.DrawFn, now_s: int = 100_000) -> Row:
    norm, path = draw(NORMS), draw(PATHS)
    type_ = draw(st.sampled_from(list(RowType)))
    some = (Flag.INITIAL, Flag.PINNED, Flag.REFRESH, Flag.REDIRECT, Flag.MODIFIED, Flag.UNREFERENCED)
    flags = draw(st.sampled_from([0, 0, 0, *map(int, some)]))
    if path == ROBOTS_PATH:
        flags |= Flag.ROBOTS
    if path == ROOT_PATH:
        flags |= Flag.EQUIV
    body = type_ == RowType.GATHERED or draw(st.booleans())
    return dict.fromkeys(INDEX, 0) | {
        "norm": norm,
        "path": path,
        "site": site_of(norm, draw(st.integers(0, 1))),
        "oid": bucket_oid(1, draw(st.integers(0, 1 << 20))),
        "digest": draw(st.integers(1, 3)) if body else 0,
        "type": type_,
        "reason": draw(st.sampled_from(REASONS)),
        "flags": flags,
        "weight": draw(st.integers(0, 5)),
        "frequency": draw(st.sampled_from([1, 2, 4])),
        "retry": draw(st.integers(0, 5)),
        "gathered": draw(st.integers(1, now_s)) if body else 0,
        "checked": draw(st.sampled_from([0, now_s - 50, now_s - 900, now_s - 1_000, now_s - 1_500, now_s - 3_000, now_s + 5])),
        "changed": draw(st.integers(0, now_s)),
        "touched": 1,
    }


def index_rows(min_size: int = 0, max_size: int = 25) -> st.SearchStrategy[list[Row]]:
    return st.lists(index_row(), min_size=min_size, max_size=max_size, unique_by=key).map(lambda rows: sorted(rows, key=key))


@st.composite
def site_rows(draw: st.DrawFn, now_s: int = 100_000) -> list[Row]:
    times = st.sampled_from([0, now_s - 500, now_s, now_s + 500])
    limits = st.sampled_from([NO_LIMIT, NO_LIMIT, 0, 1, 2, 4])
    rows = []
    for site in sorted(SITES_OF_ALL):
        norm = next(norm for norm in (10, 11, 2**63 + 1) if site in (site_of(norm, 0), site_of(norm, 1)))
        qkey = draw(st.sampled_from([4 << 56 | 1, 4 << 56 | 2, 4 << 56 | 9, 0x7F << 56 | site & 0xFFFFFF]))
        rows.append(
            dict.fromkeys(SITES, 0)
            | {
                "site": site,
                "norm": norm,
                "qkey": qkey,
                "robots_oid": NO_OID,
                "qkey_checked": draw(times),
                "qkey_next": draw(times),
                "robots_checked": draw(times),
                "robots_next": draw(times),
                "robots_since": draw(st.sampled_from([0, 0, now_s - 700])),
                "crawl_delay_ms": draw(st.sampled_from([0, 0, 30_000, 900_000])),
                "pause_s": draw(st.sampled_from([0, 0, 900, 90_000])),
                "pause_end": draw(st.sampled_from([0, now_s + 60, now_s + 10**6])),
                "delay_ms": draw(st.sampled_from([NO_LIMIT, NO_LIMIT, 0, 2_000])),
                "avg_ms": draw(st.sampled_from([0, 500])),
                "slots": draw(st.sampled_from([0, 0, 3])),
                "group": draw(st.sampled_from([0, 0, 2**63 + 5])),
                "soft_limit": draw(limits),
                "hard_limit": draw(limits),
            }
        )
    return rows


@st.composite
def server_rows(draw: st.DrawFn, now_s: int = 100_000) -> list[Row]:
    chosen = draw(st.sets(st.sampled_from([4 << 56 | 1, 4 << 56 | 2])))
    return [
        dict.fromkeys(SERVERS, 0)
        | {
            "qkey": qkey,
            "next_ms": draw(st.sampled_from([0, now_s * 1000 + 10_000, now_s * 1000 + 10**9])),
            "delay_ms": draw(st.sampled_from([0, 10_000, 20_000])),
            "avg_ms": draw(st.sampled_from([0, 500])),
            "slots": draw(st.integers(1, 2)),
            "backoff": draw(st.integers(0, 2)),
        }
        for qkey in sorted(chosen)
    ]


def same_columns(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name]) for name in left
    )
