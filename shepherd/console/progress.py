"""How far a program is: a bar on a terminal, and db/log/now.json for whoever asks from elsewhere (`shepherd status`).

Only the holder of the lock writes now.json. It is replaced whole, at most once a second, never synced, and removed at the end;
what a killed program leaves there names a process that is gone. A program that is done within two seconds writes none.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from shepherd.console import common
from shepherd.errors import ShepherdError
from shepherd.report.logbook import NOW

if TYPE_CHECKING:
    from tqdm import tqdm

FIRST_S: Final = 2.0
EVERY_S: Final = 1.0


@dataclass(frozen=True)
class ProgressJob:
    """What a program works on, as others see it."""

    program: str
    state: str  # the directory that it works on
    total: int | None = None
    unit: str = ""


class Notice:
    """now.json, while there is something to say."""

    def __init__(self, db: Path, job: ProgressJob, first_s: float = FIRST_S) -> None:
        self._path = db / "log" / NOW
        self._job = job
        self._since = round(time.time(), 3)
        self._next_s = time.monotonic() + first_s
        self._written = False

    def write(self, items_done: int = 0, figures: Mapping[str, Any] | None = None) -> None:
        """Unless it was written a moment ago. That it cannot be written harms nobody."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        record = {
            "program": self._job.program,
            "pid": os.getpid(),
            "since": self._since,
            "phase": self._job.state,
            "done": items_done,
            "total": self._job.total,
            "unit": self._job.unit,
            "figures": dict(figures or {}),
        }
        from shepherd.store.disk import fsio

        with contextlib.suppress(ShepherdError, OSError):
            fsio.swap_file(self._path, json.dumps(record).encode() + b"\n")
            self._written = True

    def remove(self) -> None:
        from shepherd.store.disk import fsio

        if self._written:
            with contextlib.suppress(ShepherdError, OSError):
                fsio.unlink(self._path)


class Progress:
    """A bar, and a notice beside it."""

    def __init__(self, bar: tqdm[NoReturn] | common.NoBar, notice: Notice | None) -> None:
        self.bar = bar
        self._notice = notice
        self._items_done = 0
        self._figures: Mapping[str, Any] = {}

    def update(self, more: int) -> None:
        self.bar.update(more)
        self._items_done += more
        self._write_notice()

    def begin_at(self, items_done: int) -> None:
        """What an interrupted run has done is not counted in the speed."""
        self.bar.initial = self.bar.n = self.bar.last_print_n = items_done
        self.bar.refresh()
        self._items_done = items_done

    def show(self, figures: Mapping[str, Any], brief: str) -> None:
        """Further figures; on the bar there is room for few."""
        self._figures = figures
        self.bar.set_postfix_str(brief)
        self._write_notice()

    def _write_notice(self) -> None:
        if self._notice is not None:
            self._notice.write(self._items_done, self._figures)


@contextlib.contextmanager
def reporting(db: Path | None, job: ProgressJob, title: str = "", narrow: bool = False) -> Iterator[Progress]:
    """The progress of a program that holds the lock of `db`; only a bar where it does not."""
    notice = Notice(db, job) if db is not None else None
    with common.progress(job.total, title or job.program, job.unit, narrow) as bar:
        try:
            yield Progress(bar, notice)
        finally:
            if notice is not None:
                notice.remove()
