"""The records of the plan: what was chosen, with all that the dispatcher needs to know of each row."""

from __future__ import annotations

import numpy as np

from shepherd.formats.tables import PLAN, U32, U64, Columns, Kind, Records, Why
from shepherd.phases.keys import find_rows
from shepherd.phases.plan import Chosen


def page_records(index: Columns, sites: Columns, chosen: Chosen, *, first_row: int) -> Records:
    """The records of the chosen pages that lie in one partition."""
    pages = chosen.pages
    mine = np.flatnonzero((pages.row >= first_row) & (pages.row < first_row + len(index["norm"])))
    records = _records(index, pages.row[mine].astype(np.int64) - first_row, first_row)
    records["qkey"] = sites["qkey"][pages.site_row[mine]]
    records["priority"] = pages.priority[mine]
    records["why"] = pages.why[mine]
    records["kind"] = Kind.PAGE
    return records


def robots_records(index: Columns, sites: Columns, chosen: Chosen, *, robots_path: int, first_row: int) -> Records:
    """The records of the robots files, of those sites whose robots row lies in one partition."""
    site_row = chosen.robots_site_row
    paths = np.full(len(site_row), robots_path, np.uint64)
    keys: tuple[U64, U64, U64] = (index["norm"], index["path"], index["site"])
    row = find_rows(*keys, sites["norm"][site_row], paths, sites["site"][site_row])
    mine = np.flatnonzero(row >= 0)
    records = _records(index, row[mine], first_row)
    records["qkey"] = sites["qkey"][site_row[mine]]
    records["priority"] = chosen.robots_priority[mine]
    records["why"] = Why.ROBOTS
    records["kind"] = Kind.ROBOTS
    return records


def best_first(parts: list[Records]) -> Records:
    """The plan as it is written."""
    records = np.concatenate(parts) if parts else np.zeros(0, PLAN)
    priority: U32 = records["priority"]
    return records[np.lexsort((records["row"], ~priority))]


def _records(index: Columns, rows: np.typing.NDArray[np.int64], first_row: int) -> Records:
    records = np.zeros(len(rows), PLAN)
    for name in ("norm", "path", "site", "oid", "digest", "weight", "flags", "section"):
        records[name] = index[name][rows]
    records["row"] = rows + first_row
    return records
