"""A program that is killed before its n-th call to the file system, in process: quicker than a real one, and as final."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shepherd.store.disk import failpoints, fsio


class Dead(BaseException):
    """The program was killed here."""


class DyingOps(failpoints.FailingOps):
    """The real calls up to the n-th; that one and all after it are never made."""

    def __init__(self, last: int) -> None:
        super().__init__(failpoints.Failpoint("", "", 0, ""))
        self._last = last
        self._calls = 0

    def _meet(self, op: str, path: Path) -> bool:
        self._calls += 1
        if self._calls > self._last:
            raise Dead(f"{op} {path}")
        return False


def killed_after(calls: int, work: Callable[[], object]) -> bool:
    """Do the work, but die after so many calls; whether it came to that."""
    before = fsio.use(DyingOps(calls))
    try:
        work()
    except Dead:
        return True
    finally:
        fsio.use(before)
    return False
