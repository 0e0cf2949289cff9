"""A damaged file whose bytes still stand somewhere is put back: nothing is lost, and every state keeps its number.

And what recovery and pruning must never do: publish what does not hold together, or delete the last copy of anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shepherd.cycle.rebuild import drive as rebuild
from shepherd.cycle.rebuild import recover
from shepherd.errors import Corruption
from shepherd.formats import contrib
from shepherd.store.check import check
from shepherd.store.check.recover import survey
from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from shepherd.urls import parse
from tests.crash.dying import killed_after
from tests.crash.mending import CONFIG, NOW, copy, flip, mend, mended, reap, rows, write
from tests.support import sampling
from tests.support.page_states import _contributed
from tests.support.toy_farm import contents

SAMPLE_STEP = 17


def faults(db: Path) -> list[str]:
    return [str(fault) for fault in check.walk(Database(db)) if not fault.note]


def swap(first: Path, second: Path) -> None:
    """What each name leads to is then behind the other; the other links of the two stay as they were."""
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def objects(db: Path, state: str) -> list[Path]:
    return sorted((db / "state" / state / names.OBJECTS).iterdir())


def lose_links(db: Path, to: Path) -> Path:
    """A copy whose files have one link each, as most programs make it."""
    shutil.copytree(db, to)
    return to


# --- one flipped bit in the newest closed state


@pytest.fixture
def reaping(base: Path, tmp_path: Path) -> Path:
    """State 9 with a reap on it: whole, and further than any closed state."""
    return reap(copy(base, tmp_path / "db"))


@pytest.mark.parametrize("bit", sampling.of_the_day(range(22), 2, "bits of a control below a reap"))
def test_flipped_bit_in_the_control_below_a_reap_costs_nothing(bit: int, reaping: Path) -> None:
    before = rows(Database(reaping).closed())
    size = (reaping / "state/000009/control").stat().st_size
    flip(reaping / "state/000009/control", sampling.dice(f"control {bit}").randrange(size))
    after, told = mended(reaping)
    assert [str(name) for name in Database(reaping).states()] == ["000008", "000011", "000012.reap"]
    assert {name for name, column in before.items() if not (column == rows(after)[name]).all()} == set()
    (path,) = Database(reaping).furthest().harvests()
    assert len(harvest.read_journal(path)) == 1
    assert "planned" not in told  # the plan says of the new state what it said of the damaged one
    assert len(Database(reaping).furthest().plan()) == 2


def test_damage_of_a_closed_state_below_an_unfinished_directory_is_described(reaping: Path) -> None:
    flip(reaping / "state/000009/control")
    database = Database(reaping)
    steps = recover.describe(database, survey(database), recover.Recovery(CONFIG, NOW, lambda _bytes: None))
    assert [step.what.partition(":")[0] for step in steps] == [
        "make 000011 from what is left of 000009 and of 000008",
        "carry the harvest of 000010.reap over to the new state",
    ]


@pytest.mark.parametrize("phases", [["merged"], ["merged", "selected"], ["reap"]])
def test_unfinished_directory_on_a_damaged_state_runs_again(phases: list[str], base: Path, tmp_path: Path) -> None:
    db = copy(base, tmp_path / "db")
    database = Database(db)
    for phase in phases:
        with database.writing("test") as writer:
            parent = writer.furthest()
            builder = writer.build(parent, names.StateName(10, phase), NOW)
            builder.keep(p for p in parent.control.files if p != names.REPORT)
            writer.publish(builder, {"phase": phase})
    before = rows(database.closed())
    flip(db / "state/000009/control")
    after, _told = mended(db)
    assert [str(name) for name in Database(db).states()] == ["000008", "000011"]
    assert all((column == rows(after)[name]).all() for name, column in before.items())


# --- files that stand elsewhere


@pytest.mark.parametrize("state", ["000008", "000009"])
def test_missing_link_is_put_back_from_the_other_state(db: Path, state: str) -> None:
    before = contents(db / "state")
    for path in objects(db, state):
        if path.stat().st_nlink > 1:
            path.unlink()
    assert faults(db)
    _after, told = mended(db)
    assert "put " in told and "lost" not in told
    assert contents(db / "state") == before


def test_damaged_copy_is_put_back_in_a_database_without_links(base: Path, tmp_path: Path) -> None:
    db = lose_links(base, tmp_path / "db")
    before = contents(db / "state")
    shared = [path.name for path in objects(db, "000008") if (db / "state/000009/objects" / path.name).exists()]
    flip(db / "state/000009/objects" / shared[0])
    flip(db / "state/000008/objects" / shared[-1], 0.7)
    mended(db)
    assert contents(db / "state") == before


def test_every_kind_of_file_is_put_back_from_a_mirror(base: Path, tmp_path: Path) -> None:
    db, mirror = copy(base, tmp_path / "db"), lose_links(base, tmp_path / "mirror")
    before = contents(db / "state")
    for name in ("control", "report.json", "index/norm", "index/path.check", "sites/names", "objects/00000003"):
        path = db / "state/000009" / name
        path.unlink() if name.endswith("check") else flip(path)
    with Database(db).writing("test", tidy=False) as writer:
        run = recover.Recovery(CONFIG, NOW, lambda _bytes: None, [Database(mirror)])
        steps = recover.recover(writer, run, deep=False)
    assert all(step.what.startswith("put ") for step in steps)
    assert contents(db / "state") == before
    assert all(not path.stat().st_mode & 0o222 for path in (db / "state").rglob("*") if path.is_file())
    assert all(path.stat().st_nlink == 1 for path in (mirror / "state").rglob("*") if path.is_file())


def test_buckets_are_taken_from_several_damaged_copies(base: Path, tmp_path: Path) -> None:
    """Each copy of a segment has lost another bucket: together they have all."""
    db = lose_links(base, tmp_path / "db")
    before = rows(Database(db).closed())
    name = max((p.name for p in objects(db, "000008")), key=lambda n: (db / "state/000009/objects" / n).stat().st_size)
    flip(db / "state/000008/objects" / name, 0.2)
    flip(db / "state/000009/objects" / name, 0.8)
    after, told = mended(db)
    assert "made 000010" in told and "lost" not in told and "damaged bodies" not in told
    assert all((before[column] == rows(after)[column]).all() for column in ("norm", "path", "site", "digest", "size", "type"))


# --- files behind each other's names


@pytest.mark.parametrize("links", [True, False])
def test_swapped_segments_are_put_back_where_they_were(base: Path, tmp_path: Path, links: bool) -> None:
    db = copy(base, tmp_path / "db") if links else lose_links(base, tmp_path / "db")
    before = contents(db / "state")
    first, *_rest, last = objects(db, "000009")
    swap(first, last)
    mended(db)
    assert contents(db / "state") == before


def test_swapped_files_of_any_kind_are_put_back(db: Path) -> None:
    before = contents(db / "state")
    newest = db / "state/000009"
    swap(newest / "index/norm", newest / "index/path")
    swap(newest / "control", newest / "report.json")
    swap(newest / "sites/names", newest / "servers/qkey.check")
    mended(db)
    assert contents(db / "state") == before


@pytest.mark.parametrize("other", ["journal", "seg.00000001", "../../plan", "../../../000009/objects/00000003"])
@pytest.mark.parametrize("name", ["checkpoints", "contrib"])
def test_swapped_files_of_a_harvest_are_put_back(reaping: Path, name: str, other: str) -> None:
    """Not to the inode: a harvest goes on writing into its files."""
    path = reaping / "state/000010.reap/harvest/reap"
    one = harvest.Harvest(path, 1 << 20)
    one.contribute(1, contrib.encode(_contributed(parse("http://a.example/linked"))))
    one.checkpoint(NOW * 1000)
    one.close()
    before = contents(reaping / "state")
    swap(path / name, path / other)
    mended(reaping)
    assert contents(reaping / "state") == before
    harvest.Harvest(path, 1 << 20).end(NOW * 1000)


def test_row_has_no_bucket_of_another_document(base: Path, tmp_path: Path) -> None:
    """Two segments are swapped, and a bit of one is flipped: neither can be known by its checksum alone."""
    db = lose_links(base, tmp_path / "db")
    shutil.rmtree(db / "state/000008")
    first, second = sorted(objects(db, "000009"), key=lambda path: path.stat().st_size)[-2:]
    before = rows(Database(db).closed())
    flip(first, 0.9)
    swap(first, second)
    (db / "state/000009/control").unlink()
    shutil.copytree(base / "state/000008", db / "state/000008")  # for the key
    after, _told = mended(db)
    found = rows(after)
    assert len(found["norm"]) == len(before["norm"])
    for oid, path, site in zip(*(found[name].tolist() for name in ("oid", "path", "site")), strict=True):
        header = after.objects.get(oid).header
        assert (header.path, header.site) == (path, site)


# --- what must not happen


def test_what_does_not_hold_together_is_not_published(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the rebuilding itself: nothing is published, nothing deleted, and a cycle finds what it would have found."""
    flip(db / "state/000009/index/weight")
    before = contents(db / "state")
    really = rebuild._robots_files
    monkeypatch.setattr(rebuild, "_robots_files", lambda rows: really(rows | {"oid": rows["oid"] ^ 64}))
    with pytest.raises(Corruption, match="does not hold together, so it was not published"):
        mend(db)
    assert contents(db / "state") == before
    with Database(db).writing("test") as writer:
        assert writer.prune(1, NOW) == []
    monkeypatch.undo()
    mend(db)
    with Database(db).writing("test") as writer:
        assert writer.prune(1, NOW) == [8]


@pytest.mark.parametrize("kind", ["objects", "servers", "control"])
def test_state_with_the_last_copy_of_a_file_is_not_deleted(db: Path, kind: str) -> None:
    shared = [path for path in sorted((db / "state/000009").rglob("*")) if path.is_file() and path.stat().st_nlink > 1]
    lost = next((path for path in shared if path.parent.name == kind), db / "state/000009/control")
    assert kind in lost.parts
    lost.unlink()
    with Database(db).writing("test", tidy=False) as writer:
        assert writer.prune(1, NOW) == []


def test_state_with_the_last_whole_copy_of_a_segment_is_not_deleted(base: Path, tmp_path: Path) -> None:
    db = lose_links(base, tmp_path / "db")
    shared = next(path for path in objects(db, "000008") if (db / "state/000009/objects" / path.name).exists())
    flip(db / "state/000009/objects" / shared.name)
    with Database(db).writing("test") as writer:
        assert writer.prune(1, NOW) == []
    mended(db)
    with Database(db).writing("test") as writer:
        assert writer.prune(1, NOW) == [8]


def test_leased_state_that_stays_is_not_said_to_go(db: Path) -> None:
    Database(db).lease(8, "x", "y", NOW * 1000, 100)
    flip(db / "state/000008/report.json")
    assert mend(db) == []
    assert [str(name) for name in Database(db).states()] == ["000008", "000009"]


# --- killed anywhere


def swapped(db: Path) -> None:
    first, second, *_rest = objects(db, "000009")
    swap(first, second)
    (db / "state/000009/index/norm").unlink()
    shutil.copy2(db / "state/000008/control", db / "state/000009/control")


def test_repair_killed_at_any_call_is_finished_by_the_next(base: Path, tmp_path: Path) -> None:
    plain = lose_links(base, tmp_path / "plain")
    os.link(plain / "state/000009/index/norm", plain / "state/000008/spare")  # a file of its own, somewhere
    os.link(plain / "state/000009/control", plain / "state/000008/spare.control")
    expected = contents(plain / "state/000009")
    sweep(plain, tmp_path, swapped, expected)


def sweep(base: Path, tmp_path: Path, damage: Callable[[Path], None], expected: dict[str, bytes]) -> None:
    step = sampling.step(SAMPLE_STEP)
    call = sampling.first(step, "calls of a repair")
    while True:
        db = lose_links(base, tmp_path / str(call))
        damage(db)
        if not killed_after(call, partial(mend, db)):
            break
        with Database(db).writing("test", tidy=False) as writer:
            writer.remove_leftovers()  # as every program does that takes the lock
        mend(db)
        assert contents(db / "state/000009") == expected, call
        assert faults(db) == [], call
        shutil.rmtree(db)
        call += step
    assert call > 2 * step


def test_write_bit_is_back_to_none_after_a_repair(db: Path) -> None:
    path = db / "state/000009/report.json"
    write(path, path.read_bytes() + b"tail")
    mend(db)
    assert not path.exists() or not path.stat().st_mode & 0o222
