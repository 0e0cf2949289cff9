"""Opening what stands in the place of a file: nothing is waited for, nothing followed, and only files are read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shepherd.errors import IoFailed
from shepherd.store.disk import opening
from shepherd.store.disk.mapped import Mapped
from tests.support.odd_files import ODD_KINDS, fail_to_open, put


@pytest.mark.parametrize("read", [opening.open_regular, opening.open_stream, opening.read_file, Mapped])
@pytest.mark.parametrize("kind", ODD_KINDS)
def test_what_is_no_file_counts_as_missing(tmp_path: Path, kind: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / "column"
    put(path, kind)
    with pytest.raises(FileNotFoundError, match="where a file belongs") as caught:
        read(path)
    assert caught.value.errno == errno.ENOENT and caught.value.filename == str(path)
    assert not [fd for fd in os.listdir("/proc/self/fd") if _target(fd) == str(path)]


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_file_below_what_is_no_directory_counts_as_missing(tmp_path: Path, kind: str) -> None:
    if kind in ("a directory", "a link"):
        kind = "a pipe"
    put(tmp_path / "index", kind)
    with pytest.raises(FileNotFoundError, match="no directory"):
        opening.open_regular(tmp_path / "index" / "oid")


def test_file_that_we_may_not_read_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "column"
    path.write_bytes(b"a")

    fail_to_open(monkeypatch, path, errno.EACCES)
    with pytest.raises(IoFailed, match="Permission denied"):
        opening.open_regular(path)


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "column"
    path.write_bytes(b"abc\ndef\n")
    with opening.open_stream(path) as stream:
        assert list(stream) == [b"abc\n", b"def\n"]
    assert opening.read_file(path) == b"abc\ndef\n" and bytes(Mapped(path).touch(0, 3)) == b"abc"
