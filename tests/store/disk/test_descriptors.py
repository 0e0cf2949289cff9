"""Too few file descriptors: an exit status of its own that says what to set, and no word of the disk."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shepherd.errors import IoFailed, TooFewDescriptors
from shepherd.store.disk import fsio, locks, opening
from shepherd.store.disk.mapped import Mapped
from shepherd.store.state import database
from tests.support.odd_files import fail_to_open
from tests.support.sound import KEY, NOW
from tests.support.waiting import PATIENCE_S

STANDARD = 3  # stdin, stdout, stderr
ROOT = Path(__file__).resolve().parents[3]
CHECK = """
import resource, sys
from shepherd.cli import check
from shepherd.console import progress
from shepherd.store.check import check as _
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
check.main()
"""


@contextmanager
def no_descriptor_more() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def write(path: Path) -> None:
    fsio.write_file(path.with_name("new"), b"a")


def take(path: Path) -> None:
    locks.lock(path.with_name("lock"), "test")


def test_disk_that_takes_no_new_file_is_no_odd_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_open(monkeypatch, tmp_path / "lock", errno.EROFS)
    with pytest.raises(IoFailed, match="Read-only file system"):
        locks.lock(tmp_path / "lock", "test")


@pytest.mark.parametrize("act", [opening.open_regular, opening.read_file, Mapped, fsio.sync_file, fsio.seal, write, take])
def test_full_table_of_a_process_is_no_failing_disk(tmp_path: Path, act: Callable[[Path], object]) -> None:
    path = tmp_path / "column"
    path.write_bytes(b"a")
    with no_descriptor_more(), pytest.raises(TooFewDescriptors, match=r"may have 3 files open.*ulimit -n"):
        act(path)
    act(path)


def test_full_table_of_the_system_is_no_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "column"
    path.write_bytes(b"a")
    fail_to_open(monkeypatch, path, errno.ENFILE)
    with pytest.raises(TooFewDescriptors, match=r"fs\.file-max"):
        opening.open_regular(path)


def test_program_ends_with_the_status_of_its_own(tmp_path: Path) -> None:
    database.create(tmp_path / "db", KEY, NOW, 0)
    command = [sys.executable, "-c", CHECK, "--db", str(tmp_path / "db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == TooFewDescriptors.exit_status == 14, done.stderr
    assert "ulimit -n" in done.stderr and "disk" not in done.stderr
