"""The walk of shep-check: checksums that are right do not hide content that is wrong, and what is sound gives no fault."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shepherd.formats import bucket, contrib, tables
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import NO_OID, Array, Flag, Reason, RowType
from shepherd.store import check, database, names
from shepherd.store.check import Fault
from shepherd.store.database import Database
from shepherd.store.names import StateName
from shepherd.store.state import State
from shepherd.urls import Footprints, Url, parse, qkey_of_address

KEY = bytes(range(16))
NOW = 1_790_000_000
PRINTS = Footprints(KEY)
SERVERS = (qkey_of_address("127.0.0.7"), qkey_of_address("127.0.0.8"))
PAGE = "http://a.example/page"
THIN = "http://b.example/thin"
ROBOTS = "http://a.example/robots.txt"
# Two sites of one norm: their roots and robots files share norm and path, and must not be told of.
URLS = ("http://a.example/", ROBOTS, PAGE, "https://a.example/", "https://a.example/robots.txt", "http://b.example/", THIN)
BODY = b"the body of the page"


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database.create(tmp_path / "db", KEY, NOW, 0)
    return Database(tmp_path / "db")


@dataclass
class Content:
    """Everything of a state, sound until a test breaks it."""

    index: dict[str, Array]
    sites: dict[str, Array]
    site_names: list[str]
    servers: dict[str, Array]
    segment: bytes
    rows: dict[str, int]  # by URL
    files: dict[str, bytes] = field(default_factory=dict)
    control: dict[str, Any] = field(default_factory=dict)
    phase: str = "closed"


Break = Callable[[Content], object]


def columns(table: dict[str, str], rows: Iterable[dict[str, int]]) -> dict[str, Array]:
    rows = list(rows)
    return {name: np.array([row.get(name, 0) for row in rows], dtype) for name, dtype in table.items()}


def bucket_of(url: Url) -> bytes:
    _, path, site = PRINTS.of(url)
    if url.href != PAGE:
        return bucket.thin(site, path, NOW * 1000, 2, url.href)
    attributes = [("U", url.href.encode()), ("S", b"HTTP/1.1 200 OK"), ("D", hashlib.sha256(BODY).digest()), ("t", b"title")]
    return bucket.pack(site=site, path=path, time_ms=NOW * 1000, state=2, attributes=attributes, body=BODY)


def index_row(url: Url, offset: int, size: int) -> dict[str, int]:
    norm, path, site = PRINTS.of(url)
    row = {"norm": norm, "path": path, "site": site, "oid": tables.bucket_oid(1, offset), "size": size, "frequency": 1}
    row |= {"type": RowType.UNGATHERED, "reason": Reason.LINK}
    if url.href in (PAGE, ROBOTS):
        row |= {"type": RowType.GATHERED, "reason": Reason.GATHERED}
    if url.href == PAGE:
        row["digest"] = int.from_bytes(hashlib.sha256(BODY).digest()[:8], "little")
    return row | {"flags": Flag.ROBOTS if url.path == "/robots.txt" else 0}


def content(urls: Iterable[str] = URLS, more_sites: Iterable[str] = ()) -> Content:
    segment, found = b"", {}
    counts: dict[str, dict[str, int]] = {}
    for url in map(parse, urls):
        data = bucket_of(url)
        found[url.href] = index_row(url, len(segment), len(data))
        segment += data
        count = counts.setdefault(url.site, {"documents": 0, "gathered": 0})
        count["documents"] += 1
        count["gathered"] += url.href == PAGE
    ordered = sorted(found.items(), key=lambda item: (item[1]["norm"], item[1]["path"], item[1]["site"]))
    for name in more_sites:
        counts[name] = {}
    site_names = sorted(counts, key=PRINTS.half)
    sites = []
    for name, end in zip(site_names, np.cumsum([len(name) for name in site_names]).tolist(), strict=True):
        norm, _, site = PRINTS.of(parse(f"{name}/"))
        sites.append({"site": site, "norm": norm, "name": end, "robots_oid": NO_OID, "qkey": tables.qkey_unresolved(site)})
        sites[-1] |= counts[name]
        if name == "http://a.example":
            sites[-1] |= {"qkey": SERVERS[0], "robots_oid": found[ROBOTS]["oid"]}
    return Content(
        columns(tables.INDEX, (row for _url, row in ordered)),
        columns(tables.SITES, sites),
        site_names,
        columns(tables.SERVERS, [{"qkey": qkey} for qkey in SERVERS]),
        segment,
        {url: row for row, (url, _row) in enumerate(ordered)},
        {names.contrib(1): contrib_file(), names.journal(1): journal_file(), names.PLAN: plan_file()},
    )


def contrib_file() -> bytes:
    """Two blocks, of one record each."""
    norm, path, site = (np.array([half], np.uint64) for half in PRINTS.of(parse("http://a.example/linked")))
    u4, u2, u1 = np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
    block = Block(norm, path, site, u4, u4, u2, u2, u1, [b"/linked"], site, norm, [b"http://a.example"], site, path, 0)
    return pack_frame(FrameKind.CONTRIB, 1, contrib.encode(block)) * 2


def journal_file() -> bytes:
    return pack_frame(FrameKind.JOURNAL, 3, np.zeros(3, tables.JOURNAL).tobytes())


def plan_file() -> bytes:
    return pack_frame(FrameKind.PLAN, 3, np.zeros(3, tables.PLAN).tobytes())


def publish(db: Database, made: Content, leave_out: str = "", shorter: str = "") -> State:
    """The content as state 2, with checksums that are right."""
    with db.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, made.phase), NOW)
        builder.write(f"{names.OBJECTS}/{names.segment(1)}", made.segment)
        for table, values in (("index", made.index), ("sites", made.sites), ("servers", made.servers)):
            for name, column in values.items():
                if f"{table}/{name}" != leave_out:
                    builder.write_table(table, {name: column[:-1] if f"{table}/{name}" == shorter else column})
        builder.write_site_names(name.encode() for name in made.site_names)
        for path, data in made.files.items():
            builder.write(path, data)
        builder.change(**({"segments": 2, "contribs": 2} | made.control))
        return builder.publish({})


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
    "journal of plan records": (file(names.journal(1), plan_file()), names.journal(1), None, "not of 3 records"),
    "plan": (file(names.PLAN, pack_frame(FrameKind.PLAN, 2, b"odd")), names.PLAN, None, "not of 2 records"),
    "segment": (lambda made: setattr(made, "segment", b"x" * 500), "objects/00000001", None, "no bucket header"),
}


def test_sound_state_gives_no_fault(db: Database) -> None:
    publish(db, content())
    assert faults(db) == []


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


def test_site_that_a_page_moved_to_and_left_again_is_only_noted(db: Database) -> None:
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


def test_file_in_place_of_a_state_is_noted(db: Database) -> None:
    (db.states_path / "000007").write_text("not a state")
    assert [(fault.path.name, fault.note) for fault in faults(db)] == [("000007", True)]
    assert not any(fault.note for fault in check.walk_state(db.states_path / "000007"))


# --- files that states share


def keep_all(db: Database) -> State:
    """State 3, every file of it shared with state 2."""
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(3, "closed"), NOW)
        builder.keep(path for path in parent.control.files if path != names.REPORT)
        return builder.publish({})


def flip(path: Path, offset: int) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    with path.open("r+b") as file:  # in place: the states go on sharing it
        file.write(data)


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
    assert ticks == before + len(second.control.files)
    assert [fault.path for fault in faults(db)] == [state.path / "objects/00000001" for state in (first, second)]


@pytest.mark.parametrize("path", ["index/weight", "sites/names", "objects/00000001"])
def test_damage_to_a_shared_file_is_told_of_every_state(db: Database, path: str) -> None:
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
