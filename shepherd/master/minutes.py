"""How fast a reap goes: a line a minute in db/log/minutes.jsonl, with what came since the line before.

The line that a reap logs for people, for whoever draws it. That it cannot be written harms nobody.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shepherd.console import phase
from shepherd.report.logbook import MINUTES

if TYPE_CHECKING:
    from shepherd.dispatch.statistics import Figures

EVERY_S: Final = 60.0
SUMS: Final = ("pages", "wire_bytes", "errors")


class Minutes:
    """Of one reap. `end` adds what came since the last whole minute."""

    def __init__(self, db: Path, state: str) -> None:
        self._path, self._state = db / "log" / MINUTES, state
        self._sums_written: dict[str, float] = dict.fromkeys((*SUMS, "seconds"), 0)

    def show(self, figures: Figures) -> None:
        if figures.seconds - self._sums_written["seconds"] >= EVERY_S:
            self._write(figures)

    def end(self, figures: Figures) -> None:
        if figures.seconds > self._sums_written["seconds"]:
            self._write(figures)

    def _write(self, figures: Figures) -> None:
        now = {name: getattr(figures, name) for name in self._sums_written}
        since = {name: round(value - self._sums_written[name], 3) for name, value in now.items()}
        self._sums_written = now
        line = {"time": round(time.time(), 3), "state": self._state, **since, "active": figures.active}
        with contextlib.suppress(OSError):
            phase.append_line(self._path, line)
