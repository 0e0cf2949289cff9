"""Directories of scratch files: made when they are needed, and never left for long."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from shepherd.store.disk import scratch_directory
from shepherd.store.disk.names import is_leftover, parse_half_item, parse_state, parse_tmp, scratch
from shepherd.store.disk.scratch_directory import ScratchDirectory

DEAD = 1 << 22  # no process can have this number


def test_directory_that_nobody_asks_for_is_not_made(tmp_path: Path) -> None:
    directory = ScratchDirectory(tmp_path / "scratch")
    directory.remove()
    assert os.listdir(tmp_path) == []
    (directory.path / "file").write_text("x")
    assert directory.path == tmp_path / "scratch"
    directory.remove()
    assert os.listdir(tmp_path) == []


def test_directory_of_a_state_is_a_leftover_and_no_state() -> None:
    assert scratch(126) == "000126.scratch"
    assert is_leftover("000126.scratch")
    assert parse_state("000126.scratch") is None and parse_tmp("000126.scratch") is None
    assert not is_leftover("126.scratch") and not is_leftover("000126.scratch.old")


def test_program_without_the_lock_has_a_directory_for_itself(tmp_path: Path) -> None:
    first, second = (scratch_directory.without_lock(tmp_path, 1_790_000_000_000) for _ in range(2))
    assert first.path != second.path
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700
    assert parse_half_item(first.path.name) == (socket.gethostname(), os.getpid())


def test_leftovers_in_the_temporary_directory_go_when_somebody_needs_room_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host, live = socket.gethostname(), f".1790000000000-{socket.gethostname()}-{os.getppid()}-1.scratch.tmp"
    ours_before = f".1700000000000-{host}-{os.getpid()}-1.scratch.tmp"  # of another container's process of our number
    for name in (
        ours_before,
        f".1790000000000-{host}-{DEAD}-1.scratch.tmp",
        f".1790000000000-elsewhere-{DEAD}-1.scratch.tmp",
        live,
        "other",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000001").write_text("x")
    scratch_directory.without_lock(None, 1_790_000_000_000)
    assert sorted(os.listdir(tmp_path)) == sorted([f".1790000000000-elsewhere-{DEAD}-1.scratch.tmp", live, "other"])


def test_own_directories_stay_while_another_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = scratch_directory.without_lock(None, 1_790_000_000_000)
    (first.path / "file").write_text("x")
    scratch_directory.without_lock(None, 1_790_000_000_000)
    assert (first.path / "file").exists()
    first.remove()


def test_temporary_directory_that_nobody_may_list_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "listdir", refuse)  # root may list anything
    directory = scratch_directory.without_lock(None, 1_790_000_000_000)
    assert directory.path.is_dir()
    directory.remove()
