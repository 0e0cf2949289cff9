"""Locks where somebody has put something else: what is no lock of ours is never written."""

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
def test_lock_that_is_a_link_has_its_text_written_where_the_link_leads(tmp_path: Path, precious: Path, wait: bool) -> None:
    path = tmp_path / "lock"
    path.symlink_to(precious)
    with pytest.raises(UsageError, match=r"lock: a link, .* remove it"):
        locks.lock(path, "test", wait)
    assert precious.read_bytes() == PRECIOUS and path.is_symlink()


def test_lock_is_made_where_a_link_leads_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="a link"):
        locks.lock(path, "test")
    assert not (tmp_path / "nothing").exists()


def test_file_of_somebody_else_is_overwritten_by_the_name_of_a_lock(tmp_path: Path, precious: Path) -> None:
    path = tmp_path / "lock"
    os.link(precious, path)
    with pytest.raises(UsageError, match="not a lock"):
        locks.lock(path, "test")
    assert precious.read_bytes() == PRECIOUS


def test_pipe_in_the_place_of_a_lock_is_taken_for_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(UsageError, match="not a lock"):
        locks.lock(tmp_path / "lock", "test")


@pytest.mark.parametrize("left", [b"", bytes(locks.TEXT_BYTES), b"shep-merge, pid 7 on host".ljust(locks.TEXT_BYTES)])
def test_lock_that_others_have_left_is_refused(tmp_path: Path, left: bytes) -> None:
    """Empty, of zeros after a power cut, or with the text of its last taker."""
    path = tmp_path / "lock"
    path.write_bytes(left)
    held = locks.lock(path, "test")
    with pytest.raises(Locked, match="held by test, pid"):
        locks.lock(path, "another")
    held.release()
    locks.lock(path, "another").release()
