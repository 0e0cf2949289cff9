"""What a harvest changes in the index: the newest journal record of each row decides what the row now is.

A record settles a row only if it is newer than what the row knows, so a harvest taken in twice, or an old one taken in late,
changes nothing. A body that is stored stays stored until something better comes: failures only count, until there are too many.
And what it all came to, in the words of a reap's report: counts only, so always the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import find_rows, find_sites, pick, run_ends, run_starts, sort_order, with_flag
from shepherd.arrays.rows import OF_BODY, counts_as_gathered, end_s, has_body
from shepherd.formats import kinds
from shepherd.formats.journal import FAILED
from shepherd.formats.tables import (
    I64,
    NO_OID,
    U8,
    U32,
    U64,
    Array,
    Bools,
    Columns,
    Flag,
    JournalFlag,
    Kind,
    Reason,
    Records,
    Result,
    RowType,
)
from shepherd.formats.vocabulary import word
from shepherd.politeness.delays import believable_s

MAX_FREQUENCY = 4
UNMOVABLE = int(Flag.ROBOTS | Flag.EQUIV)  # (norm, path) does not distinguish these, so their site must stay
OF_A_BODY = int(Flag.TRUNCATED | Flag.NOINDEX | Flag.ELSEWHERE)
CHANGED = (
    *("site", "oid", "digest", "type", "reason", "flags", "status", "section", "frequency", "retry"),
    *("gathered", "checked", "changed", "touched", "download_ms", "size"),
)


@dataclass(frozen=True)
class Effects:
    """What settled rows mean to others: to the table of sites, to a second settling, to the report."""

    site_before: U64
    site: U64
    was_gathered: Bools  # as a gathered document of its site
    is_gathered: Bools
    robots: Mapping[str, U64]  # of robots files that came again as they were: site, the oid that came, the oid that stays
    strange: Records  # records of pages that have no row under their site
    counts: Mapping[str, int]  # how many records did what


@dataclass(frozen=True)
class SettledRows:
    """The rows of a partition that were settled, in order, and what they are now."""

    rows: I64
    columns: Mapping[str, Array]
    changed: frozenset[str]  # columns in which a value is another than before
    effects: Effects


def newest(journal: Records) -> Records:
    """The last record of each (norm, path, site, kind), in that order; journals come end to end, the older one first."""
    rows = np.flatnonzero(~with_flag(journal["flags"], JournalFlag.HOP))
    keys = [np.ascontiguousarray(journal[name])[rows] for name in ("norm", "path", "site", "kind")]
    order = sort_order(*keys)
    starts = run_starts(*(key[order] for key in keys))
    return pick(journal, rows[order[run_ends(starts)]])


def readdressed(journal: Records, strange: Records, site: U64) -> Records:
    """The journal with the pages of some (norm, path, site), in that order, at the sites that they have moved to."""
    keys = ([np.ascontiguousarray(part[name]) for name in ("norm", "path", "site")] for part in (strange, journal))
    place = find_rows(*next(keys), *next(keys))
    pages = np.flatnonzero((place >= 0) & (journal["kind"] == Kind.PAGE) & ~with_flag(journal["flags"], JournalFlag.HOP))
    journal = journal.copy()
    journal["site"][pages] = site[place[pages]]
    return journal


def apply_index(
    index: Columns, records: Records, sites: Columns, *, state: int, now_s: int, plan: config.Plan, politeness: config.Politeness
) -> SettledRows:
    """Settle the rows of one partition by those records of `newest` that fall into it.

    `sites` has at least the sites of the records, as `apply_sites` left them.
    """
    index = {**index, "checked": believable_s(index["checked"], now_s)}
    records = pick(records, (records["kind"] == Kind.PAGE) | (records["kind"] == Kind.ROBOTS))
    key = tuple(np.ascontiguousarray(records[name]) for name in ("norm", "path", "site"))
    row = find_rows(index["norm"], index["path"], index["site"], *key)
    unknown, strange = int(np.count_nonzero(row < 0)), pick(records, (row < 0) & (records["kind"] == Kind.PAGE))
    once = (row >= 0) & run_ends(run_starts(row))
    records, row = pick(records, once), row[once]

    settles = _settles(index, records, row, sites, politeness)
    records, row = pick(records, settles), row[settles]
    before = {name: index[name].take(row) for name in CHANGED}
    columns = {name: values.copy() for name, values in before.items()}
    result = records["result"]
    failed = np.isin(result, (Result.SOFT, Result.HARD, Result.SITE, Result.CONNECTION))
    for mask, settle in (
        (result == Result.STORED, _stored),
        (result == Result.REDIRECT, _redirected),
        (result == Result.UNCHANGED, _unchanged),
        (result == Result.DENIED, _denied),
        (failed, _failed),
    ):
        settle(columns, pick(records, mask), np.flatnonzero(mask), plan)
    columns["checked"] = end_s(records)
    columns["download_ms"] = records["download_ms"].copy()
    columns["flags"] &= np.uint16(0xFFFF ^ (Flag.REFRESH | Flag.MODIFIED))
    columns["touched"][:] = state
    counts = {word(kind): int(np.count_nonzero(result == kind)) for kind in Result}
    same_body = (result == Result.STORED) & (columns["oid"] != records["oid"])
    again = same_body & (records["kind"] == Kind.ROBOTS)
    counts["same body"] = int(np.count_nonzero(same_body))
    changed = frozenset(name for name in CHANGED if not np.array_equal(before[name], columns[name]))
    effects = Effects(
        site_before=before["site"],
        site=columns["site"],
        was_gathered=counts_as_gathered(before),
        is_gathered=counts_as_gathered(columns),
        robots={"site": records["site"][again], "came": records["oid"][again], "stays": columns["oid"][again]},
        strange=strange,
        counts=counts | {"unknown": unknown, "unsettled": int(np.count_nonzero(~settles))},
    )
    return SettledRows(row, columns, changed, effects)


def _settles(index: Columns, records: Records, row: I64, sites: Columns, politeness: config.Politeness) -> Bools:
    """False for records that say nothing new, or nothing of the page itself."""
    result, end = records["result"], end_s(records)
    lasting = np.isin(result, (Result.STORED, Result.UNCHANGED, Result.REDIRECT, Result.DENIED))
    checked = index["checked"].take(row)
    settles = (end > checked) | ((end == checked) & lasting)

    unreachable = (records["reason"] == Reason.ROBOTS_UNREACHABLE) & (records["kind"] == Kind.PAGE)
    silent = np.flatnonzero(settles & ~lasting & unreachable)
    site_row = find_sites(sites["site"], np.ascontiguousarray(records["site"][silent]))
    since = np.zeros(len(silent), np.int64)
    since[site_row >= 0] = sites["robots_since"][site_row[site_row >= 0]]
    settles[silent] = (since > 0) & (end[silent] - since >= politeness.robots_give_up_s)

    contacted = with_flag(records["flags"], JournalFlag.CONTACTED)
    never_begun = (result == Result.SOFT) & np.isin(records["reason"], (Reason.DEADLINE, Reason.LOOK_UPS)) & ~contacted
    type_, reason = index["type"].take(row), index["reason"].take(row)
    asked_to_go = (type_ == RowType.FORGOTTEN) & np.isin(reason, (Reason.DELETED, Reason.PURGED))
    taken_away = asked_to_go & (records["kind"] == Kind.PAGE)  # by an operator: no late harvest brings it back
    return np.asarray(settles & ~never_begun & ~taken_away)


def _stored(columns: dict[str, Array], records: Records, row: I64, plan: config.Plan) -> None:
    """What has the digest of the body that is there already leaves that one in place, and with it when it was fetched."""
    end = end_s(records)
    had_body = has_body({name: columns[name].take(row) for name in OF_BODY})
    differs = columns["digest"][row] != records["digest"]
    again = (columns["digest"][row] != 0) & (columns["gathered"][row] > 0)
    _adapt(columns, row, end, again & differs, again & ~differs & (columns["checked"][row] < end), plan)
    moved = _move(columns, records, row)
    same_body = had_body & ~differs & ~moved
    known_reason = np.where(columns["checked"][row] < end, np.uint8(Reason.UNCHANGED), columns["reason"][row])
    columns["changed"][row[differs]] = end[differs]
    columns["type"][row] = RowType.GATHERED
    columns["reason"][row] = np.where(moved, Reason.MOVED, np.where(same_body, known_reason, Reason.GATHERED))
    columns["retry"][row] = 0
    for name, field in (("digest", "digest"), ("status", "status"), ("section", "section")):
        columns[name][row] = records[field]
    other = ~same_body
    columns["gathered"][row[other]] = end[other]
    columns["oid"][row[other]] = records["oid"][other]
    columns["size"][row[other]] = records["stored_bytes"][other]
    flags = columns["flags"][row] & np.uint16(0xFFFF ^ (OF_A_BODY | Flag.REDIRECT))
    for record_flag, flag in (
        (JournalFlag.TRUNCATED, Flag.TRUNCATED),
        (JournalFlag.NOINDEX, Flag.NOINDEX),
        (JournalFlag.ELSEWHERE, Flag.ELSEWHERE),
    ):
        flags |= np.where(with_flag(records["flags"], record_flag), np.uint16(flag), np.uint16(0))
    columns["flags"][row] = flags


def _move(columns: dict[str, Array], records: Records, row: I64) -> Bools:
    """Oid and site go together: a page that answered at its equivalent is now a page of that site. Which rows moved."""
    moved = (records["answered"] != columns["site"][row]) & ~with_flag(columns["flags"][row], UNMOVABLE)
    columns["site"][row[moved]] = records["answered"][moved]
    return np.asarray(moved)


def _redirected(columns: dict[str, Array], records: Records, row: I64, plan: config.Plan) -> None:
    end = end_s(records)
    _move(columns, records, row)
    first = ~with_flag(columns["flags"][row], Flag.REDIRECT)
    columns["changed"][row[first]] = end[first]
    columns["type"][row] = RowType.GATHERED
    columns["reason"][row] = Reason.REDIRECT
    columns["status"][row] = records["status"]
    columns["gathered"][row] = end
    columns["retry"][row] = 0
    columns["digest"][row] = 0
    stored = (records["oid"] != NO_OID) & (records["answered"] == columns["site"][row])
    columns["oid"][row[stored]] = records["oid"][stored]
    columns["size"][row[stored]] = records["stored_bytes"][stored]
    columns["flags"][row] = columns["flags"][row] & np.uint16(0xFFFF ^ OF_A_BODY) | np.uint16(Flag.REDIRECT)


def _unchanged(columns: dict[str, Array], records: Records, row: I64, plan: config.Plan) -> None:
    end = end_s(records)
    nobody = np.zeros(len(row), np.bool_)
    _adapt(columns, row, end, nobody, columns["checked"][row] < end, plan)
    body = has_body({name: columns[name].take(row) for name in OF_BODY})
    columns["type"][row[body]] = RowType.GATHERED
    columns["reason"][row] = Reason.UNCHANGED
    columns["retry"][row] = 0


def _denied(columns: dict[str, Array], records: Records, row: I64, plan: config.Plan) -> None:
    columns["type"][row] = RowType.ERROR
    columns["reason"][row] = Reason.ROBOTS_DENIED


def _failed(columns: dict[str, Array], records: Records, row: I64, plan: config.Plan) -> None:
    retry = np.minimum(columns["retry"][row].astype(np.int64) + 1, 255)
    columns["retry"][row] = retry
    spared = (columns["type"][row] == RowType.GATHERED) & (records["result"] != Result.HARD) & (retry < plan.max_retries)
    spared &= records["reason"] != Reason.ROBOTS_UNREACHABLE
    columns["type"][row[~spared]] = RowType.ERROR
    columns["reason"][row] = records["reason"]
    answered = records["status"] > 0
    columns["status"][row[answered]] = records["status"][answered]


def _adapt(columns: dict[str, Array], row: I64, end: U32, differs: Bools, same: Bools, plan: config.Plan) -> None:
    """Twice as often after a change, half as often after two refresh cycles without one."""
    old: U8 = np.maximum(columns["frequency"][row], 1)
    stable = same & (end.astype(np.int64) - columns["changed"][row] >= 2 * plan.refresh_s)
    new = np.where(differs, np.minimum(old * 2, MAX_FREQUENCY), np.where(stable, np.maximum(old // 2, 1), old))
    columns["frequency"][row] = new


# --- what a journal came to ---------------------------------------------------------------------------------------


def outcomes(journal: Records) -> dict[str, dict[str, int]]:
    """Contacts by HTTP status (`none` = no answer), and failures by class; those that there were none of are left out."""
    contacted = with_flag(journal["flags"], JournalFlag.CONTACTED) & np.isin(journal["kind"], (Kind.PAGE, Kind.ROBOTS))
    failed = ~with_flag(journal["flags"], JournalFlag.HOP) & np.isin(journal["result"], list(FAILED))
    statuses, reasons = _counts(journal["status"][contacted]), _counts(journal["reason"][failed])
    errors = {kinds.REASON.text(reason): count for reason, count in reasons.items()}
    classes = {
        "statuses": {str(status or "none"): count for status, count in statuses.items()},
        "errors": dict(sorted(errors.items())),
    }
    return {name: counts for name, counts in classes.items() if counts}


def _counts(values: Array) -> dict[int, int]:
    counts = np.bincount(values)
    return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
