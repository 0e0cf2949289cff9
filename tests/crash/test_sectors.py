"""Sectors that cannot be read: a sentence that names the file and exit status 13, never a killed process.

The disk is a loop device whose image is cut off: reading what lay beyond gives real errors. Whoever meets one in a mapping dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import IoFailed
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state import logs
from shepherd.store.state.columns import Column, ColumnWriter
from tests.crash import cycle_steps, disks
from tests.crash.nursery import nursery
from tests.crash.tally import Tally
from tests.support import sampling

FIEMAP, EXTENT_BYTES = 0xC020660B, 56
BLOCK_BYTES = 4096
SAMPLE = 6


def place(path: Path, block: int = 0) -> int:
    """Where a block of a file or directory stands on its disk, in bytes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        asked = struct.pack("=QQIIII", block * BLOCK_BYTES, BLOCK_BYTES, 0, 0, 1, 0) + bytes(EXTENT_BYTES)
        logical, physical = struct.unpack_from("=QQ", fcntl.ioctl(fd, FIEMAP, asked), len(asked) - EXTENT_BYTES)
    finally:
        os.close(fd)
    return int(physical - logical) + block * BLOCK_BYTES


def leads(path: Path) -> bool:
    """Whether it leads to other files: without it they cannot be found."""
    return path.is_dir() or path.name == names.CONTROL


def copy_with_what_leads_first(source: Path, target: Path) -> None:
    """So that what stands last on the disk are files that lead nowhere."""
    target.mkdir()
    for first in (True, False):
        for path in sorted(source.rglob("*")):
            if leads(path) is first:
                copy = target / path.relative_to(source)
                copy.mkdir() if path.is_dir() else shutil.copy2(path, copy)
        disks.run("sync", "--file-system", str(target))


@contextlib.contextmanager
def cut_off(disk: disks.Disk, at: int) -> Iterator[None]:
    """The disk, to be read only, without what stands behind this place."""
    disk.umount()
    with disk.image.open("r+b") as file:
        file.seek(at)
        rest = file.read()
        disk.mount("ro")
        file.truncate(at)
        try:
            yield
        finally:
            disk.umount()
            file.seek(at)
            file.write(rest)
            file.flush()
            disk.mount()


def test_column_with_a_failing_sector_is_an_error_where_it_fails() -> None:
    with disks.loop("ext4") as disk:
        path = disk.path / "column"
        writer = ColumnWriter(path, "<u8")
        writer.append(np.arange(1 << 20, dtype="<u8"))
        entry = writer.finish()
        disks.run("sync", "--file-system", str(disk.path))
        with cut_off(disk, place(path, 3 << 8)):  # in the fourth MiB
            column = Column(path, "<u8", entry)
            assert column[0:1000].sum() == 499_500
            with pytest.raises(IoFailed, match="column: it cannot be read"):
                column[0 : len(column)]
            with pytest.raises(IoFailed, match="column: it cannot be read"):
                logs.entry_of(path)
            del column  # or the disk stays busy


def test_check_continues_past_the_first_sector_that_fails(tmp_path: Path) -> None:
    """Every file behind the place where the disk ends is named, with the offset; and none is reported as damage to mend."""
    with disks.loop("ext4") as disk, nursery(tmp_path) as children:
        db, states = disk.path / "db", disk.path / "db" / names.STATES
        cycle_steps.grow(tmp_path / "db")
        copy_with_what_leads_first(tmp_path / "db", db)
        places = {path: place(path) for path in db.rglob("*") if path.is_dir() or path.stat().st_size}
        last = max(at for path, at in places.items() if leads(path))
        at = min(at for path, at in places.items() if at > last and path.is_relative_to(states))
        behind = {str(path) for path in places if places[path] >= at and path.is_relative_to(states)}
        with cut_off(disk, at):
            ended = children.run("shep-check", "--json", SHEPHERD_DB=str(db), SHEPHERD_CF=str(cycle_steps.cf_of(db)))
            with pytest.raises(IoFailed, match="cannot be read"):
                check.faults_of([states / Path(min(behind)).relative_to(states).parts[0]])
        told = [json.loads(line) for line in ended.out.splitlines()]
        assert ended.status == 13
        assert len(behind) > 3
        assert {fault["path"] for fault in told if fault["offset"] == 0 and fault["unread"]} >= behind
        assert not [fault for fault in told if not fault["unread"] and not fault["note"]]


@pytest.mark.parametrize("program", [("shep-check",), ("shep", "list")])
def test_reader_that_meets_a_failing_sector_says_so(tmp_path: Path, program: tuple[str, ...], tally: Tally) -> None:
    met = 0
    with disks.loop("ext4") as disk, nursery(tmp_path) as children:
        db = disk.path / "db"
        cycle_steps.grow(db)
        disks.run("sync", "--file-system", str(disk.path))
        files = sorted((place(file), file) for file in db.rglob("*") if file.is_file() and file.stat().st_size)
        for at, file in sampling.sample(files, SAMPLE, " ".join(program)):
            with cut_off(disk, at):
                ended = children.run(*program, SHEPHERD_DB=str(db), SHEPHERD_CF=str(cycle_steps.cf_of(db)))
            good = ended.status == 0 or (ended.status == 13 and str(db) in ended.err.splitlines()[-1])
            tally.point(file.relative_to(db), [] if good else [f"status {ended.status}: {ended.err}"])
            met += ended.status == 13
    assert met, "no sector that failed was met: nothing was tested"
    tally.close()
