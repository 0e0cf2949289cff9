"""Record against plain dictionaries, on real directories: which row gets which bucket, what changes of it, and what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.config import Config, Politeness, Store
from shepherd.cycle.record import drive as record
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import NO_OID, REASON_TEXT, Flag, Reason, RowType, is_resolved
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state.directory import State
from tests.crash.disks import workplace
from tests.cycle.record.record_rows import (
    ADDRESSES,
    BODY,
    BURIED,
    CONTRIB,
    DEAD,
    NOTHING,
    OLD_CONTRIB,
    SITES,
    STATE,
    THIN,
    Home,
    Lamb,
    flocks_of_every_kind,
    homes,
    lambs,
    pen,
)
from tests.support import sampling
from tests.support.random_rows import Row, key, rows_of
from tests.worlds import NOW

RESET_S = 1_000


@dataclass(frozen=True)
class Fate:
    """The outcome of a row: nothing, or a bucket that says so much, or neither a bucket nor a place in contrib any more."""

    what: str
    flags: int = 0
    by: bytes = b""


LEFT, THINNED, REFUSED, GIVEN_UP = (
    Fate("left alone"),
    Fate("recorded", BucketFlag.THIN),
    Fate("filtered"),
    Fate("given up"),
)


def fate(one: Lamb) -> Fate:
    """The outcome that a row must have, by docs/formats.md."""
    if one.type == RowType.FORGOTTEN and one.reason in DEAD and one.touched == STATE:
        return _burial(one)
    if one.type == RowType.FORGOTTEN:  # before it had a bucket, or earlier than in this state
        return GIVEN_UP if one.where in (CONTRIB, OLD_CONTRIB) else LEFT
    if one.where == OLD_CONTRIB and one.url.endswith(".zip"):
        return REFUSED
    if one.where in (CONTRIB, OLD_CONTRIB) or (one.robots and one.where == NOTHING):
        return THINNED
    return LEFT


def _burial(one: Lamb) -> Fate:
    """A tombstone, unless there is one; and one anew for what was only deleted and is purged now."""
    if one.where == NOTHING and not one.robots:
        return LEFT  # nobody knows its URL any more
    if one.where == BURIED and (one.reason == Reason.DELETED or one.buried_for == Reason.PURGED):
        return LEFT
    return Fate("tombstones", BucketFlag.THIN | BucketFlag.TOMBSTONE, REASON_TEXT[one.reason].encode())


def expected(before: Row, what: Fate, after: Row) -> Row:
    """The whole row, but for the place and the length of a new bucket, which are those that it has."""
    if what == LEFT:
        return before
    if what == GIVEN_UP:
        return before | {"oid": NO_OID}
    if what == REFUSED:
        gone = {"oid": NO_OID, "size": 0, "type": int(RowType.FORGOTTEN), "reason": int(Reason.FILTER)}
        return before | gone | {"touched": STATE}
    placed = {"oid": after["oid"], "size": after["size"], "touched": STATE}
    return before | placed | ({"digest": 0, "gathered": 0} if what.what == "tombstones" else {})


def tables_of(state: State) -> tuple[list[Row], list[Row], list[Row]]:
    index, sites, servers = (rows_of(table.slice(0, table.rows)) for table in (state.index, state.sites, state.servers))
    return index, sites, servers


def naive_sites(sites: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The site table as it must be: documents counted anew, and lookups in vain forgotten when they are too old."""
    found = []
    for site in sites:
        mine = [row for row in rows if row["site"] == site["site"] and not row["flags"] & Flag.ROBOTS]
        vain = {"qkey_checked": 0, "qkey_next": 0} if too_old(site["qkey"], site["qkey_checked"]) else {}
        found.append(site | vain | {"gathered": sum(row["type"] == RowType.GATHERED for row in mine)})
    return found


def too_old(qkey: int, checked: int) -> bool:
    return not is_resolved(qkey) and 0 < checked <= NOW - RESET_S


def naive_servers(servers: Sequence[Row], sites: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """A server's documents are what is gathered or to be gathered of all its sites, without robots files."""
    address = {site["site"]: site["qkey"] for site in sites}
    active = [row for row in rows if row["type"] in (RowType.GATHERED, RowType.UNGATHERED) and not row["flags"] & Flag.ROBOTS]
    counts = Counter(address[row["site"]] for row in active)
    return [server | {"documents": counts[server["qkey"]]} for server in servers]


@settings(max_examples=sampling.examples(80))
@given(
    flock=lambs(),
    told=homes(RESET_S),
    servers=st.sets(st.sampled_from(ADDRESSES)),
    step=st.integers(1, 6),
    segment_bytes=st.sampled_from([200, 1000]),
)
def test_record_agrees_with_a_dictionary(
    flock: list[Lamb], told: list[Home], servers: set[int], step: int, segment_bytes: int
) -> None:
    judge(flock, told, servers, Store(partition_rows=step, segment_bytes=segment_bytes))


def test_record_agrees_with_a_dictionary_about_every_kind_of_row() -> None:
    """And each kind meets record, or this would say less than it seems to."""
    met = set[tuple[str, str]]()
    home = [Home(site, ADDRESSES[0], 0, 0, 0) for site in SITES]
    for flock in flocks_of_every_kind():
        met |= {(one.where, fate(one).what) for one in flock}
        judge(flock, home, set(), Store(partition_rows=6, segment_bytes=1000))
    assert met == {
        *((CONTRIB, what) for what in ("recorded", "tombstones", "given up")),
        *((OLD_CONTRIB, what) for what in ("recorded", "filtered", "tombstones", "given up")),
        *((where, what) for where in (BODY, THIN, BURIED) for what in ("left alone", "tombstones")),
        *((NOTHING, what) for what in ("left alone", "recorded", "tombstones")),
    }


def judge(flock: list[Lamb], told: list[Home], servers: set[int], store: Store) -> None:
    told = [home for home in told if any(one.site == home.name for one in flock)]
    with workplace() as home:
        db = pen(home, flock, told, sorted(servers | {home.qkey for home in told if is_resolved(home.qkey)}))
        index, sites, known_servers = tables_of(db.furthest())
        with db.writing("test") as writer:
            config = Config(directory=home / "cf", store=store, politeness=Politeness(qkey_reset_s=RESET_S))
            state = record.run(writer, config, NOW, lambda _rows: None)
        rows = check_rows(state, flock, {key(row): row for row in index})
        expected_servers = naive_servers(known_servers, sites, rows)
        assert tables_of(state)[1:] == (naive_sites(sites, rows), expected_servers)
        check_report(state, flock, told)
        assert (state.name.closed, state.numbered(names.CONTRIB)) == (True, [])
        state.objects.close()
        assert [str(fault) for fault in check.walk(db) if not fault.note] == []


def check_rows(state: State, flock: Sequence[Lamb], known: dict[tuple[int, int, int], Row]) -> list[Row]:
    """Every row is as it must be, and so is its bucket; the rows."""
    found = {key(row): row for row in tables_of(state)[0]}
    assert list(found) == list(known)
    new = set()
    for one in flock:
        what, row = fate(one), found[one.key]
        assert row == expected(known[one.key], what, row), one
        if not what.flags:
            continue
        bucket = state.objects.get(row["oid"])
        header = bucket.header
        assert (header.flags, bucket.attributes.get("P", b"")) == (what.flags, what.by), one
        assert (bucket.url, header.site, header.path) == (one.url, row["site"], row["path"])
        assert (header.length, header.time_ms, header.state) == (row["size"], NOW * 1000, STATE)
        new.add(row["oid"])
    kept = {row["oid"] for row in known.values()}
    scanned = {oid for number in state.segments() for oid, _header in state.objects.scan(number)}
    assert scanned - kept == new  # no bucket that nobody asked for
    return list(found.values())


def check_report(state: State, flock: Sequence[Lamb], told: Sequence[Home]) -> None:
    counts = Counter(fate(one).what for one in flock)
    reset = [one for one in told if too_old(one.qkey, one.checked)]
    report = state.report()
    for what in ("recorded", "filtered", "tombstones", "given up"):
        assert report[what] == counts[what], what
    assert report["queue keys reset"] == len(reset)
