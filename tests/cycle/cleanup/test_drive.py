"""Cleanup, case by case: what it frees, what it keeps, and what it reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.plan import drive as plan
from shepherd.errors import Corruption, NoSpace, NothingToDo
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import NO_OID, Array, Flag, Reason, RowType
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State
from shepherd.store.state.dry_run import DryRun
from tests.support import segment_states
from tests.support.segment_states import THIN, TOMBSTONE, Sheep
from tests.support.toy_farm import contents
from tests.worlds import NOW

SITE = "http://a.example"


def page(number: int, **fields: object) -> Sheep:
    return replace(Sheep(f"{SITE}/{number}", now=b"%d " % number * 40), **fields)  # type: ignore[arg-type]


def refreshed(count: int, times: int = 3) -> list[Sheep]:
    """Pages that were gathered so often that most of their bytes are waste."""
    return [page(n, before=tuple(b"%d %d " % (n, age) * 40 for age in range(times))) for n in range(count)]


def made(state: State | None) -> State:
    assert state is not None
    return state


def row_of(state: State, sheep: Sheep) -> dict[str, int]:
    return segment_states.rows(state)[sheep.key]


def test_waste_is_freed_and_documents_are_unchanged(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    before, told = segment_states.documents(db.closed()), segment_states.waste(db.closed())
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    assert segment_states.documents(state) == before
    assert segment_states.faults(db) == []
    assert all(used * 2 >= length for length, used in segment_states.waste(state).values())
    counts = state.report()["counts"]
    lengths = sum(length for length, _used in told.values())
    assert lengths - sum(length for length, _used in segment_states.waste(state).values()) == counts["bytes freed"] > 0
    assert state.control.cleaned == NOW


def test_second_cleanup_has_nothing_to_do_and_says_how_much_is_needed(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    settings = segment_states.config(tmp_path / "cf")
    segment_states.clean(db, settings)
    found = contents(db.states_path)
    with db.writing("test") as writer, pytest.raises(NothingToDo, match=r"100 % of the [0-9]+ bytes in [0-9]+ segments"):
        cleanup.run(writer, settings, NOW, lambda _rows: None, everything=True)
    assert contents(db.states_path) == found


def test_small_segments_are_joined(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, [page(n) for n in range(8)], segment_bytes=300)
    assert len(db.closed().segments()) >= 4
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf", segment_bytes=20_000)))
    assert len(state.segments()) == 1
    assert state.report()["chosen"]["small"] >= 4


def test_one_batch_at_a_time_makes_a_state_each(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    before = segment_states.documents(db.closed())
    settings = segment_states.config(tmp_path / "cf", batch_bytes=800)
    state = made(segment_states.clean(db, settings))
    assert state.number > 4
    assert [name.number for name in db.states()] == [state.number - 1, state.number]  # store.keep_states
    assert state.report()["counts"]["bytes copied"] <= 800
    assert segment_states.documents(state) == before
    assert segment_states.faults(db) == []
    assert segment_states.clean(db, settings) is None


def test_no_room_for_any_segment_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(6))
    found = contents(db.states_path / "000002")
    with pytest.raises(NoSpace, match="no room to copy"):
        segment_states.clean(db, segment_states.config(tmp_path / "cf", batch_bytes=100))
    assert contents(db.states_path / "000002") == found
    assert db.furthest().number == 2


def test_forgotten_rows_lose_their_buckets(tmp_path: Path) -> None:
    gone = page(99, type=RowType.FORGOTTEN, reason=Reason.BELOW_SLEEP)
    db = segment_states.fill(tmp_path, [page(1), gone])
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    row = row_of(state, gone)
    assert (row["oid"], row["size"], row["type"], row["reason"]) == (NO_OID, 0, RowType.FORGOTTEN, Reason.BELOW_SLEEP)
    assert segment_states.faults(db) == []


def test_filter_that_rejects_more_now_forgets_rows(tmp_path: Path) -> None:
    bad = page(7, type=RowType.GATHERED, flags=int(Flag.INITIAL))
    robots = Sheep(f"{SITE}/robots.txt", flags=int(Flag.ROBOTS))
    db = segment_states.fill(tmp_path, [page(1), bad, robots], rule=f"accept prefix {SITE}/1\ndefault reject\n")
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    row = row_of(state, bad)
    assert (row["type"], row["reason"], row["oid"]) == (RowType.FORGOTTEN, Reason.FILTER, NO_OID)
    assert row_of(state, robots)["type"] == RowType.GATHERED  # politeness needs it
    assert list(segment_states.documents(state)) == [f"{SITE}/1"]
    assert segment_states.faults(db) == []  # the site's counts, too


def test_rejected_row_that_sleeps_alone_in_its_segment_is_forgotten(tmp_path: Path) -> None:
    asleep = Sheep(f"{SITE}/a.zip", RowType.SLEEPING, Reason.BELOW_BAR)
    db = segment_states.fill(tmp_path, [page(1), asleep, page(2)], segment_bytes=10, rule="reject ext zip\n")
    row = row_of(made(segment_states.clean(db, segment_states.config(tmp_path / "cf"))), asleep)
    assert (row["type"], row["reason"]) == (RowType.FORGOTTEN, Reason.FILTER)


def test_urls_are_judged_again_only_after_the_filter_has_changed(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    settings = segment_states.config(tmp_path / "cf")
    assert "references checked" in made(segment_states.clean(db, settings)).report()
    damage(db.closed(), 0, header=True)
    assert segment_states.clean(db, settings) is None  # nobody has looked
    (tmp_path / "cf" / "filter").write_text(f"reject prefix {SITE}/3\n")
    with pytest.raises(Corruption, match="header or attributes are damaged"):
        segment_states.clean(db, settings)


def test_cleanup_that_judged_nothing_does_not_make_the_next_one_judge(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    settings = segment_states.config(tmp_path / "cf")
    segment_states.clean(db, settings)
    for row in range(3):
        with db.writing("test") as writer:
            _change(writer, "type", partial(forgetting, row))
        report = made(segment_states.clean(db, settings, now=NOW + 1 + row)).report()
        assert report["counts"]["forgotten rows without their buckets"] == 1
        assert "references checked" not in report


def test_sleeping_row_keeps_its_url_and_loses_its_body(tmp_path: Path) -> None:
    asleep = page(5, type=RowType.SLEEPING, reason=Reason.BELOW_BAR, flags=int(Flag.TRUNCATED))
    db = segment_states.fill(tmp_path, [page(1), asleep])
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    row = row_of(state, asleep)
    stored = state.objects.get(row["oid"])
    assert stored.header.flags == BucketFlag.THIN
    assert (stored.url, stored.header.length, stored.header.time_ms) == (asleep.url, row["size"], (NOW - 60) * 1000)
    assert (row["digest"], row["gathered"], row["changed"], row["flags"]) == (0, 0, 0, 0)
    assert (row["type"], row["reason"]) == (RowType.SLEEPING, Reason.BELOW_BAR)
    assert row["checked"] == NOW - 60
    assert segment_states.faults(db) == []


def test_bodies_of_least_weight_are_dropped_until_the_database_is_within_its_size(tmp_path: Path) -> None:
    flock = [page(n, weight=n, now=bytes(range(n, n + 200)) * 2) for n in range(10)]
    flock[0] = replace(flock[0], flags=int(Flag.PINNED))
    flock[1] = replace(flock[1], flags=int(Flag.INITIAL))
    db = segment_states.fill(tmp_path, flock)
    total = sum(length for length, _used in segment_states.waste(db.closed()).values())
    limit = total - 700
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf", size_bytes=limit)))
    assert sum(length for length, _used in segment_states.waste(state).values()) <= limit
    asleep = [one for one in flock if row_of(state, one)["type"] == RowType.SLEEPING]
    assert [one.weight for one in asleep] == list(range(2, 2 + len(asleep)))
    assert {row_of(state, one)["reason"] for one in asleep} == {Reason.SPACE}
    assert 0 < len(asleep) < 8
    assert segment_states.faults(db) == []


def test_limit_that_only_exempt_rows_exceed_is_nothing_to_do(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, [page(n, flags=int(Flag.PINNED)) for n in range(4)])
    assert segment_states.clean(db, segment_states.config(tmp_path / "cf", size_bytes=10)) is None


def test_deleted_document_keeps_its_tombstone_while_an_older_bucket_is_left(tmp_path: Path) -> None:
    deleted = page(50, type=RowType.FORGOTTEN, reason=Reason.DELETED, now=TOMBSTONE, before=(b"secret " * 30,))
    db = segment_states.fill(tmp_path, [deleted, *(page(n, now=b"%d-" % n * 99) for n in range(8))], segment_bytes=100_000)
    settings = segment_states.config(tmp_path / "cf", segment_bytes=1000, sparse=10)
    assert segment_states.clean(db, settings) is None  # nothing is sparse
    row = row_of(db.closed(), deleted)
    assert (row["type"], row["reason"]) == (RowType.FORGOTTEN, Reason.DELETED)
    assert db.closed().objects.head(row["oid"]).header.flags & BucketFlag.TOMBSTONE
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf", sparse=100)))
    row = row_of(state, deleted)
    assert (row["type"], row["reason"], row["oid"]) == (RowType.FORGOTTEN, Reason.NONE, NO_OID)
    assert not holds(state, deleted.url.encode())
    assert segment_states.faults(db) == []


def test_older_bucket_under_an_equivalent_site_counts(tmp_path: Path) -> None:
    deleted = page(50, type=RowType.FORGOTTEN, reason=Reason.DELETED, now=TOMBSTONE)
    other = page(1, now=THIN)
    db = segment_states.fill(tmp_path, [deleted, other, Sheep("http://www.a.example/50", row=False)])
    state = segment_states.clean(db, segment_states.config(tmp_path / "cf", segment_bytes=100_000, sparse=1))
    assert state is None
    assert row_of(db.closed(), deleted)["reason"] == Reason.DELETED


def test_purged_bytes_are_erased_and_the_tombstone_stays(tmp_path: Path) -> None:
    purged = page(50, type=RowType.FORGOTTEN, reason=Reason.PURGED, now=TOMBSTONE, before=(b"abcdefgh",))
    db = segment_states.fill(tmp_path, [purged, *(page(n) for n in range(3))], segment_bytes=100_000)
    lease = db.lease(2, "me", "test", NOW * 1000, 60)
    assert holds(db.closed(), b"abcdefgh")
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf", sparse=1)))
    assert not holds(state, b"abcdefgh")
    row = row_of(state, purged)
    assert state.objects.head(row["oid"]).header.flags & BucketFlag.TOMBSTONE
    assert row["reason"] == Reason.PURGED
    assert state.report()["pinned"]["leased states with purged bytes"] == 1
    db.leases.remove(lease)
    assert segment_states.clean(db, segment_states.config(tmp_path / "cf", sparse=1), now=NOW + 9) is None
    assert segment_states.faults(db) == []


def test_leased_state_stays_whole_and_what_it_pins_is_reported(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    found, segments = contents(db.states_path / "000002"), set(db.closed().segments())
    db.lease(2, "me", "test", NOW * 1000, 60)
    settings = segment_states.config(tmp_path / "cf", batch_bytes=800)
    state = made(segment_states.clean(db, settings))
    assert contents(db.states_path / "000002") == found
    pinned = segments - set(state.segments())
    size = sum(len(found[f"objects/{number:08d}"]) for number in pinned)
    assert state.report()["pinned"]["bytes of leased states"] == size > 0
    assert segment_states.faults(db) == []


def test_robots_file_that_only_its_site_needs_is_kept(tmp_path: Path) -> None:
    robots = Sheep(f"{SITE}/robots.txt", now=b"User-agent: *\n", flags=int(Flag.ROBOTS))
    db = segment_states.fill(tmp_path, [robots, *refreshed(6)])
    with db.writing("test") as writer:
        own = sorted(segment_states.rows(db.closed())).index(robots.key)
        _change(writer, "type", partial(forgetting, own))
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    oid = int(state.sites["robots_oid"].value(0))
    assert state.objects.get(oid).body() == b"User-agent: *\n"
    assert segment_states.faults(db) == []
    assert segment_states.clean(db, segment_states.config(tmp_path / "cf")) is None


@pytest.mark.parametrize("header", [True, False])
def test_damaged_bucket_stops_the_cleanup_before_it_is_copied(tmp_path: Path, header: bool) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    path, offset = damage(db.closed(), 3, header)
    with pytest.raises(Corruption, match=f"{path} at {offset}: "):
        segment_states.clean(db, segment_states.config(tmp_path / "cf"))
    assert db.furthest().number == 2


def test_damaged_body_without_a_row_does_not_matter(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(12))
    state = db.closed()
    path = state.path / "objects" / f"{state.segments()[0]:08d}"
    _oid, oldest = next(state.objects.scan(state.segments()[0]))
    _flip(path, oldest.length - 1)
    made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    assert [fault for fault in segment_states.faults(db) if "000003" in fault] == []


def test_row_that_points_at_another_document_is_corruption(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, [page(n) for n in range(4)])
    with db.writing("test") as writer:
        _change(writer, "oid", lambda column: column[::-1].copy())
    with pytest.raises(Corruption, match="no bucket of its row begins here"):
        segment_states.clean(db, segment_states.config(tmp_path / "cf"))


def test_row_that_points_beyond_its_segment_is_corruption(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, [page(n) for n in range(4)])
    with db.writing("test") as writer:
        _change(writer, "size", lambda column: column + 5000)
    with pytest.raises(Corruption, match="index/oid at 0: points beyond its segment"):
        segment_states.clean(db, segment_states.config(tmp_path / "cf"))


def test_dry_run_reports_what_a_cleanup_does_and_changes_nothing(tmp_path: Path) -> None:
    flock = [*refreshed(12), page(77, type=RowType.SLEEPING, reason=Reason.BELOW_BAR)]
    db = segment_states.fill(tmp_path, flock)
    found, settings = contents(db.path), segment_states.config(tmp_path / "cf")
    told = cleanup.run(DryRun(db, db.closed()), settings, NOW, lambda _rows: None).report()["counts"]
    assert contents(db.path) == found
    assert told["trimmed"] == 1
    assert told["bytes freed"] > 0
    before = sum(length for length, _used in segment_states.waste(db.closed()).values())
    state = made(segment_states.clean(db, settings))
    after = sum(length for length, _used in segment_states.waste(state).values())
    assert told["bytes freed"] >= before - after > 0


def test_averages_are_reported_by_section(tmp_path: Path) -> None:
    flock = [*refreshed(6), page(90, section=3, now=b"x" * 1000), page(91, section=3, now=b"y" * 3000)]
    db = segment_states.fill(tmp_path, flock, segment_bytes=3000)
    told = made(segment_states.clean(db, segment_states.config(tmp_path / "cf"))).report()["averages"]
    assert told["pdf"]["documents"] == 2
    assert told["pdf"]["body bytes"] == 2000
    assert 0 < told["pdf"]["stored bytes"] < 2000
    assert told["none"]["documents"] == 6


def test_cleanup_needs_a_closed_state(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(3))
    with db.writing("test") as writer:
        plan.run(writer, segment_states.config(tmp_path / "cf"), NOW + 99 * 86_400, lambda _rows: None)
        with pytest.raises(NothingToDo, match=r"closed state, and the newest state is 000003\.reap: shep-reap comes next"):
            cleanup.run(writer, segment_states.config(tmp_path / "cf"), NOW, lambda _rows: None)


def test_jobs_partitions_and_copies_of_the_database_make_no_difference(tmp_path: Path) -> None:
    flock = [*refreshed(12), page(77, type=RowType.SLEEPING), page(78, type=RowType.FORGOTTEN, reason=Reason.CLIENT_ERROR)]
    segment_states.fill(tmp_path / "a", flock, rule="reject ext zip\n")
    results = []
    for n, (jobs, step) in enumerate(((1, 3), (3, 3), (1, 500))):
        shutil.copytree(tmp_path / "a", tmp_path / f"{n}" / "a")
        settings = segment_states.config(tmp_path / f"{n}" / "a" / "cf", step=step, batch_bytes=900)
        db = Database(tmp_path / f"{n}" / "a" / "db")
        made(segment_states.clean(db, settings, jobs=jobs))
        results.append(contents(db.states_path))
    assert results[0] == results[1] == results[2]


def test_contributions_and_journals_are_carried_along(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, refreshed(6))
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, replace(parent.name, number=3), NOW)
        for table in ("index", "sites", "servers"):
            builder.keep_table(table)
        builder.keep_objects()
        builder.write("contrib.00000001", b"")
        builder.write("journal.00000001", b"")
        builder.write("equiv", b"a.example b.example\n")
        builder.change(contribs=2)
        writer.publish(builder, {"phase": "test"})
    state = made(segment_states.clean(db, segment_states.config(tmp_path / "cf")))
    assert {"contrib.00000001", "journal.00000001", "equiv"} <= state.control.files.keys()
    assert segment_states.faults(db) == []


def forgetting(row: int, types: Array) -> Array:
    return np.where(np.arange(len(types)) == row, np.uint8(RowType.FORGOTTEN), types)


# --- helpers ----------------------------------------------------------------------------------------------------


def holds(state: State, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in (state.path / "objects").iterdir())


def damage(state: State, row: int, header: bool) -> tuple[str, int]:
    """Flip a bit in the bucket of a row; which file, and where the bucket begins."""
    oid = state.index["oid"].value(row)
    path, offset = state.path / "objects" / f"{oid >> 32:08d}", oid & 0xFFFFFFFF
    head = state.objects.head(oid).header
    _flip(path, offset + (66 if header else head.length - 1))
    return path.name, offset


def _flip(path: Path, at: int) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)


def _change(writer: Writer, column: str, change: Callable[[Array], Array]) -> None:
    """Publish the furthest state again with another column."""
    parent = writer.furthest()
    builder = writer.build(parent, replace(parent.name, number=parent.number + 1), NOW)
    builder.write_table("index", {column: change(parent.index[column][0 : parent.index.rows])})
    builder.keep_table("index", [column])
    for table in ("sites", "servers"):
        builder.keep_table(table)
    builder.keep_objects()
    writer.publish(builder, {"phase": "test"})
