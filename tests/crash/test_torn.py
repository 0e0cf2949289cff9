"""Torn tails of a harvest: every file cut at every byte, with zeros or noise behind it. What is left is exactly a checkpoint.

What a crash can leave is rolled back in silence. What it cannot, because it was durable once, is RecoveryNeeded for everybody but
shep-recover, which goes back to the newest checkpoint that holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.errors import RecoveryNeeded
from shepherd.formats import frame
from shepherd.formats.checkpoint import unpack_checkpoint
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from tests.crash import cycle_steps, disks
from tests.crash.tally import Tally
from tests.support import sampling

SAMPLE_STEP = 11
TAILS = (1, 23, 24, 100, 512, 4096, 5000)


@dataclass(frozen=True)
class Torn:
    """A harvest with checkpoints and bytes behind the last one, as it was before anybody tore at it."""

    db: Path
    files: dict[str, bytes]

    @property
    def path(self) -> Path:
        return cycle_steps.harvest_path(Database(self.db).furthest())

    def checkpoints(self) -> list[dict[str, bytes]]:
        """What the files are when rolled back to each checkpoint; the first is the one before any."""
        found = [dict.fromkeys((names.CHECKPOINTS, names.JOURNAL, names.CONTRIB), b"")]
        for one in frame.frames(self.files[names.CHECKPOINTS]):
            point = unpack_checkpoint(one.payload)
            lengths = {names.CHECKPOINTS: one.end, names.JOURNAL: point.journal.length, names.CONTRIB: point.contrib.length}
            lengths |= {names.local_segment(i + 1): mark.length for i, mark in enumerate(point.segments)}
            found.append({name: self.files[name][:length] for name, length in lengths.items()})
        return found

    def write(self, files: dict[str, bytes]) -> None:
        for entry in self.path.iterdir():
            entry.unlink()
        for name, data in files.items():
            (self.path / name).write_bytes(data)


def read(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in sorted(path.iterdir()) if entry.name != names.LOCK}


@pytest.fixture(scope="module")
def torn() -> Iterator[Torn]:
    with disks.workplace() as home:
        db = home / "db"
        cycle_steps.grow(db, "harvest")
        cycle_steps.harvesting(3, torn=True)(db, lambda _line: None)
        found = read(cycle_steps.harvest_path(Database(db).furthest()))
        assert set(found) > {names.JOURNAL, names.CONTRIB, names.CHECKPOINTS, names.local_segment(2)}
        yield Torn(db, found)


def rolled_back(torn: Torn, expected: dict[str, bytes], damage: bool) -> list[str]:
    """Complaints about what a rollback makes of the files that stand there."""
    path = torn.path
    try:
        harvest.rollback(path)
        refused = False
    except RecoveryNeeded:
        refused = True
    if refused:
        cycle_steps.recovered(torn.db)
    complaints = [] if refused == damage else ["damage was taken for a crash" if damage else "a crash was taken for damage"]
    if read(path) != expected:
        complaints.append("the files are not those of the checkpoint")
    harvest.verify(path)
    return complaints


@pytest.mark.parametrize("name", [names.JOURNAL, names.CONTRIB, names.CHECKPOINTS, *map(names.local_segment, (1, 2))])
def test_file_cut_at_any_byte_is_rolled_back_to_a_checkpoint(torn: Torn, name: str, tally: Tally) -> None:
    points = torn.checkpoints()
    whole, step = torn.files[name], sampling.step(SAMPLE_STEP)
    for cut in range(sampling.first(step, name), len(whole), step):
        torn.write(torn.files | {name: whole[:cut]})
        expected = [point for point in points if len(point.get(name, b"")) <= cut][-1]
        damage = name != names.CHECKPOINTS and cut < len(points[-1].get(name, b""))
        tally.point(f"{name} cut at {cut}", rolled_back(torn, expected, damage))
    tally.close()


@pytest.mark.parametrize("name", [names.JOURNAL, names.CONTRIB, names.CHECKPOINTS, *map(names.local_segment, (1, 2, 9))])
def test_zeros_and_noise_behind_a_file_are_cut_off(torn: Torn, name: str, tally: Tally) -> None:
    dice = sampling.dice(name)
    for count in TAILS:
        for what, tail in (("zeros", bytes(count)), ("noise", dice.randbytes(count))):
            torn.write(torn.files | {name: torn.files.get(name, b"") + tail})
            tally.point(f"{count} {what} behind {name}", rolled_back(torn, torn.checkpoints()[-1], damage=False))
    tally.close()


def test_frame_damaged_far_below_a_checkpoint_is_rolled_back_to_the_one_before_it(tally: Tally) -> None:
    """A checkpoint vouches for the tail of a file alone: the rest must be read."""
    with disks.workplace() as home:
        cycle_steps.grow(home / "db", "harvest")
        cycle_steps.harvesting(30)(home / "db", lambda _line: None)
        path = cycle_steps.harvest_path(Database(home / "db").furthest())
        torn = Torn(home / "db", read(path))
        whole = torn.files[names.JOURNAL]
        for at in (30, 500, len(whole) - 4200):
            damaged = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
            torn.write(torn.files | {names.JOURNAL: damaged})
            assert harvest.inspect(path).damage == ""  # no reap would notice
            assert any(not fault.note for fault in check.walk(Database(torn.db)))
            steps = cycle_steps.recovered(torn.db)
            expected = [point for point in torn.checkpoints() if len(point[names.JOURNAL]) <= at][-1]
            good = read(path) == expected and steps[0].loss and cycle_steps.recovered(torn.db) == []
            tally.point(f"bit at {at}", [] if good else [f"not the checkpoint before it: {steps}"])
            harvest.verify(path)
    tally.close()


@pytest.mark.parametrize("missing", [(), (names.CONTRIB,), (names.JOURNAL, names.CONTRIB), (names.CHECKPOINTS, names.JOURNAL)])
def test_harvest_killed_while_it_was_made_is_no_damage(missing: tuple[str, ...]) -> None:
    with disks.workplace() as home:
        cycle_steps.grow(home / "db", "harvest")
        cycle_steps.harvesting(0)(home / "db", lambda _line: None)
        for name in missing:
            (cycle_steps.harvest_path(Database(home / "db").furthest()) / name).unlink()
        assert [fault for fault in check.walk(Database(home / "db")) if not fault.note] == []
        cycle_steps.recovered(home / "db")
        cycle_steps.harvesting(1)(home / "db", lambda _line: None)
        assert len(cycle_steps.documents(home / "db")) == cycle_steps.BATCH
