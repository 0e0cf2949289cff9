"""kill -9 of every batch phase at its failpoints: run again it makes the same bytes, and the next cycle carries on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shepherd.store.disk import names
from shepherd.store.state.inbox import CONTRIB, REQUESTS
from tests.support import sampling
from tests.support.toy_farm import NOW, PHASES, Farm, contents, reference

# Before the commit: the phase has not happened. {tmp} is what it builds.
BEFORE = ("mkdir:{tmp}", "write:{tmp}/control", "sync:{tmp}/control", "sync:{tmp}/index", "rename:{tmp}")
# After it: it has happened, and the rest is tidied later. {parent} is what it read.
AFTER = ("sync:state:{renames}", "rename:{parent}", "rmdir:{parent}.gone")


@pytest.mark.parametrize("program", PHASES)
def test_phase_killed_before_its_commit_runs_again_to_the_same_bytes(
    before_each: dict[str, Farm], program: str, tmp_path: Path
) -> None:
    stage = before_each[program]
    name, expected = reference(stage, program, tmp_path)
    found = stage.furthest()
    for number, point in enumerate(sampling.sample(BEFORE, 1, f"before {program}", 2)):
        one = stage.copy(tmp_path / str(number))
        one.killed(program, point.format(tmp=f"{name[:6]}.tmp") + ":1=kill", "--now", str(NOW))
        assert one.furthest() == found
        one.must(program, "--now", str(NOW))
        assert contents(one.db / "state" / name) == expected, point
        assert sorted(p.name for p in (one.db / "state").iterdir() if p.name.endswith((".tmp", ".gone", ".scratch"))) == []


@pytest.mark.parametrize("program", ["shep-merge", "shep-select", "shep-feedback"])
@pytest.mark.parametrize("point", ["create", "write", "unlink"])
def test_scratch_files_of_a_killed_phase_go_with_the_next_start(
    before_each: dict[str, Farm], program: str, point: str, tmp_path: Path
) -> None:
    name, expected = reference(before_each[program], program, tmp_path)
    one = before_each[program].copy(tmp_path / "db")
    one.killed(program, f"{point}:{name[:6]}.scratch/{names.scratch_file(1)}:1=kill", "--now", str(NOW))
    assert (one.db / "state" / f"{name[:6]}.scratch").is_dir()
    assert "left by a killed program" in one.must("shep-check")
    one.must(program, "--now", str(NOW))
    assert contents(one.db / "state" / name) == expected
    assert [entry for entry in os.listdir(one.db / "state") if names.is_leftover(entry)] == []


@pytest.mark.parametrize("program", PHASES)
def test_phase_killed_after_its_commit_has_happened(before_each: dict[str, Farm], program: str, tmp_path: Path) -> None:
    stage = before_each[program]
    name, expected = reference(stage, program, tmp_path)
    # A closed state is not deleted by the phase that reads it.
    points = [point for point in AFTER if "." in stage.furthest() or "parent" not in point]
    for number, point in enumerate(sampling.sample(points, 1, f"after {program}", 2)):
        one = stage.copy(tmp_path / str(number))
        spec = point.format(parent=stage.furthest(), renames=2)  # the sync of db/state before it is that of tidying
        one.killed(program, spec + ("=kill" if spec.count(":") > 1 else ":1=kill"), "--now", str(NOW))
        assert one.furthest() == name, point
        one.must("shep-recover")
        assert contents(one.db / "state" / name) == expected, point
        one.must("shep-check")


@pytest.mark.parametrize("program", sampling.of_the_day(PHASES, 3, "cycle after a killed phase"))
def test_next_cycle_carries_on_after_a_killed_phase(
    before_each: dict[str, Farm], program: str, crash_sweep: bool, tmp_path: Path
) -> None:
    one = before_each[program].copy(tmp_path / "db")
    name, _ = reference(before_each[program], program, tmp_path)
    one.killed(program, f"rename:{name[:6]}.tmp:1=kill")
    rows = one.database.closed().index.rows
    if program == "shep-merge" or crash_sweep:  # the master itself, which starts everything anew
        one.must("shepherd", "cycle", "--seconds", "1")
    else:
        one.cycle("--seconds", "1")
    one.must("shep-check")
    assert "." not in one.furthest()
    assert one.database.closed().index.rows >= rows
    assert one.violations() == []


@pytest.mark.parametrize("kind", [CONTRIB, REQUESTS])
def test_inbox_item_is_applied_once_although_record_was_killed_before_removing_it(
    before_each: dict[str, Farm], kind: str, tmp_path: Path
) -> None:
    one, url = before_each["shep-merge"].copy(tmp_path / "db"), "http://brand.new.example/"
    if kind == CONTRIB:
        one.must("shep", "insert", url)
    else:
        one.database.inbox.drop(one.database.new_item_name(1), [{"op": "insert", "url": url}])
    for program in ("shep-merge", "shep-equiv", "shep-select"):
        one.must(program)
    assert len(one.database.inbox.items()) == 1  # an unfinished directory may be lost: the request is still needed
    one.killed("shep-record", f"unlink:.{kind}:1=kill")
    assert len(one.database.inbox.items(kind)) == 1
    assert one.run("shep-merge").returncode == 4  # it has been taken
    assert one.database.inbox.items() == []
    assert one.must("shep", "list", "--site", "brand.new.example").count(f"{url}\n") == 1


@pytest.mark.parametrize("point", ["create:.contrib.tmp", "write:.contrib.tmp", "sync:.contrib.tmp", "rename:.contrib.tmp"])
def test_killed_insert_leaves_nothing_that_is_taken(before_each: dict[str, Farm], point: str, tmp_path: Path) -> None:
    one = before_each["shep-merge"].copy(tmp_path / "db")
    one.killed("shep", f"{point}:1=kill", "insert", "http://brand.new.example/")
    assert one.database.inbox.items() == []
    one.must("shep", "insert", "http://brand.new.example/")
    for program in ("shep-merge", "shep-select", "shep-record"):
        one.must(program)
    assert list(one.database.inbox.directory.iterdir()) == []
    assert one.must("shep", "list", "--site", "brand.new.example").count("http://brand.new.example/\n") == 1


@pytest.mark.parametrize("point", ["write:{tmp}/{contrib}", "chmod:{tmp}/{contrib}", "write:{tmp}/control", "rename:{tmp}"])
def test_killed_merge_takes_inserted_urls_once_in_the_end(before_each: dict[str, Farm], point: str, tmp_path: Path) -> None:
    one = before_each["shep-merge"].copy(tmp_path / "db")
    one.must("shep", "insert", "http://brand.new.example/")
    control = one.database.furthest().control
    place = point.format(tmp=names.tmp(control.state + 1), contrib=names.contrib(control.contribs))
    one.killed("shep-merge", f"{place}:1=kill")
    one.must("shep-merge")
    assert len(one.database.furthest().control.applied) == 1
    for program in ("shep-select", "shep-record"):
        one.must(program)
    assert one.must("shep", "list", "--site", "brand.new.example").count("http://brand.new.example/\n") == 1
    one.must("shep-check")


def test_request_survives_the_loss_of_the_directory_that_had_applied_it(before_each: dict[str, Farm], tmp_path: Path) -> None:
    one = before_each["shep-merge"].copy(tmp_path / "db")
    one.must("shep", "insert", "http://brand.new.example/")
    one.must("shep-merge")
    damage(one.database.furthest().path / "index" / "weight")
    assert one.run("shep-select").returncode == 11
    assert "remove 0000" in one.must("shep-recover")
    for program in ("shep-merge", "shep-select", "shep-record"):
        one.must(program)
    assert "http://brand.new.example/" in one.must("shep", "list", "--site", "brand.new.example")
    one.must("shep-check")


@pytest.mark.parametrize("name", ["control", "plan", "report.json"])
def test_damaged_directory_of_a_phase_that_can_run_again_is_dropped(
    before_each: dict[str, Farm], name: str, tmp_path: Path
) -> None:
    one = before_each["shep-plan"].copy(tmp_path / "db")
    one.must("shep-plan")
    damage(one.database.furthest().path / name)
    one.must("shep-recover")
    one.must("shep-plan")
    one.must("shep-check")


def test_damaged_harvest_gets_no_checksum(before_each: dict[str, Farm], tmp_path: Path) -> None:
    for number, name in enumerate(("contrib", "seg.00000001", "journal")):
        one = before_each["shep-cork"].copy(tmp_path / str(number))
        damage(one.database.furthest().path / "harvest" / "reap" / name, 0.3)
        assert one.run("shep-check").returncode == 11, name
        assert one.run("shep-cork").returncode == 11, name


def test_stranger_with_a_higher_number_does_not_cost_a_harvest(before_each: dict[str, Farm], tmp_path: Path) -> None:
    one = before_each["shep-cork"].copy(tmp_path / "db")
    found = one.furthest()
    closed = str(one.database.closed().name)
    shutil.copytree(one.db / "state" / closed, one.db / "state" / "000099")
    assert one.run("shep-cork").returncode == 11  # its control says that it is another
    assert (one.db / "state" / found / "harvest").is_dir()


def test_link_that_looks_like_a_leftover_does_not_cost_its_target(before_each: dict[str, Farm], tmp_path: Path) -> None:
    one = before_each["shep-plan"].copy(tmp_path / "db")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (one.db / "state" / "000099.tmp").symlink_to(tmp_path / "precious")
    one.must("shep-plan")
    assert (tmp_path / "precious" / "file").read_text() == "x"
    assert not (one.db / "state" / "000099.tmp").is_symlink()


def damage(path: Path, where: float = 0.5) -> None:
    """Flip one bit somewhere in a file."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(data)
