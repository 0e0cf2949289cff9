"""Records the calls that change a file system, as they happen: the raw material of the power cuts in replay.py.

`Recorder` is an `ops.Ops` that performs each call and notes it. Lock files are made behind its back: they say who holds a lock,
and neither they nor their names have to survive anything, so they are left out here and wherever this is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from shepherd.formats.check import Bytes
from shepherd.store.disk import fsio, names
from shepherd.store.disk import ops as disk_ops


@dataclass(frozen=True)
class Call:
    """One call that succeeded; paths are relative to the recorder's root."""

    op: str
    path: str
    target: str = ""  # of a rename or link
    offset: int = 0
    data: bytes = b""
    number: int = 0  # length of a truncate, mode of a chmod
    site: str = ""  # the function that asked for it, outside fsio

    def __str__(self) -> str:
        return f"{self.op} {self.path}{' -> ' + self.target if self.target else ''} ({self.site})"


class Recorder(disk_ops.Ops):
    """The real calls, and a log of those below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[Call] = []

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._note("create", path)
        return fd

    def write(self, path: Path, fd: int, data: Bytes, offset: int) -> int:
        done = super().write(path, fd, data, offset)
        self._note("write", path, offset=offset, data=bytes(data[:done]))
        return done

    def truncate(self, path: Path, fd: int, length: int) -> None:
        super().truncate(path, fd, length)
        self._note("truncate", path, number=length)

    def chmod(self, path: Path, fd: int, mode: int) -> None:
        super().chmod(path, fd, mode)
        self._note("chmod", path, number=mode)

    def sync(self, path: Path, fd: int) -> None:
        super().sync(path, fd)
        self._note("sync", path)

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self._note("mkdir", path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._note("rename", source, target)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._note("link", source, target)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._note("unlink", path)

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self._note("rmdir", path)

    def _note(self, op: str, path: Path, target: Path | None = None, offset: int = 0, data: bytes = b"", number: int = 0) -> None:
        if path.name == names.LOCK or not path.is_relative_to(self.root):
            return
        inside = "" if target is None else str(target.relative_to(self.root))
        self.log.append(Call(op, str(path.relative_to(self.root)), inside, offset, data, number, _site()))


class ForgetfulRecorder(Recorder):
    """Forgets one sync, the n-th of those below its root: it says that it succeeded, and does nothing."""

    def __init__(self, root: Path, forgotten: int) -> None:
        super().__init__(root)
        self._left = forgotten

    def sync(self, path: Path, fd: int) -> None:
        self._left -= path.is_relative_to(self.root)
        if self._left != 0:
            super().sync(path, fd)


def _site() -> str:
    """The function outside of fsio, and of this file, that made the call."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in (fsio.__file__, __file__):
        frame = frame.f_back
    return frame.f_code.co_qualname


Ops = TypeVar("Ops", bound=disk_ops.Ops)


@contextmanager
def recording(ops: Ops) -> Iterator[Ops]:
    """All calls go to the recorder, or to other such calls, while the block runs."""
    before = fsio.use(ops)
    try:
        yield ops
    finally:
        fsio.use(before)
