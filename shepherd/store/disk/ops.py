"""The system calls that change a file system, one method each; only fsio.py makes them, by its rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shepherd.formats.check import Bytes


class Ops:
    """A path comes along where the call itself needs none."""

    def create(self, path: Path) -> int:
        """A new file; its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    def write(self, path: Path, fd: int, data: Bytes, offset: int) -> int:
        """How many of the bytes were written."""
        return os.pwrite(fd, data, offset)

    def truncate(self, path: Path, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def chmod(self, path: Path, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def sync(self, path: Path, fd: int) -> None:
        """Of a file or a directory."""
        os.fsync(fd)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)
