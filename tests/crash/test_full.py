"""A disk that is really full, file size limits, and a second writer: an exit status of its own, one sentence, and nothing lost.

Once there is room the same command works. shep-recover works on a disk without a free byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from tests.crash import cycle_steps, disks, judge
from tests.crash.nursery import ROOT, Ended, Nursery, nursery
from tests.crash.tally import Tally
from tests.support import sampling
from tests.support.toy_farm import farm
from tests.support.waiting import wait_until

NOW = ("--now", str(cycle_steps.NOW))
PHASES = ("merge", "equiv", "select", "record", "feedback", "plan", "cork", "cleanup")
PAGE = 4096
SAMPLE = 1  # of the shortages between nothing and enough
NO_SPACE, IO_FAILED, LOCKED = 12, 13, 3
RUN = "from shepherd.cli.__main__ import main; main()"


@dataclass(frozen=True)
class Room:
    """A small disk; `leave` fills it but for so many bytes. Databases to put on it are made once, and kept on the shelf."""

    disk: Path
    shelf: Path
    children: Nursery

    @property
    def db(self) -> Path:
        return self.disk / "db"

    def put(self, name: str, grow: Callable[[Path], object]) -> None:
        """A database, made elsewhere so that what it needs while it is made does not count."""
        self.clear()
        made = self.shelf / name
        if not made.exists():
            cycle_steps.configure(made / "db")
            grow(made / "db")
        subprocess.run(["cp", "-a", f"{made}/.", self.disk], check=True)

    def clear(self) -> None:
        for name in ("db", "cf", "ballast"):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.disk / name) if name != "ballast" else (self.disk / name).unlink()

    def leave(self, free_bytes: int) -> Path:
        ballast = disks.fill(self.disk)
        os.truncate(ballast, max(0, ballast.stat().st_size - free_bytes))
        return ballast

    def run(self, *argv: str) -> Ended:
        return self.children.run(*argv, SHEPHERD_DB=str(self.db), SHEPHERD_CF=str(self.disk / "cf"))


@pytest.fixture(scope="module", params=["tmpfs", "ext4"])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    disk = disks.tmpfs(6 << 20) if request.param == "tmpfs" else disks.loop("ext4", 12)
    with disks.workplace() as home, disk as made, nursery(home) as children:
        yield Room(made if isinstance(made, Path) else made.path, home / "shelf", children)


def needed_bytes(room: Room, argv: tuple[str, ...]) -> int:
    """How much the program takes of an empty disk at most: what it leaves, and as much again for what it removes at its end."""
    before = os.statvfs(room.disk).f_bavail
    assert room.run(*argv).status == 0
    return (before - os.statvfs(room.disk).f_bavail) * os.statvfs(room.disk).f_bsize


def shortages(needed: int, seed: str) -> list[int]:
    """Free bytes that are too few: none, and some in between."""
    some = range(PAGE, max(needed, 2 * PAGE), PAGE)
    return [0, *sampling.sample(some, SAMPLE, seed)]


@pytest.mark.parametrize("name", sampling.of_the_day(PHASES, 5, "phases on a full disk"))
def test_phase_on_a_full_disk_says_so_and_works_once_there_is_room(room: Room, name: str, tally: Tally) -> None:
    argv = (f"shep-{name}", *NOW)
    room.put(name, lambda db: cycle_steps.grow(db, name))
    before = judge.facts(room.db)
    needed = needed_bytes(room, argv)
    cycle_steps.recovered(room.db)
    after, contents = judge.facts(room.db), judge.gathered(room.db)
    assert contents or name != "cleanup"
    full = 0
    for free in shortages(needed, name):
        room.put(name, lambda db: cycle_steps.grow(db, name))
        ballast = room.leave(free)
        ended = room.run(*argv)
        complaints = [] if ended.status == 0 else _one_sentence(ended, NO_SPACE)
        full += ended.status == NO_SPACE
        if name == "cleanup":  # its batches fit into the room that there is
            complaints += judge.judge_contents(room.db, contents)
        else:
            complaints += judge.judge(room.db, before, after, done=ended.status == 0)
        ballast.unlink()
        works = room.run(*argv).status in (0, 4)
        if not works or (judge.gathered(room.db) != contents if name == "cleanup" else judge.facts(room.db) != after):
            complaints.append("it does not work once there is room")
        tally.point(f"{name} with {free} of {needed} bytes free", complaints, vacuous=free == 0 and ended.status == 0)
    assert full, "the disk was never full: nothing was tested"
    tally.close()


def _one_sentence(ended: Ended, status: int) -> list[str]:
    good = ended.status == status and ended.err.count("\n") == 1 and "Traceback" not in ended.err
    return [] if good else [f"status {ended.status} instead of {status}, or not one sentence: {ended.err!r}"]


def test_init_on_a_full_disk_says_so_and_works_once_there_is_room(room: Room, tally: Tally) -> None:
    full = 0
    for free in range(0, 4 * PAGE, PAGE):
        room.put("nothing", lambda db: None)
        ballast = room.leave(free)
        ended = room.run("shep-init", *NOW)
        full += ended.status == NO_SPACE
        ballast.unlink()
        complaints = [] if ended.status == 0 else _one_sentence(ended, NO_SPACE)
        if room.run("shep-init", *NOW).status != (2 if ended.status == 0 else 0):  # what is there is not made again
            complaints.append("it does not work once there is room")
        complaints += judge.untidy(room.db)
        tally.point(f"shep-init with {free} bytes free", complaints, vacuous=free == 0 and ended.status == 0)
    assert full, "the disk was never full: nothing was tested"
    tally.close()


def test_insert_on_a_full_disk_says_so_and_works_once_there_is_room(room: Room) -> None:
    room.put("merge", lambda db: cycle_steps.grow(db, "merge"))
    before = judge.facts(room.db)
    many = [f"http://more.example/{number}" for number in range(2_000)]  # ext4 frees some blocks late: more than fits into those
    ballast = room.leave(0)
    assert _one_sentence(room.run("shep", "insert", *many), NO_SPACE) == []
    assert judge.judge(room.db, before, before) == []
    ballast.unlink()
    assert room.run("shep", "insert", *many).status == 0
    assert len(judge.facts(room.db).inbox) == len(before.inbox) + 1


def test_recover_needs_no_free_byte(room: Room, tally: Tally) -> None:
    room.put("broken", cycle_steps.break_down)
    assert room.run("shep-recover").status == 0
    after = judge.facts(room.db)
    room.put("broken", cycle_steps.break_down)
    room.leave(0)
    ended = room.run("shep-recover")
    complaints = [] if ended.status == 0 and ended.out.count("done:") == 4 else [f"it fails: {ended}"]
    tally.point("shep-recover with 0 bytes free", complaints + judge.judge(room.db, after, after))
    tally.close()


def test_harvest_on_a_full_disk_keeps_what_was_checkpointed(room: Room, crash_sweep: bool, tally: Tally) -> None:
    room.put("harvest", lambda db: cycle_steps.grow(db, "harvest"))
    before = judge.facts(room.db)
    assert room.run("small", "harvest").status == 0
    after = judge.facts(room.db)
    for free in range(0, 6 * PAGE, PAGE if crash_sweep else 2 * PAGE):
        room.put("harvest", lambda db: cycle_steps.grow(db, "harvest"))
        room.leave(free)
        ended = room.run("small", "harvest")
        complaints = [] if ended.status == 0 else _one_sentence(ended, NO_SPACE)
        complaints += judge.judge(room.db, before, after, cycle_steps.acknowledged(ended.out), ended.status == 0)
        tally.point(f"harvest with {free} bytes free", complaints, vacuous=free == 0 and ended.status == 0)
    tally.close()


def test_reap_on_a_full_disk_says_so_and_continues_once_there_is_room(tmp_path: Path) -> None:
    with farm(tmp_path) as made, disks.tmpfs(6 << 20) as disk:
        for program in ("shep-merge", "shep-select", "shep-record", "shep-plan"):
            made.must(program, "--quiet")
        one = made.copy(disk / "db")
        ballast = disks.fill(disk)
        os.truncate(ballast, ballast.stat().st_size - 3 * PAGE)  # it writes four files
        done = one.run("shep-reap", "--quiet")
        assert done.returncode == NO_SPACE, done.stderr
        assert done.stderr.splitlines()[-1].startswith("shep-reap: ")
        assert "Traceback" not in done.stderr
        ballast.unlink()
        for program in ("shep-reap", "shep-cork", "shep-check"):
            one.must(program, "--quiet")
        assert one.violations() == []


@pytest.mark.parametrize("limit", ["size_bytes", "reserve_bytes"])
def test_reap_that_reaches_its_limit_ends_in_good_order_and_keeps_what_it_has(tmp_path: Path, limit: str) -> None:
    with farm(tmp_path) as made, disks.tmpfs(6 << 20) as disk:
        before = ("shep-merge", "shep-select", "shep-record", "shep-plan")
        for program in (*before, "shep-reap", "shep-cork", *before):
            made.must(program, "--quiet")
        one = made.copy(disk / "db")
        settings = (tmp_path / "cf" / "shepherd.toml").read_text()
        segments = (one.database.furthest().path / names.OBJECTS).iterdir()
        values = {"size_bytes": sum(path.stat().st_size for path in segments) + 5_000, "reserve_bytes": 2_080_000}
        told = f"{limit} = {values[limit]}\npages_per_s = 3\n" + ("reserve_bytes = 0" if limit == "size_bytes" else "")
        slow = settings.replace("reserve_bytes = 0  # of the disk", told)
        (tmp_path / "cf" / "shepherd.toml").write_text(slow)
        ballast = disks.fill(disk)
        os.truncate(ballast, ballast.stat().st_size - 2_100_000)
        done = one.run("shep-reap", "--quiet")
        assert done.returncode == NO_SPACE, done.stderr
        key = f"reap.{limit}"
        assert key in done.stderr and "what was gathered is kept" in done.stderr
        report = json.loads((one.db / "log" / "reaps.jsonl").read_text().splitlines()[-1])
        assert report["results"]["stored"] > 0 and report["left"] > 0 and key in report["why"]
        assert one.run("shep-reap", "--quiet").returncode == 4, "this reap has ended"
        ballast.unlink()
        (tmp_path / "cf" / "shepherd.toml").write_text(settings)
        for program in ("shep-cork", "shep-check"):
            one.must(program, "--quiet")
        stored = one.must("shep", "list", "--type", "gathered", "--limit", "100000").splitlines()
        assert len(stored) >= report["results"]["stored"]


@pytest.mark.parametrize("name", PHASES)
def test_file_that_may_not_grow_is_an_error_and_no_half_written_state(name: str) -> None:
    """RLIMIT_FSIZE: the write that crosses the limit is short, the next one fails."""
    with disks.workplace() as home:
        cycle_steps.grow(home / "db", name)
        before = judge.facts(home / "db")
        environment = {**os.environ, "SHEPHERD_DB": str(home / "db"), "SHEPHERD_CF": str(home / "cf")}
        limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); {RUN}"
        command = [sys.executable, "-c", limited, f"shep-{name}", *NOW]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == IO_FAILED, done.stderr
        assert done.stderr.count("\n") == 1
        assert "File too large" in done.stderr
        assert judge.judge(home / "db", before, before) == []


# --- two writers ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def holding(db: Path) -> Iterator[int]:
    """A shep-merge that stands still before its commit; its pid."""
    environment = {**os.environ, "SHEPHERD_DB": str(db), "SHEPHERD_CF": str(cycle_steps.cf_of(db))}
    command = [sys.executable, "-m", "shepherd.cli", "shep-merge", *NOW]
    environment["SHEPHERD_FAIL"] = "rename:000002.tmp:1=pause"
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            wait_until(lambda: (db / names.STATES / "000002.tmp" / names.CONTROL).exists() or process.poll() is not None)
            assert process.poll() is None
            yield process.pid
        finally:
            process.send_signal(signal.SIGKILL)


def test_second_writer_learns_who_has_the_lock_and_harms_nothing(tmp_path: Path) -> None:
    with disks.workplace() as home, nursery(tmp_path) as children:
        db = home / "db"
        cycle_steps.grow(db, "merge")
        environment = {"SHEPHERD_DB": str(db), "SHEPHERD_CF": str(home / "cf")}
        with holding(db) as pid:
            for program in (*(f"shep-{name}" for name in PHASES), "shep-reap", "shep-recover"):
                ended = children.run(program, **environment)
                assert ended.status == LOCKED, (program, ended)
                assert f"held by shep-merge, pid {pid} on" in ended.err
                assert ended.err.count("\n") == 1
            assert children.run("shep", "list", **environment).status == 0  # readers never wait
            assert children.run("shep", "insert", "http://more.example/", **environment).status == 0
        assert children.run("shep-merge", *NOW, **environment).status == 0
        assert judge.untidy(db) == []


def test_second_dispatcher_of_a_harvest_is_refused(tmp_path: Path) -> None:
    with disks.workplace() as home, nursery(tmp_path) as children:
        db = home / "db"
        cycle_steps.grow(db, "harvest on")
        one = Harvest(cycle_steps.harvest_path(Database(db).furthest()), 1 << 20)
        ended = children.run("small", "harvest on", SHEPHERD_DB=str(db))
        one.close()
        assert ended.status == LOCKED
        assert f"a dispatcher, pid {os.getpid()} on" in ended.err
        assert children.run("small", "harvest on", SHEPHERD_DB=str(db)).status == 0
