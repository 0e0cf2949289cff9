"""One bit flipped in any byte of a small database: shep-check reports it.

All bytes with `bin/test --crash`, a few of every file by default. The bit is chosen by dice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.formats import frame
from shepherd.store.check import check
from shepherd.store.check.check import Fault
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash import cycle_steps, disks
from tests.crash.tally import Tally
from tests.support import sampling

MOST_BYTES = 40_000
SAMPLE = 2  # bytes of a file
# Files without a checksum, because nothing is lost with them.
UNCHECKED = {
    r"(.*/)?lock": "the line says who holds the lock; the lock itself is the kernel's",
    r"lease/.*\.lease": "a claim with an end, not data: changed, it keeps another state or for another time, or it is noted",
    r"inbox/.*\.req": "text that anybody may write, with any editor; a line that is no request any more is reported by merge",
}
NOT_ENDED = "the reap has not ended"


@pytest.fixture(scope="module")
def db() -> Iterator[Path]:
    """Closed states, a .reap with a harvest that has ended, items of the inbox and a lease."""
    with disks.workplace() as home:
        path = home / "db"
        cycle_steps.grow(path, "cork")
        cycle_steps.STEPS["drop more"](path, lambda _line: None)
        cycle_steps.dropping(5, cycle_steps.SEEDS)(path, lambda _line: None)
        cycle_steps.STEPS["lease"](path, lambda _line: None)
        assert sum(file.stat().st_size for file in files(path)) < MOST_BYTES
        assert list(check.walk(Database(path))) == []
        yield path


def files(db: Path) -> list[Path]:
    """Every file, once: states share most of theirs."""
    found = {(file.stat().st_dev, file.stat().st_ino): file for file in sorted(db.rglob("*")) if file.is_file()}
    return [file for file in found.values() if file.stat().st_size]


def is_checked(db: Path, file: Path) -> bool:
    return not any(re.fullmatch(pattern, str(file.relative_to(db))) for pattern in UNCHECKED)


def part_of(db: Path, file: Path) -> str:
    """The directory of db/state it is in, or that it is of a harvest."""
    return names.HARVESTS if names.HARVESTS in file.parts else file.relative_to(db).parts[1]


def flip(file: Path, offset: int, bit: int) -> None:
    with file.open("r+b", buffering=0) as handle:
        [byte] = handle.read()[offset : offset + 1]
        handle.seek(offset)
        handle.write(bytes([byte ^ 1 << bit]))


def last_frame(log: Path) -> int:
    """Where the last record of a checkpoint log begins. Damaged, it looks like the torn tail that a crash leaves."""
    return [one.offset for one in frame.frames(log.read_bytes())][-1]


def complaints(file: Path, offset: int, torn_from: int, found: list[Fault]) -> list[str]:
    if any(not fault.note for fault in found):
        return []
    if file.name == names.CHECKPOINTS and offset >= torn_from and [NOT_ENDED in fault.what for fault in found] == [True]:
        return []
    return [f"shep-check found {[str(fault) for fault in found] or 'no fault'}"]


@pytest.mark.parametrize("part", ["000001", "000002", "000003.reap", "harvest"])
def test_flipped_bit_is_reported_whichever_byte_it_is_in(db: Path, part: str, crash_sweep: bool, tally: Tally) -> None:
    dice = sampling.dice(f"bits of {part}")
    inside = [file for file in files(db) if is_checked(db, file) and part_of(db, file) == part]
    for file in inside:
        size = file.stat().st_size
        torn_from = last_frame(file) if file.name == names.CHECKPOINTS else size
        for offset in range(size) if crash_sweep else dice.sample(range(size), min(SAMPLE, size)):
            bit = dice.randrange(8)
            flip(file, offset, bit)
            found = list(check.walk(Database(db)))
            flip(file, offset, bit)
            tally.point(f"bit {bit} of byte {offset} of {file.relative_to(db)}", complaints(file, offset, torn_from, found))
    assert list(check.walk(Database(db))) == []
    tally.close()


def test_every_file_is_swept_or_known_to_have_no_checksum(db: Path) -> None:
    swept = {file.relative_to(db).parts[0] for file in files(db) if is_checked(db, file)}
    assert swept == {names.STATES, names.INBOX}
    unchecked = {str(file.relative_to(db)) for file in files(db) if not is_checked(db, file)}
    for pattern in UNCHECKED:
        assert any(re.fullmatch(pattern, name) for name in unchecked), f"no file is like {pattern}"
