"""Merge against plain dictionaries, and its laws."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.formats.tables import (
    INDEX,
    NO_OID,
    SACRED,
    Array,
    ContribFlag,
    Flag,
    Reason,
    RowType,
    contrib_oid,
)
from shepherd.phases import merge
from tests.property.phase_rows import (
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

MAX_RETRIES, STATE = 4, 9
CONTRIB = {"norm": "<u8", "path": "<u8", "site": "<u8", "oid": "<u8", "weight": "<u2", "section": "u1", "flags": "<u2"}
SPECIAL = merge.Paths(robots=ROBOTS_PATH, root=ROOT_PATH)
NO_ROBOTS = merge.robots_rows(*(np.zeros(0, np.uint64),) * 2, np.zeros(0, np.uint16), SPECIAL, state=STATE)


@st.composite
def contribution(draw: st.DrawFn) -> Row:
    norm = draw(NORMS)
    flags = draw(st.sampled_from([0, 0, 0, ContribFlag.HTTPS, ContribFlag.INSERTED, ContribFlag.INSERTED | ContribFlag.PINNED]))
    return {
        "norm": norm,
        "path": draw(PATHS),
        "site": site_of(norm, draw(st.integers(0, 1))),
        "oid": contrib_oid(3, draw(st.integers(0, 1_000))),
        "weight": draw(st.integers(1, 5)),
        "section": 0,
        "flags": int(flags),
    }


CONTRIBUTIONS = st.lists(contribution(), max_size=15, unique_by=lambda row: row["oid"])


def document(row: Row) -> tuple[int, ...]:
    return key(row) if row["path"] in (ROBOTS_PATH, ROOT_PATH) else (row["norm"], row["path"])


def naive_merge(index: list[Row], contributed: list[Row]) -> list[Row]:
    rows: dict[tuple[int, ...], Row] = {}
    alive = [
        row
        for row in index
        if not (row["type"] == RowType.FORGOTTEN and row["reason"] != Reason.DELETED)
        and not (
            row["type"] == RowType.ERROR
            and row["retry"] >= MAX_RETRIES
            and not row["flags"] & (Flag.INITIAL | Flag.PINNED | Flag.ROBOTS)
        )
    ]
    for name in {document(row) for row in alive}:
        same = [row for row in alive if document(row) == name]
        same.sort(key=lambda row: (row["type"] != RowType.GATHERED, not row["flags"] & SACRED, -row["weight"], row["site"]))
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
                *(not row["flags"] & ContribFlag.INSERTED, -row["weight"], not row["flags"] & ContribFlag.HTTPS),
                *(row["site"], row["oid"]),
            )
        )
        weight = max(row["weight"] for row in same)
        inserted = any(row["flags"] & ContribFlag.INSERTED for row in same)
        pinned = any(row["flags"] & ContribFlag.PINNED for row in same)
        wishes = (Flag.INITIAL if inserted else 0) | (Flag.PINNED if pinned else 0)
        if name in rows:
            row = rows[name]
            old = dict(row)
            if inserted or row["type"] not in (RowType.GATHERED, RowType.FORGOTTEN):
                row["weight"] = max(row["weight"], weight)
            row["flags"] |= wishes
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
    return sorted(rows.values(), key=key)


def run(index: list[Row], contributed: list[Row]) -> dict[str, Array]:
    merged = merge.merge(
        columns(INDEX, index), columns(CONTRIB, contributed), NO_ROBOTS, SPECIAL, state=STATE, max_retries=MAX_RETRIES
    )
    return dict(merged.columns)


@given(index_rows(), CONTRIBUTIONS)
def test_merge_is_what_a_dictionary_does(index: list[Row], contributed: list[Row]) -> None:
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
def test_merged_in_two_steps_knows_the_same_documents(index: list[Row], contributed: list[Row], cut: int) -> None:
    """Which of equivalent sites stands for a document depends on who came first; that the document is there does not."""
    at_once = rows_of(run(index, contributed))
    in_steps = rows_of(run(rows_of(run(index, contributed[:cut])), contributed[cut:]))
    assert [document(row) for row in at_once] == [document(row) for row in in_steps]


@given(index_rows(), CONTRIBUTIONS)
def test_order_holds_and_a_document_has_one_row(index: list[Row], contributed: list[Row]) -> None:
    before = columns(INDEX, index)
    copy = {name: column.copy() for name, column in before.items()}
    merged = merge.merge(before, columns(CONTRIB, contributed), NO_ROBOTS, SPECIAL, state=STATE, max_retries=MAX_RETRIES)
    rows = rows_of(dict(merged.columns))
    assert [key(row) for row in rows] == sorted({key(row) for row in rows})
    assert len({document(row) for row in rows}) == len(rows)
    assert len(rows) == len(index) - merged.counts["dropped"] + merged.counts["new"] + merged.counts["new robots files"]
    assert same_columns(before, copy)


@given(index_rows(), CONTRIBUTIONS, st.sets(st.tuples(NORMS, st.integers(0, 1))))
def test_every_new_site_has_its_robots_row_once(index: list[Row], contributed: list[Row], new: set[tuple[int, int]]) -> None:
    norm = np.array([norm for norm, _ in sorted(new)], np.uint64)
    site = np.array([site_of(norm, which) for norm, which in sorted(new)], np.uint64)
    robots = merge.robots_rows(site, norm, np.full(len(site), 5, np.uint16), SPECIAL, state=STATE)
    merged = merge.merge(
        columns(INDEX, index), columns(CONTRIB, contributed), robots, SPECIAL, state=STATE, max_retries=MAX_RETRIES
    )
    rows = rows_of(dict(merged.columns))
    keys = [key(row) for row in rows]
    assert keys == sorted(set(keys))
    for one in new:
        (row,) = [row for row in rows if key(row) == (one[0], ROBOTS_PATH, site_of(*one))]
        assert row["flags"] & Flag.ROBOTS
    assert (robots["oid"] == NO_OID).all()


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
