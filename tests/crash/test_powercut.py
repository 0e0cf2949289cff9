"""Power cuts on real file systems: after mount and shep-recover the step has happened or not, and nothing acknowledged is lost.

A few cuts by default; with `bin/test --crash` one before every call of every step and one after its end, in a mode chosen by
dice, or in every mode where the step is short.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.store.disk import names
from tests.crash import cycle_steps, disks, judge, powercut
from tests.crash.judge import Facts
from tests.crash.nursery import Ended, Nursery, nursery
from tests.crash.tally import Tally
from tests.support import sampling

SAMPLE = 1  # cuts of a step, others on each file system
FIRST = "begin"
STEPS = [
    "drop",
    "merge more",
    "equiv",
    "select",
    "record",
    "upload",
    "feedback",
    "plan",
    "harvest",
    "harvest on",
    "cork",
    "lease",
    "prune",
    "cleanup",
    "recover",
]
SHORT = 50  # calls


@dataclass(frozen=True)
class Socket:
    """A disk whose power can be cut, and a database that is put on it again and again."""

    home: Path
    disk: disks.Disk
    children: Nursery
    kind: str  # of file system

    @property
    def db(self) -> Path:
        return self.disk.path / "db"

    def prepare(self, step: str) -> Path:
        """Make the database before the step, beside the disk; a copy of it, for the step to be taken."""
        for name in ("before", "after"):
            shutil.rmtree(self.home / name, ignore_errors=True)
        made = self.home / "before" / "db"
        cycle_steps.configure(made)
        if step == "recover":
            cycle_steps.break_down(made)
        else:
            cycle_steps.grow(made, step)
        subprocess.run(["cp", "-a", self.home / "before", self.home / "after"], check=True)
        return self.home / "after" / "db"

    def take(self, step: str) -> tuple[Facts, int, Facts]:
        """What holds before the step and after it, and how many calls it makes, when nothing disturbs it."""
        scratch = self.prepare(step)
        if step == "recover":  # nobody works with such a database before it is recovered
            calls = powercut.calls_of(step, scratch)
            return judge.facts(scratch), calls, judge.facts(scratch)
        before = judge.facts(scratch)
        calls = powercut.calls_of(step, scratch)
        cycle_steps.recovered(scratch)
        return before, calls, judge.facts(scratch)

    def reset(self) -> None:
        for entry in self.disk.path.iterdir():
            if entry.name in ("db", "cf"):
                shutil.rmtree(entry)
        subprocess.run(["cp", "-a", f"{self.home}/before/.", self.disk.path], check=True)
        disks.run("sync", "--file-system", str(self.disk.path))

    def cut(self, step: str, call: int, mode: str) -> Ended:
        """Take the step, cut the power at this call of it, and switch it on again.

        What the step prints before the line `cut` was told while there was power. What it prints later nobody would have heard:
        a sync that the cut meets may say that it went well.
        """
        ended = self.children.run("cut", step, str(call), mode, str(self.disk.path), SHEPHERD_DB=str(self.db))
        self.disk.umount()
        self.disk.mount()
        return ended


@pytest.fixture(scope="module", params=["ext4", "xfs"])
def socket(request: pytest.FixtureRequest) -> Iterator[Socket]:
    with disks.workplace() as home, disks.loop(request.param) as disk, nursery(home) as children:
        yield Socket(home, disk, children, request.param)


def chosen(kind: str, step: str, calls: int, everything: bool) -> list[tuple[int, str]]:
    dice = sampling.dice(f"{step} on {kind}")
    points = [(call, mode) for call in range(1, calls + 2) for mode in powercut.MODES]
    if not everything:
        return dice.sample(points, SAMPLE)
    return points if calls <= SHORT else [(call, dice.choice(powercut.MODES)) for call in range(1, calls + 2)]


@pytest.mark.parametrize("step", sampling.of_the_day(STEPS, 8, "steps of a power cut"))
def test_power_cut_at_any_call_costs_nothing_that_was_acknowledged(
    socket: Socket, step: str, crash_sweep: bool, tally: Tally
) -> None:
    before, calls, after = socket.take(step)
    for call, mode in chosen(socket.kind, step, calls, crash_sweep):
        socket.reset()
        ended = socket.cut(step, call, mode)
        told, cut, _rest = ended.out.partition("cut\n")
        complaints = judge.judge(socket.db, before, after, cycle_steps.acknowledged(told), "done" in told.split())
        tally.point(f"{mode} cut at call {call} of {calls} of {step}", complaints, vacuous=not cut)
    tally.close()


def test_power_cut_while_a_database_is_made_leaves_one_or_none(socket: Socket, crash_sweep: bool, tally: Tally) -> None:
    scratch = socket.prepare(FIRST)
    calls = powercut.calls_of(FIRST, scratch)
    for call, mode in chosen(socket.kind, FIRST, calls, crash_sweep):
        socket.reset()
        ended = socket.cut(FIRST, call, mode)
        told, cut, _rest = ended.out.partition("cut\n")
        made = (socket.db / names.STATES).exists()
        complaints = ["it had been made, and is gone"] if "done" in told.split() and not made else []
        if not made:
            cycle_steps.begin(socket.db)
        tally.point(f"{mode} cut at call {call}", complaints + judge.untidy(socket.db), vacuous=not cut)
    tally.close()


def test_power_cut_reveals_a_program_that_does_not_sync(socket: Socket) -> None:
    """Or else the cuts above prove nothing."""
    before, calls, after = socket.take("harvest")
    socket.reset()
    ended = socket.cut("harvest", calls + 1, "careless")
    assert ended.out.split()[-2:] == ["done", "cut"]
    assert judge.judge(socket.db, before, after, cycle_steps.acknowledged(ended.out), done=True) != []
