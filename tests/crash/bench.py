"""A place where a program is run on the same database again and again, under strace or not."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash import disks, strace
from tests.crash.nursery import Ended, Nursery, nursery
from tests.crash.strace import Call, Outcome


@dataclass(frozen=True)
class Bench:
    """`prepare` makes the database, `reset` puts a copy of it in place, at the same path each time."""

    home: Path
    children: Nursery

    @property
    def db(self) -> Path:
        return self.home / "db"

    @property
    def _pristine(self) -> Path:
        return self.home / "pristine" / "db"

    def prepare(self, grow: Callable[[Path], object]) -> None:
        shutil.rmtree(self._pristine.parent, ignore_errors=True)
        shutil.rmtree(self.db, ignore_errors=True)
        self._pristine.parent.mkdir()
        grow(self._pristine)

    def reset(self) -> None:
        """Hardlinks stay hardlinks: a copy that is alike makes the same calls."""
        shutil.rmtree(self.db, ignore_errors=True)
        subprocess.run(["cp", "-a", self._pristine, self.db], check=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"SHEPHERD_DB": str(self.db), "SHEPHERD_CF": str(self._pristine.parent / "cf")}

    def run(self, *argv: str) -> Ended:
        return self.children.run(*argv, **self.environment)

    def trace(self, *argv: str) -> list[Call]:
        """The calls of a run that nothing disturbs."""
        ended, calls = strace.trace(self.children.start(*argv, **self.environment), self.home / "log")
        assert ended.status == 0, ended
        return calls

    def strike(self, point: Call, fault: str, *argv: str) -> Outcome:
        return strace.inject(self.children.start(*argv, **self.environment), self.home / "log", point, fault)


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    strace.need()
    with disks.workplace() as home, nursery(home) as children:
        yield Bench(home, children)
