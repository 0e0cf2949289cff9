"""Merge against plain dictionaries, and its laws."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.distinct_urls import Paths
from shepherd.cycle.merge import rules as merge
from shepherd.cycle.merge.edits import EDIT, Op
from shepherd.cycle.merge.rules import MergedRows
from shepherd.formats.tables import (
    INDEX,
    NO_OID,
    SACRED,
    U64,
    Array,
    Columns,
    ContribFlag,
    Flag,
    Reason,
    Records,
    RowType,
    bucket_oid,
    contrib_oid,
)
from tests.support.random_rows import (
    FIRSTS,
    NORMS,
    PATHS,
    ROBOTS_PATH,
    ROOT_PATH,
    Row,
    columns,
    index_rows,
    key,
    rows_of,
    same_columns,
    site_of,
)

MAX_RETRIES, STATE, NOW_S = 4, 9, 9_999
CONTRIB = dict.fromkeys(("norm", "path", "site", "oid"), "<u8") | {
    "lastmod": "<u4",
    "weight": "<u2",
    "section": "u1",
    "flags": "<u2",
}
SPECIAL = Paths(robots=ROBOTS_PATH, root=ROOT_PATH)
NO_EDITS = np.zeros(0, EDIT)


@st.composite
def contribution(draw: st.DrawFn) -> Row:
    norm = draw(NORMS)
    flags = draw(st.sampled_from([0, 0, 0, ContribFlag.HTTPS, ContribFlag.INSERTED, ContribFlag.INSERTED | ContribFlag.PINNED]))
    return {
        "norm": norm,
        "path": draw(PATHS),
        "site": site_of(norm, draw(st.integers(0, 1))),
        "oid": contrib_oid(3, draw(st.integers(0, 1_000))),
        "lastmod": draw(st.sampled_from([0, 0, 97_000, 98_000, 99_950, 99_951, 100_000])),
        "weight": draw(st.integers(1, 5)),
        "section": 0,
        "flags": int(flags),
    }


CONTRIBUTIONS = st.lists(contribution(), max_size=15, unique_by=lambda row: row["oid"])


def rank(row: Row) -> int:
    """What an operator asked to go stands for its document."""
    return {Reason.PURGED: 0, Reason.DELETED: 1}.get(Reason(row["reason"]), 2) if row["type"] == RowType.FORGOTTEN else 2


def document(row: Row) -> tuple[int, ...]:
    return key(row) if row["path"] in (ROBOTS_PATH, ROOT_PATH) else (row["norm"], row["path"])


def naive_merge(index: list[Row], contributed: list[Row]) -> list[Row]:
    rows: dict[tuple[int, ...], Row] = {}
    alive = [
        row
        for row in index
        if not (row["type"] == RowType.FORGOTTEN and row["reason"] not in (Reason.DELETED, Reason.PURGED))
        and not (
            row["type"] == RowType.ERROR
            and row["retry"] >= MAX_RETRIES
            and not row["flags"] & (Flag.INITIAL | Flag.PINNED | Flag.ROBOTS)
        )
    ]
    for name in {document(row) for row in alive}:
        same = [row for row in alive if document(row) == name]
        same.sort(
            key=lambda row: (
                *(rank(row), row["type"] != RowType.GATHERED, row["site"] not in FIRSTS.tolist()),
                *(not row["flags"] & SACRED, -row["weight"], row["site"]),
            )
        )
        best = dict(same[0])
        if len(same) > 1:
            best["weight"] = max(row["weight"] for row in same)
            for row in same:
                best["flags"] |= row["flags"] & (Flag.INITIAL | Flag.PINNED)
            best["touched"] = STATE
        rows[name] = best
    for name in {document(row) for row in contributed}:
        same = [row for row in contributed if document(row) == name]
        same.sort(
            key=lambda row: (
                *(not row["flags"] & ContribFlag.INSERTED, row["site"] not in FIRSTS.tolist(), -row["weight"]),
                *(not row["flags"] & ContribFlag.HTTPS, row["site"], row["oid"]),
            )
        )
        weight = max(row["weight"] for row in same)
        inserted = any(row["flags"] & ContribFlag.INSERTED for row in same)
        pinned = any(row["flags"] & ContribFlag.PINNED for row in same)
        wishes = (Flag.INITIAL if inserted else 0) | (Flag.PINNED if pinned else 0)
        if name in rows:
            row = rows[name]
            if rank(row) == 0:
                continue  # purged: kept out for ever
            old = dict(row)
            if inserted or row["type"] not in (RowType.GATHERED, RowType.FORGOTTEN):
                row["weight"] = max(row["weight"], weight)
            row["flags"] = row["flags"] & ~Flag.UNREFERENCED | wishes
            newest = max(one["lastmod"] for one in same)
            if row["type"] == RowType.GATHERED and not row["flags"] & Flag.ROBOTS and newest > row["checked"]:
                row["flags"] |= Flag.MODIFIED
            if inserted and row["type"] == RowType.FORGOTTEN:
                row.update(oid=same[0]["oid"], digest=0, gathered=0)
            if inserted and row["type"] in (RowType.ERROR, RowType.FORGOTTEN):
                row.update(type=RowType.UNGATHERED, reason=Reason.INSERTED, retry=0)
            if row != old:
                row["touched"] = STATE
            continue
        special = {ROBOTS_PATH: Flag.ROBOTS, ROOT_PATH: Flag.EQUIV}.get(same[0]["path"], 0)
        rows[name] = dict.fromkeys(INDEX, 0) | {
            "norm": same[0]["norm"],
            "path": same[0]["path"],
            "site": same[0]["site"],
            "oid": same[0]["oid"],
            "type": RowType.UNGATHERED,
            "reason": Reason.INSERTED if inserted else Reason.LINK,
            "flags": int(wishes | special),
            "weight": weight,
            "frequency": 1,
            "touched": STATE,
        }
    return sorted(naive_robots(list(rows.values())), key=key)


def naive_robots(rows: list[Row]) -> list[Row]:
    """A site has a robots row exactly while it has another row."""
    found = []
    for norm, site in {(row["norm"], row["site"]) for row in rows}:
        mine = [row for row in rows if row["site"] == site]
        robots = [row for row in mine if row["flags"] & Flag.ROBOTS]
        if len(robots) == len(mine):
            continue
        found += mine
        if not robots:
            fact = known_robots(site)
            have = {"oid": fact, "type": RowType.GATHERED, "reason": Reason.GATHERED, "status": 200, "size": 60, "digest": 5}
            have |= dict.fromkeys(("gathered", "checked", "changed"), 700)
            none = {"oid": NO_OID, "type": RowType.UNGATHERED, "reason": Reason.LINK}
            blank = {"norm": norm, "path": ROBOTS_PATH, "site": site, "flags": int(Flag.ROBOTS), "frequency": 1, "touched": STATE}
            found.append(dict.fromkeys(INDEX, 0) | blank | (none if fact == NO_OID else have))
    return found


def known_robots(site: int) -> int:
    """Of half of the sites somebody has fetched the robots file already."""
    return bucket_oid(2, 64) if site >> 8 & 1 else NO_OID


def robots_facts(site: U64) -> Columns:
    facts = {"status": 200, "checked": 700, "gathered": 700, "changed": 700, "size": 60, "digest": 5}
    columns = {name: np.full(len(site), value, np.uint64) for name, value in facts.items()}
    return columns | {"oid": np.array([known_robots(one) for one in site.tolist()], np.uint64)}


def merged_of(index: list[Row], contributed: list[Row], asked: Records = NO_EDITS) -> MergedRows:
    return merge.merge(
        columns(INDEX, index),
        columns(CONTRIB, contributed),
        asked,
        robots_facts,
        SPECIAL,
        FIRSTS,
        state=STATE,
        now_s=NOW_S,
        max_retries=MAX_RETRIES,
    )


def run(index: list[Row], contributed: list[Row]) -> dict[str, Array]:
    return dict(merged_of(index, contributed).columns)


@given(index_rows(), CONTRIBUTIONS)
def test_merge_agrees_with_a_dictionary(index: list[Row], contributed: list[Row]) -> None:
    assert rows_of(run(index, contributed)) == naive_merge(index, contributed)


@given(index_rows(), CONTRIBUTIONS)
def test_merge_is_idempotent(index: list[Row], contributed: list[Row]) -> None:
    once = rows_of(run(index, contributed))
    assert rows_of(run(once, [])) == once
    assert rows_of(run(once, contributed)) == once


@given(index_rows(), CONTRIBUTIONS, st.randoms(use_true_random=False))
def test_the_order_of_contributions_does_not_matter(index: list[Row], contributed: list[Row], random: object) -> None:
    shuffled = list(contributed)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert same_columns(run(index, contributed), run(index, shuffled))


@given(index_rows(), CONTRIBUTIONS, st.integers(0, 15))
def test_merge_in_two_steps_has_the_same_documents(index: list[Row], contributed: list[Row], cut: int) -> None:
    """Which of equivalent sites stands for a document, and has a robots row, depends on who came first; the documents do not."""
    at_once = rows_of(run(index, contributed))
    in_steps = rows_of(run(rows_of(run(index, contributed[:cut])), contributed[cut:]))
    once, twice = ([document(row) for row in rows if row["path"] != ROBOTS_PATH] for rows in (at_once, in_steps))
    assert once == twice


@given(index_rows(), CONTRIBUTIONS)
def test_rows_are_in_order_and_a_document_has_one(index: list[Row], contributed: list[Row]) -> None:
    before = columns(INDEX, index)
    copy = {name: column.copy() for name, column in before.items()}
    new = columns(CONTRIB, contributed)
    settings = {"state": STATE, "now_s": NOW_S, "max_retries": MAX_RETRIES}
    merged = merge.merge(before, new, NO_EDITS, robots_facts, SPECIAL, FIRSTS, **settings)
    rows = rows_of(dict(merged.columns))
    assert [key(row) for row in rows] == sorted({key(row) for row in rows})
    assert len({document(row) for row in rows}) == len(rows)
    assert len(rows) == len(index) - merged.counts["dropped"] + merged.counts["new"] + merged.counts["new robots files"]
    assert same_columns(before, copy)


@given(index_rows(), CONTRIBUTIONS, st.lists(st.tuples(NORMS, PATHS, st.integers(0, 1), st.sampled_from(list(Op))), max_size=6))
def test_sites_are_counted_as_by_a_dictionary(
    index: list[Row], contributed: list[Row], wishes: list[tuple[int, int, int, Op]]
) -> None:
    asked = edits_of(wishes)
    merged = merged_of(index, contributed, asked)
    rows = rows_of(dict(merged.columns))
    counted = {}
    for site in {row["site"] for row in rows}:
        mine = [row for row in rows if row["site"] == site]
        gathered = [row for row in mine if row["type"] == RowType.GATHERED and not row["flags"] & Flag.ROBOTS]
        counted[site] = (mine[0]["norm"], len(mine), len(gathered), 1)
    sites = merged.sites
    assert sites.site.tolist() == sorted(counted)
    told = zip(*(getattr(sites, name).tolist() for name in ("norm", "documents", "gathered", "robots")), strict=True)
    assert list(told) == [counted[site] for site in sites.site.tolist()]


def edits_of(wishes: list[tuple[int, int, int, Op]]) -> Records:
    records = np.zeros(len(wishes), EDIT)
    for n, (norm, path, which, op) in enumerate(wishes):
        records[n] = (norm, path, site_of(norm, which), 99_500, n % 3 + 1, op, 0)
    return records[np.argsort(records["norm"], kind="stable")]


@given(index_rows(), st.lists(st.tuples(NORMS, PATHS, st.integers(0, 1), st.sampled_from(list(Op))), max_size=6))
def test_edits_agree_with_a_dictionary(index: list[Row], wishes: list[tuple[int, int, int, Op]]) -> None:
    expected = naive_merge(index, [])
    by_document = {document(row): row for row in expected}
    counts = Counter[str]()
    asked = rows_of({name: edits_of(wishes)[name] for name in EDIT.names or ()})
    for edit in sorted(asked, key=lambda edit: (edit["op"] not in (Op.DELETE, Op.PURGE), edit["op"])):
        op, row = Op(edit["op"]), by_document.get(document(edit))
        if row is None:
            counts["requests of unknown URLs"] += 1
        elif op in (Op.DELETE, Op.PURGE):
            if op == Op.PURGE or rank(row) > 0:
                row.update(type=RowType.FORGOTTEN, reason=Reason.PURGED if op == Op.PURGE else Reason.DELETED, touched=STATE)
                row["flags"] = int(row["flags"] & ~(Flag.REFRESH | Flag.INITIAL | Flag.PINNED | Flag.MODIFIED))
        elif rank(row) < 2:
            counts[f"requests of {Reason(row['reason']).name.lower()} URLs"] += 1
        else:
            change(row, op, edit)
    merged = merged_of(index, [], edits_of(wishes))
    assert rows_of(dict(merged.columns)) == expected
    for what in ("unknown", "deleted", "purged"):
        assert merged.counts.get(f"requests of {what} URLs", 0) == counts[f"requests of {what} URLs"]


def change(row: Row, op: Op, edit: Row) -> None:
    row["touched"] = STATE
    if op == Op.REFRESH:
        row["flags"] = int(row["flags"] | (Flag.REFRESH if row["checked"] <= edit["time"] or row["checked"] > NOW_S + 60 else 0))
    elif op == Op.PINNED:
        row["flags"] = int(row["flags"] | Flag.PINNED)
    else:
        row[op.name.lower()] = edit["value"]


@given(index_rows(min_size=1), st.data())
def test_error_that_is_inserted_again_waits_for_no_retry(index: list[Row], data: st.DataObject) -> None:
    known = rows_of(run(index, []))
    for row in known:
        row.update(type=RowType.ERROR, reason=Reason.GUARD, retry=data.draw(st.integers(0, MAX_RETRIES - 1)))
    again = [
        {name: row.get(name, 0) for name in CONTRIB} | {"oid": contrib_oid(3, n), "flags": int(ContribFlag.INSERTED)}
        for n, row in enumerate(known)
    ]
    for row in rows_of(run(known, again)):
        assert (row["type"], row["reason"], row["retry"]) == (RowType.UNGATHERED, Reason.INSERTED, 0)
