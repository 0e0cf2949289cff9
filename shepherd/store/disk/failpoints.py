"""Failpoints: SHEPHERD_FAIL="op:name:ordinal=fault" makes the ordinal-th call of `op` on a path that ends in `name` fail.

op: one of the methods of ops.Ops; fault: kill eio enospc short pause. For tests of what is left when a call fails.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import UsageError
from shepherd.formats.check import Bytes
from shepherd.store.disk.ops import Ops

OPS = tuple(name for name in vars(Ops) if not name.startswith("_"))
FAULTS = ("kill", "eio", "enospc", "short", "pause")


@dataclass
class Failpoint:
    op: str
    name: str
    ordinal: int
    fault: str
    calls: int = 0

    def is_due(self, op: str, path: Path) -> bool:
        if self.op != op or not str(path).endswith(self.name):
            return False
        self.calls += 1
        return self.calls == self.ordinal


def parse_failpoint(spec: str) -> Failpoint:
    where, _, fault = spec.partition("=")
    op, _, rest = where.partition(":")
    name, _, ordinal = rest.rpartition(":") if ":" in rest else (rest, "", "1")
    if op not in OPS or fault not in FAULTS or not ordinal.isdecimal():
        choice = f"op one of {' '.join(OPS)}, fault one of {' '.join(FAULTS)}"
        raise UsageError(f"SHEPHERD_FAIL={spec!r}: expected op:name:ordinal=fault, with {choice}")
    return Failpoint(op, name, int(ordinal), fault)


class FailingOps(Ops):
    """The real calls, but for one."""

    def __init__(self, point: Failpoint) -> None:
        self._point = point

    def _meet(self, op: str, path: Path) -> bool:
        """Act out the failpoint if this is its call. True asks for a short write."""
        if not self._point.is_due(op, path):
            return False
        if self._point.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._point.fault == "pause":
            signal.pause()
        if self._point.fault in ("eio", "enospc"):
            code = errno.EIO if self._point.fault == "eio" else errno.ENOSPC
            raise OSError(code, os.strerror(code), str(path))
        return self._point.fault == "short"

    def create(self, path: Path) -> int:
        self._meet("create", path)
        return super().create(path)

    def write(self, path: Path, fd: int, data: Bytes, offset: int) -> int:
        short = self._meet("write", path)
        return super().write(path, fd, data[: max(1, len(data) // 2)] if short else data, offset)

    def truncate(self, path: Path, fd: int, length: int) -> None:
        self._meet("truncate", path)
        super().truncate(path, fd, length)

    def chmod(self, path: Path, fd: int, mode: int) -> None:
        self._meet("chmod", path)
        super().chmod(path, fd, mode)

    def sync(self, path: Path, fd: int) -> None:
        self._meet("sync", path)
        super().sync(path, fd)

    def mkdir(self, path: Path) -> None:
        self._meet("mkdir", path)
        super().mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        self._meet("rename", source)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._meet("link", target)
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._meet("unlink", path)
        super().unlink(path)

    def rmdir(self, path: Path) -> None:
        self._meet("rmdir", path)
        super().rmdir(path)
