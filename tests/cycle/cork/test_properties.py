"""Cork against plain dictionaries, and its laws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd import config
from shepherd.cycle.cork import rules as cork
from shepherd.formats.tables import (
    INDEX,
    JOURNAL,
    NO_LIMIT,
    NO_OID,
    SERVERS,
    SITES,
    Flag,
    JournalFlag,
    Kind,
    Reason,
    Records,
    Result,
    RowType,
    bucket_oid,
)
from shepherd.politeness import contacts
from tests.support.random_rows import (
    ROBOTS_PATH,
    Row,
    columns,
    index_rows,
    key,
    rows_of,
    same_columns,
    server_rows,
    site_of,
    site_rows,
)

NOW_S, STATE = 100_000, 9
PLAN = config.Plan(refresh_s=1_000, max_retries=4)
POLITENESS = config.Politeness(delay_s=10.0, max_backoff=3, robots_give_up_s=5_000)
BOUND_S = POLITENESS.neighbours_s
FAILED = (Result.SOFT, Result.HARD, Result.SITE, Result.CONNECTION)
PAGE_RESULTS = [Result.STORED, Result.UNCHANGED, Result.REDIRECT, Result.DENIED, *FAILED]
REASONS = [Reason.SERVER_ERROR, Reason.CONNECTION, Reason.ROBOTS_UNREACHABLE, Reason.DEADLINE, Reason.CLIENT_ERROR]


@st.composite
def record(draw: st.DrawFn, index: list[Row]) -> Row:
    row = draw(st.sampled_from(index))
    which = site_of(row["norm"], draw(st.integers(0, 1)))
    kind = Kind.ROBOTS if row["path"] == ROBOTS_PATH else Kind.PAGE
    end_ms = draw(st.integers(NOW_S - 1_000, NOW_S + 9_000)) * 1000 + 7
    contacted = draw(st.booleans())
    flags = draw(st.sampled_from([0, JournalFlag.TRUNCATED, JournalFlag.NOINDEX | JournalFlag.ELSEWHERE, JournalFlag.HOP]))
    common = dict.fromkeys(JOURNAL.names or (), 0) | {
        "norm": row["norm"],
        "path": row["path"],
        "site": row["site"],
        "oid": NO_OID,
    }
    common |= {"answered": row["site"], "end_ms": end_ms, "qkey": 4 << 56 | draw(st.integers(1, 3)), "kind": kind}
    if draw(st.integers(0, 9)) == 0:
        result = draw(st.sampled_from([Result.RESOLVED, Result.UNRESOLVED]))
        return common | {"path": 0, "kind": Kind.QKEY, "result": result, "valid_s": draw(st.sampled_from([0, 60]))}
    result = draw(st.sampled_from(PAGE_RESULTS))
    return common | {
        "answered": which if result in (Result.STORED, Result.REDIRECT) else row["site"],
        "oid": bucket_oid(2, draw(st.integers(0, 9))) if result in (Result.STORED, Result.REDIRECT) else NO_OID,
        "digest": draw(st.integers(1, 3)),
        "download_ms": draw(st.integers(1, 900)),
        "stored_bytes": draw(st.integers(64, 99)),
        "retry_after_s": draw(st.sampled_from([0, 0, 100])),
        "crawl_delay_ms": draw(st.sampled_from([0, 30_000])),
        "status": draw(st.sampled_from([0, 200, 404, 429, 503])),
        "flags": int(flags) | (JournalFlag.CONTACTED if contacted else 0),
        "result": result,
        "reason": draw(st.sampled_from(REASONS)) if result in FAILED else 0,
        "section": 2,
    }


def journal_of(rows: list[Row]) -> Records:
    records = np.zeros(len(rows), JOURNAL)
    for number, row in enumerate(rows):
        for name, value in row.items():
            records[number][name] = value
    return records


Case = tuple[list[Row], list[Row]]
CASES = index_rows(min_size=1, max_size=8).flatmap(lambda index: st.tuples(st.just(index), st.lists(record(index), max_size=12)))


def naive_newest(records: list[Row]) -> list[Row]:
    last = {(*key(row), row["kind"]): row for row in records if not row["flags"] & JournalFlag.HOP}
    return [last[name] for name in sorted(last)]


def naive_cork(index: list[Row], records: list[Row], sites: list[Row]) -> list[Row]:
    rows = {key(row): dict(row) for row in index}
    since = {site["site"]: site["robots_since"] for site in sites}
    for record in naive_newest(records):
        if record["kind"] == Kind.QKEY:
            continue
        row, end, result = rows[key(record)], record["end_ms"] // 1000, record["result"]
        if end < row["checked"] or (end == row["checked"] and result in FAILED):
            continue
        unreachable = record["reason"] == Reason.ROBOTS_UNREACHABLE and record["kind"] == Kind.PAGE
        silent_since = since[record["site"]]
        if result in FAILED and unreachable and not (silent_since and end - silent_since >= POLITENESS.robots_give_up_s):
            continue
        if result == Result.SOFT and record["reason"] == Reason.DEADLINE and not record["flags"] & JournalFlag.CONTACTED:
            continue
        if row["type"] == RowType.FORGOTTEN and row["reason"] in (Reason.DELETED, Reason.PURGED) and record["kind"] == Kind.PAGE:
            continue
        settle(row, record, end)
        row.update(
            checked=end, download_ms=record["download_ms"], touched=STATE, flags=row["flags"] & ~(Flag.REFRESH | Flag.MODIFIED)
        )
    return [rows[key(row)] for row in index]


def settle(row: Row, record: Row, end: int) -> None:
    result = record["result"]
    of_a_body = Flag.TRUNCATED | Flag.NOINDEX | Flag.ELSEWHERE
    if result == Result.STORED:
        differs = row["digest"] != record["digest"]
        if row["digest"] and row["gathered"] and (differs or row["checked"] < end):
            adapt(row, end, differs)
        moved = record["answered"] != row["site"] and not row["flags"] & (Flag.ROBOTS | Flag.EQUIV)
        if moved:
            row["site"] = record["answered"]
        if differs:
            row["changed"] = end
        if row["digest"] and row["gathered"] and not differs and not moved:  # its body is there already
            row["reason"] = Reason.UNCHANGED if row["checked"] < end else row["reason"]
        else:
            row.update(reason=Reason.MOVED if moved else Reason.GATHERED, gathered=end)
            row.update(oid=record["oid"], size=record["stored_bytes"])
        row.update(type=RowType.GATHERED, retry=0, digest=record["digest"], status=record["status"], section=2)
        row["flags"] &= ~(of_a_body | Flag.REDIRECT)
        for told in ("TRUNCATED", "NOINDEX", "ELSEWHERE"):
            if record["flags"] & JournalFlag[told]:
                row["flags"] |= Flag[told]
    elif result == Result.UNCHANGED:
        if row["checked"] < end:
            adapt(row, end, differs=False)
        if row["digest"] and row["gathered"]:
            row["type"] = RowType.GATHERED
        row.update(reason=Reason.UNCHANGED, retry=0)
    elif result == Result.REDIRECT:
        if not row["flags"] & Flag.REDIRECT:
            row["changed"] = end
        row.update(type=RowType.GATHERED, reason=Reason.REDIRECT, gathered=end, retry=0, digest=0, status=record["status"])
        row["flags"] = row["flags"] & ~of_a_body | Flag.REDIRECT
        if not row["flags"] & (Flag.ROBOTS | Flag.EQUIV):
            row["site"] = record["answered"]
        if row["site"] == record["answered"]:  # else the bucket is of another site, and the row keeps its own
            row.update(oid=record["oid"], size=record["stored_bytes"])
    elif result == Result.DENIED:
        row.update(type=RowType.ERROR, reason=Reason.ROBOTS_DENIED)
    else:
        row["retry"] = min(row["retry"] + 1, 255)
        hard = result == Result.HARD or record["reason"] == Reason.ROBOTS_UNREACHABLE
        if row["type"] != RowType.GATHERED or hard or row["retry"] >= PLAN.max_retries:
            row["type"] = RowType.ERROR
        row["reason"] = record["reason"]
        row["status"] = record["status"] or row["status"]


def adapt(row: Row, end: int, differs: bool) -> None:
    if differs:
        row["frequency"] = min(row["frequency"] * 2, 4)
    elif end - row["changed"] >= 2 * PLAN.refresh_s:
        row["frequency"] = max(row["frequency"] // 2, 1)


def run(index: list[Row], journal: Records, sites: list[Row]) -> list[Row]:
    part = columns(INDEX, index)
    known = columns(SITES, sites)
    corked = cork.apply_index(
        part, cork.newest(journal), known, state=STATE, now_s=NOW_S + 9_000, plan=PLAN, politeness=POLITENESS
    )
    new = {name: column.copy() for name, column in part.items()}
    for name, values in corked.columns.items():
        new[name][corked.rows] = values
        assert name in corked.changed or np.array_equal(new[name], part[name])
    return rows_of(new)


@given(CASES, site_rows())
def test_cork_agrees_with_a_dictionary(case: Case, sites: list[Row]) -> None:
    index, records = case
    assert run(index, journal_of(records), sites) == naive_cork(index, records, sites)


@given(CASES, site_rows())
def test_cork_of_cork_changes_nothing(case: Case, sites: list[Row]) -> None:
    index, records = case
    # A row that moved is looked for where it was, so the second run speaks of rows that did not move.
    records = [dict(record, answered=record["site"]) for record in records]
    once = run(index, journal_of(records), sites)
    assert run(once, journal_of(records), sites) == once


@given(CASES, site_rows())
def test_the_order_of_the_index_survives_moves(case: Case, sites: list[Row]) -> None:
    index, records = case
    one_row_each = {(row["norm"], row["path"]): row for row in index if row["path"] != 3 and row["path"] != ROBOTS_PATH}
    index = sorted(one_row_each.values(), key=key)
    records = [record for record in records if key(record) in {key(row) for row in index}]
    moved = run(index, journal_of(records), sites)
    assert [key(row) for row in moved] == sorted(key(row) for row in moved)


@given(CASES)
def test_newest_keeps_the_last_record_and_no_hop(case: Case) -> None:
    _, records = case
    assert np.array_equal(cork.newest(journal_of(records)), journal_of(naive_newest(records)))


def slow_down(record: Row) -> bool:
    return record["result"] == Result.CONNECTION or record["status"] in (429, 503)


def naive_sites(sites: list[Row], records: list[Row]) -> list[Row]:
    rows = {site["site"]: dict(site) for site in sites}
    for record in naive_newest(records):
        row, end = rows[record["site"]], record["end_ms"] // 1000
        if record["kind"] == Kind.QKEY:
            if end < row["qkey_checked"]:
                continue
            resolved = record["result"] == Result.RESOLVED
            wait = record["valid_s"] or (POLITENESS.qkey_ttl_s if resolved else POLITENESS.qkey_retry_s)
            row.update(qkey=record["qkey"] if resolved else 0x7F << 56 | record["site"] & 0xFFFFFF)
            row.update(qkey_checked=end, qkey_next=end + wait)
        elif record["kind"] == Kind.ROBOTS:
            stored, same = record["result"] == Result.STORED, record["result"] == Result.UNCHANGED
            refused = record["result"] == Result.HARD and 400 <= record["status"] < 500 and record["status"] != 429
            absent = refused or record["result"] == Result.REDIRECT
            if end < row["robots_checked"] or (end == row["robots_checked"] and not (stored or same or absent)):
                continue
            if not (stored or same or absent):
                row.update(robots_next=end + POLITENESS.robots_retry_s, robots_since=row["robots_since"] or end, robots_status=0)
                continue
            row.update(robots_checked=end, robots_next=end + POLITENESS.robots_ttl_s, robots_since=0)
            row.update(robots_status=record["status"], crawl_delay_ms=0 if absent else record["crawl_delay_ms"])
            if not same:
                row["robots_oid"] = record["oid"] if stored else NO_OID
        elif record["oid"] != NO_OID and record["answered"] != record["site"]:
            row["moves"] += 1
    for record in records:
        row = rows.get(record["answered"], {})
        if row and is_contact(record):
            crawl_s = -(-row["crawl_delay_ms"] // 1000) if row["crawl_delay_ms"] > BOUND_S * 1000 else 0
            asked_s = max(min(record["retry_after_s"], 86_400), crawl_s)
            end = -(-record["end_ms"] // 1000) + asked_s
            if asked_s and end > row["pause_end"]:
                row.update(pause_s=asked_s, pause_end=end)
    for row in rows.values():
        row["avg_ms"] = naive_average(row["avg_ms"], [record for record in records if record["site"] == row["site"]])
    return [rows[site] for site in sorted(rows)]


def naive_average(old: int, records: list[Row]) -> int:
    times = [record["download_ms"] for record in records if is_contact(record)]
    if not times:
        return old
    return (7 * old + sum(times) // len(times)) // 8 if old else sum(times) // len(times)


def is_contact(record: Row) -> bool:
    seen = record["flags"] & JournalFlag.CONTACTED or record["result"] == Result.CONNECTION
    return bool(seen) and record["kind"] != Kind.QKEY


def naive_servers(servers: list[Row], sites: list[Row], records: list[Row]) -> list[Row]:
    rows = {server["qkey"]: dict(server) for server in servers}
    contact = [record for record in records if is_contact(record)]
    resolved = [site["qkey"] for site in sites if site["qkey"] >> 56 != 0x7F]
    for qkey in resolved + [record["qkey"] for record in contact]:
        rows.setdefault(qkey, dict.fromkeys(SERVERS, 0) | {"qkey": qkey, "delay_ms": 10_000, "slots": 1})
    for qkey, row in rows.items():
        own = [site for site in sites if site["qkey"] == qkey]
        delays = [
            max(10_000 if site["delay_ms"] == NO_LIMIT else site["delay_ms"], min(site["crawl_delay_ms"], BOUND_S * 1000))
            for site in own
        ]
        row["delay_ms"] = max(delays, default=row["delay_ms"])
        row["slots"] = max([1, *(site["slots"] for site in own)])
        row["group"] = max([0, *(site["group"] for site in own)])
        mine = [record for record in contact if record["qkey"] == qkey]
        for record in mine:
            row["fetches"] += 1
            row["errors"] += record["result"] in FAILED
            row["backoff"] = row["backoff"] + 1 if slow_down(record) else 0
        row["backoff"] = min(row["backoff"], POLITENESS.max_backoff)
        row["avg_ms"] = naive_average(row["avg_ms"], mine)
        if mine:
            row["next_ms"] = max(record["end_ms"] for record in mine) + (row["delay_ms"] << row["backoff"])
    return [rows[qkey] for qkey in sorted(rows)]


@given(CASES, site_rows(), server_rows())
def test_sites_and_servers_agree_with_a_dictionary(case: Case, sites: list[Row], servers: list[Row]) -> None:
    _, records = case
    journal, site_columns, server_columns = journal_of(records), columns(SITES, sites), columns(SERVERS, servers)
    copies = [{name: column.copy() for name, column in table.items()} for table in (site_columns, server_columns)]
    updated = site_columns | contacts.apply_sites(site_columns, journal, cork.newest(journal), POLITENESS)
    assert rows_of(updated) == naive_sites(sites, records)
    found = contacts.apply_servers(server_columns, updated, journal, POLITENESS)
    assert rows_of(found) == naive_servers(servers, rows_of(updated), records)
    assert same_columns(site_columns, copies[0]) and same_columns(server_columns, copies[1])
    assert all(found[name].dtype == np.dtype(dtype) for name, dtype in SERVERS.items())
    assert all(updated[name].dtype == np.dtype(dtype) for name, dtype in SITES.items())
