"""The walk of shep-check: checksums that are right do not hide content that is wrong, and what is sound gives no fault."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shepherd.errors import IoFailed
from shepherd.formats import bucket, tables
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import NO_OID, RowType
from shepherd.store.check import check, claims
from shepherd.store.check.check import Fault
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, segment_table
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.urls import parse, qkey_of_address
from tests.crash import store_steps
from tests.support.sound import (
    BODY,
    KEY,
    NOW,
    PAGE,
    PRINTS,
    SERVERS,
    THIN,
    URLS,
    Break,
    Content,
    content,
    flip,
    journal_file,
    keep_all,
    plan_file,
    publish,
)


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database.create(tmp_path / "db", KEY, NOW, 0)
    return Database(tmp_path / "db")


def faults(db: Database) -> list[Fault]:
    return list(check.walk(db))


def put(column: str, at: int | str, value: int) -> Break:
    """Sets one value; an index row goes by its URL, a site by its name."""
    table, _, name = column.partition("/")

    def change(made: Content) -> None:
        row = at if isinstance(at, int) else made.rows[at] if table == "index" else made.site_names.index(at)
        getattr(made, table)[name][row] = value

    return change


def file(path: str, data: bytes) -> Break:
    return lambda made: made.files.update({path: data})


def control(**fields: Any) -> Break:
    return lambda made: made.control.update(fields)


def misnamed(made: Content) -> bytes:
    """The segment, with another URL of the same length in its first bucket."""
    url, (_, path, site) = parse(URLS[0]), PRINTS.of(parse(URLS[0]))
    other = bucket.thin(site, path, NOW * 1000, 2, url.href.replace("a.example", "z.example"))
    return other + made.segment[len(other) :]


OTHERS = tables.bucket_oid(1, 0)  # the bucket of URLS[0]
A, S = "http://a.example", "https://a.example"
RULES: dict[str, tuple[Break, str, int | str | None, str]] = {
    # what is broken: how, the file, the offset (or the index row or site of a column), and what is said of it
    "type": (put("index/type", THIN, 9), "index/type", THIN, "no row is of this type"),
    "reason": (put("index/reason", THIN, 99), "index/reason", THIN, "no such reason"),
    "size": (put("index/size", PAGE, 99), "index/size", PAGE, "length of its bucket"),
    "digest": (put("index/digest", PAGE, 1), "index/digest", PAGE, "digest in its bucket"),
    "digest of a thin bucket": (put("index/digest", THIN, 1), "index/digest", THIN, "digest in its bucket"),
    "documents": (put("sites/documents", A, 9), "sites/documents", A, "count of the rows"),
    "gathered robots file": (put("sites/gathered", A, 2), "sites/gathered", A, "count of the rows"),
    "oid between buckets": (put("index/oid", PAGE, 1 << 32 | 1), "index/oid", PAGE, "no bucket with the row's footprint"),
    "oid of a lost segment": (put("index/oid", PAGE, 7 << 32), "index/oid", PAGE, "segment that is not there"),
    "no bucket": (put("index/oid", PAGE, NO_OID), "index/oid", PAGE, "the row has no bucket"),
    "robots_oid between buckets": (put("sites/robots_oid", S, 1 << 32 | 1), "sites/robots_oid", S, "no bucket begins"),
    "robots_oid of a lost segment": (put("sites/robots_oid", S, 7 << 32), "sites/robots_oid", S, "not there"),
    "robots_oid in contrib": (put("sites/robots_oid", S, 1 << 63), "sites/robots_oid", S, "not the oid of a bucket"),
    "queue key": (put("sites/qkey", S, qkey_of_address("127.0.0.9")), "sites/qkey", S, "not in the server table"),
    "server order": (put("servers/qkey", 1, SERVERS[0]), "servers/qkey", 8, "not in order"),
    "site order": (put("sites/site", 0, NO_OID), "sites/site", 8, "not in order"),
    "norm of a row": (put("index/norm", THIN, 5), "index/norm", THIN, "differs from the norm of its site"),
    "bucket of another row": (put("index/oid", PAGE, OTHERS), "index/oid", PAGE, "no bucket with the row's footprint"),
    "URL of a bucket": (lambda made: setattr(made, "segment", misnamed(made)), "objects/00000001", 0, "the URL in it"),
    "name": (put("sites/name", 2, 1 << 40), "sites/name", 16, "its name does not end"),
    "site of a row": (put("index/site", THIN, 5), "index/site", THIN, "not in the site table"),
    "norm of a site": (put("sites/norm", S, 5), "sites/norm", S, "not the footprint of the normalised site"),
    "site name": (lambda made: made.site_names.__setitem__(0, "x" * len(made.site_names[0])), "sites/site", 0, "footprint"),
    "segments": (control(segments=1), "control", None, "has segment 1"),
    "contribs": (control(contribs=1), "control", None, "has contrib 1"),
    "key": (control(key=b"short"), "control", None, "5 bytes instead of 16"),
    "contrib junk": (file(names.contrib(1), b"junk"), names.contrib(1), 0, "no whole frame"),
    "contrib of another kind": (file(names.contrib(1), plan_file()), names.contrib(1), 0, "not a contrib block"),
    "contrib block": (file(names.contrib(1), pack_frame(FrameKind.CONTRIB, 1, b"x")), names.contrib(1), 0, "no header"),
    "journal junk": (file(names.journal(1), journal_file() + b"j"), names.journal(1), len(journal_file()), "no whole frame"),
    "journal of plan records": (file(names.journal(1), plan_file()), names.journal(1), 0, "not a frame of 3 journal records"),
    "plan": (file(names.PLAN, pack_frame(FrameKind.PLAN, 2, b"odd")), names.PLAN, 0, "not a frame of 2 plan records"),
    "segment": (lambda made: setattr(made, "segment", b"x" * 500), "objects/00000001", 0, "no bucket header"),
}


@pytest.fixture(params=["all at once", "in small parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment, and what claims its buckets, is read in parts where it is large: here also where it is small."""
    if request.param == "in small parts":
        monkeypatch.setattr(claims, "CLAIMS", 1)
        monkeypatch.setattr(claims, "PIECE_BITS", 6)
        monkeypatch.setattr(segment_table, "BUCKETS", 2)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("rule", RULES)
def test_broken_rule_is_named_with_file_and_offset(db: Database, rule: str) -> None:
    change, path, at, what = RULES[rule]
    made = content()
    change(made)
    state = publish(db, made)
    if isinstance(at, str):
        width = np.dtype(tables.TABLES[path.partition("/")[0]][path.partition("/")[2]]).itemsize
        at = width * (made.rows[at] if path.startswith("index/") else made.site_names.index(at))
    found = [fault for fault in faults(db) if what in fault.what]
    assert [(fault.path, fault.offset, fault.note) for fault in found] == [(state.path / path, at, False)]


@pytest.mark.usefixtures("parts")
def test_sound_state_gives_no_fault(db: Database) -> None:
    publish(db, content())
    keep_all(db)
    assert faults(db) == []


def test_bucket_of_two_rows_is_named(db: Database) -> None:
    made = content()
    put("index/oid", PAGE, OTHERS)(made)
    state = publish(db, made)
    second = max(made.rows[PAGE], made.rows[URLS[0]])
    assert Fault(state.path / "index/oid", second * 8, "its bucket is claimed by another row too") in faults(db)


def test_document_that_has_two_rows_is_named(db: Database) -> None:
    made = content((*URLS, "https://a.example/page"))
    state = publish(db, made)
    second = max(made.rows[PAGE], made.rows["https://a.example/page"])
    assert faults(db) == [Fault(state.path / "index/path", second * 8, "another row has the same norm and path")]


def test_rows_out_of_order_are_named(db: Database) -> None:
    made = content()
    made.index = {name: values[::-1] for name, values in made.index.items()}
    state = publish(db, made)
    places = [fault.offset for fault in faults(db) if fault.path == state.path / "index/norm"]
    assert places == [row * 8 for row in range(1, len(URLS))]


def test_site_without_rows_is_a_fault_after_record(db: Database) -> None:
    made = content(more_sites=["http://c.example"])
    made.control["parent"] = "000002.selected"
    state = publish(db, made)
    place = made.site_names.index("http://c.example") * 8
    assert faults(db) == [Fault(state.path / "sites/site", place, "the site has no rows")]


def test_site_that_lost_its_only_page_is_only_noted(db: Database) -> None:
    made = content(more_sites=["http://c.example"])
    made.control["parent"] = "000002.reap"
    publish(db, made)
    assert [(fault.what, fault.note) for fault in faults(db)] == [("the site has no rows", True)]


@pytest.mark.parametrize(("oid", "sound"), [((1, 1), True), ((1, 2), False), ((2, 0), False)])
def test_row_pointing_behind_the_last_contribution_is_named(db: Database, oid: tuple[int, int], sound: bool) -> None:
    made = content()
    made.phase = "merged"
    put("index/oid", THIN, tables.contrib_oid(*oid))(made)
    state = publish(db, made)
    lost = Fault(state.path / "index/oid", made.rows[THIN] * 8, "points at a contribution that is not there")
    assert faults(db) == ([] if sound else [lost])


def test_select_leaves_the_count_of_gathered_rows_to_record(db: Database) -> None:
    made = content()
    made.phase = "selected"
    put("index/type", PAGE, RowType.SLEEPING)(made)
    publish(db, made)
    assert faults(db) == []


@pytest.mark.parametrize("column", ["index/norm", "index/weight", "sites/moves", "servers/backoff"])
@pytest.mark.parametrize("quick", [False, True])
def test_column_that_control_lacks_is_named(db: Database, column: str, quick: bool) -> None:
    state = publish(db, content(), leave_out=column)
    assert list(check.walk(db, quick)) == [Fault(state.path / column, None, "the column is not in control")]


@pytest.mark.parametrize("column", ["index/weight", "sites/moves", "servers/backoff"])
def test_column_of_another_number_of_rows_is_named(db: Database, column: str) -> None:
    state = publish(db, content(), shorter=column)
    assert [(fault.path, "rows, where the table has" in fault.what) for fault in faults(db)] == [(state.path / column, True)]


def test_strangers_in_inbox_and_lease_are_noted_and_our_own_names_are_not(db: Database) -> None:
    db.inbox.drop(db.new_item_name(NOW * 1000), [{"op": "insert", "url": "http://a.example/"}])
    db.lease(1, "me", "test", NOW * 1000, 100)
    unreadable = db.leases.directory / "1790000000000-host-7-1.lease"
    unreadable.write_text("{}")
    strangers = [db.inbox.directory / "notes.txt", db.leases.directory / "1790000000000-host-7-1.req"]
    for path in (*strangers, db.inbox.directory / ".half.tmp", db.leases.directory / names.LOCK):
        path.touch()
    found = faults(db)
    assert all(fault.note for fault in found)
    assert {fault.path for fault in found} == {unreadable, *strangers}


def test_inserted_urls_in_the_inbox_are_read_whole(db: Database) -> None:
    store_steps.insert(db, store_steps.item_name(1), range(3))
    assert list(check.walk(db)) == []
    (item,) = db.inbox.items()
    data = item.path.read_bytes()
    item.path.write_bytes(data[:90] + bytes([data[90] ^ 1]) + data[91:])
    (fault,) = check.walk(db)
    assert (fault.path, fault.offset) == (item.path, 0)
    item.path.unlink()
    item.path.symlink_to("/etc/passwd")
    (fault,) = check.walk(db)
    assert (fault.path, fault.note) == (item.path, True) and fault.what.startswith("a link, ")


def test_pipe_broken_link_and_directory_in_the_inbox_are_noted(db: Database) -> None:
    strangers = [
        db.inbox.directory / f"1790000000000-host-7-{n}.{kind}" for n, kind in enumerate(("req", "feedback", "req", "harvest"))
    ]
    os.mkfifo(strangers[0])
    strangers[1].symlink_to("nowhere")
    strangers[2].mkdir()
    strangers[3].touch()
    assert {(fault.path, fault.note) for fault in faults(db)} == {(path, True) for path in strangers}


def test_file_in_place_of_a_state_is_noted(db: Database) -> None:
    (db.states_path / "000007").write_text("not a state")
    assert [(fault.path.name, fault.note) for fault in faults(db)] == [("000007", True)]
    (fault,) = check.faults_of([db.states_path / "000007"])[db.states_path / "000007"]
    assert "a file, where a state is a directory" in fault.what


# --- files that states share


def test_shared_file_is_read_once_in_a_walk(db: Database) -> None:
    made = content()
    first, second = publish(db, made), keep_all(db)
    in_body = made.segment.index(BODY)
    before = len(db.open(StateName(1, "closed")).control.files) + len(first.control.files)
    ticks = 0

    def damage_it_behind_the_walk(_bytes: int) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == before + 1:  # the first file of state 3; its segment comes later
            flip(second.path / "objects/00000001", in_body)

    assert list(check.walk(db, tick=damage_it_behind_the_walk)) == []
    assert ticks == before + len(second.control.files) + 1  # the segment, scanned for both
    assert [fault.path for fault in faults(db)] == [state.path / "objects/00000001" for state in (first, second)]


def test_walk_reports_as_many_bytes_as_it_announced(db: Database) -> None:
    """And so scans a segment once, however many states share it."""
    publish(db, content())
    keep_all(db)
    told: list[int] = []
    assert list(check.walk(db, tick=told.append)) == []
    assert sum(told) == check.size(db)


def test_state_deleted_while_it_is_looked_at_is_no_fault(db: Database) -> None:
    publish(db, content())
    keep_all(db)
    told: list[int] = []
    list(check.walk(db, tick=told.append))
    for when in range(1, len(told) + 1, 9):
        copy = shutil.copytree(db.path, db.path.with_name(f"copy-{when}"))
        ticks = itertools.count(1)

        def delete(_bytes: int, copy: Path = copy, ticks: Iterator[int] = ticks, when: int = when) -> None:
            if next(ticks) == when:
                shutil.rmtree(copy / "state/000002")

        assert list(check.walk(Database(copy), tick=delete)) == []


def test_walk_of_one_state_ignores_the_others(db: Database) -> None:
    states = [publish(db, content()), keep_all(db)]
    flip(states[0].path / "report.json", 1)
    (db.path / "stranger").touch()
    assert list(check.walk(db, only=states[1].name)) == []
    assert [fault.path for fault in check.walk(db, only=states[0].name)] == [states[0].path / "report.json"]


@pytest.mark.parametrize("path", ["index/weight", "sites/names", "objects/00000001"])
def test_damage_to_a_shared_file_is_reported_for_every_state(db: Database, path: str) -> None:
    states = [publish(db, content()), keep_all(db)]
    flip(states[0].path / path, 3)
    assert [fault.path for fault in faults(db)] == [state.path / path for state in states]


def test_shared_file_is_read_again_where_another_checksum_is_expected(db: Database) -> None:
    publish(db, content())
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(3, "closed"), NOW)
        entry = parent.control.files["objects/00000001"]
        parent.control.files["objects/00000001"] = type(entry)(entry.length, entry.check ^ 1)
        builder.keep(path for path in parent.control.files if path != names.REPORT)
        state = builder.publish({})
    assert [fault.path for fault in faults(db)] == [state.path / "objects/00000001"]


def test_control_that_cannot_be_read_once_more_is_reported(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count(1)
    furthest = Database.furthest

    def failing(self: Database) -> State:
        if next(calls) == last:
            raise IoFailed("control: Input/output error")
        return furthest(self)

    last = 0
    monkeypatch.setattr(Database, "furthest", failing)
    assert faults(db) == []
    last = next(calls) - 1  # the last call of a walk looks for harvests in the inbox
    calls = itertools.count(1)
    assert [fault.unread for fault in faults(db)] == [True]
