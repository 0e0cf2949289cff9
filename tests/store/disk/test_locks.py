"""Locks where something else stands: what is no lock of ours is never written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd.errors import Locked, UsageError
from shepherd.store.disk import locks

PRECIOUS = b"a thesis\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    return path


@pytest.mark.parametrize("wait", [False, True])
def test_lock_that_is_a_link_is_refused_unwritten(tmp_path: Path, precious: Path, wait: bool) -> None:
    path = tmp_path / "lock"
    path.symlink_to(precious)
    with pytest.raises(UsageError, match=r"lock: a link, .* move it away"):
        locks.lock(path, "test", wait)
    assert precious.read_bytes() == PRECIOUS and path.is_symlink()


def test_lock_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="a link"):
        locks.lock(path, "test")
    assert not (tmp_path / "nothing").exists()


def test_foreign_file_is_not_overwritten_by_a_lock(tmp_path: Path, precious: Path) -> None:
    path = tmp_path / "lock"
    os.link(precious, path)
    with pytest.raises(UsageError, match="not a lock"):
        locks.lock(path, "test")
    assert precious.read_bytes() == PRECIOUS


def test_pipe_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UsageError, match="a pipe, where the file of a lock belongs"):
        locks.lock(tmp_path / "lock", "test")


@pytest.mark.parametrize("left", [b"", bytes(locks.TEXT_BYTES), b"shep-merge, pid 7 on host".ljust(locks.TEXT_BYTES)])
def test_lock_that_others_have_left_can_be_taken(tmp_path: Path, left: bytes) -> None:
    """Empty, of zeros after a power cut, or with the text of its last taker."""
    path = tmp_path / "lock"
    path.write_bytes(left)
    held = locks.lock(path, "test")
    with pytest.raises(Locked, match="held by test, pid"):
        locks.lock(path, "another")
    held.release()
    locks.lock(path, "another").release()
