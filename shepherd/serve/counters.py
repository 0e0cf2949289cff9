"""Counters that only grow, from logs with a line for each reap or cycle: what has come since this server was started.

A reap that runs is counted by now.json, and when it has ended by its line in reaps.jsonl, less what was counted of it before. So
a look at any moment counts nothing twice, a reap that is killed and continued is counted as one, and a log may be rotated.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shepherd.errors import IoFailed
from shepherd.report import logbook
from shepherd.report.reports import number
from shepherd.store.disk import opening

LIVE: Final = ("pages", "wire_bytes")
MOST_BYTES: Final = 1 << 24  # read at a time


class DatabaseCounters:
    def __init__(self, log: Path) -> None:
        self._reaps, self._cycles = Follower(log / logbook.REAPS), Follower(log / logbook.CYCLES)
        self._turn = threading.Lock()
        self._run: tuple[Any, ...] = ()  # process and start of the reap that was looked at last,
        self._run_figures: dict[str, float] = {}  # its figures then,
        self._state, self._live_counts = "", Counter[str]()  # and what is counted of the reap of this directory, over all runs
        self._first = True
        self.reaped: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.cycles: Counter[str] = Counter()

    def look(self, now: dict[str, Any] | None) -> None:
        """Count what has come; `now` is what db/log/now.json says."""
        with self._turn:
            self._count_live(now)
            for line in self._reaps.more():
                self._count_reap(line)
            self.cycles.update(str(int(number(line.get("status")))) for line in self._cycles.more() if logbook.is_cycle(line))
            self._first = False

    def _count_live(self, now: dict[str, Any] | None) -> None:
        figures = (now or {}).get("figures")
        if now is None or not isinstance(figures, dict) or "wire_bytes" not in figures:
            return
        run, live_figures = (now.get("pid"), now.get("since")), {name: number(figures.get(name)) for name in LIVE}
        if now.get("phase") != self._state:
            self._state, self._live_counts = str(now.get("phase")), Counter()
        before = self._run_figures if run == self._run else dict.fromkeys(LIVE, 0)
        more = {name: max(int(live_figures[name] - before[name]), 0) for name in LIVE}
        self._run, self._run_figures = run, live_figures
        self._live_counts.update(more)
        if not self._first:  # what came before the server did is not counted, here as elsewhere
            self.reaped.update(more)

    def _count_reap(self, line: dict[str, Any]) -> None:
        live_counts = self._live_counts if line.get("state") == self._state else Counter[str]()
        self.reaped.update({name: max(int(number(line.get(name))) - live_counts[name], 0) for name in LIVE})
        for name, into in (("results", self.results), ("errors", self.errors)):
            by_name = line.get(name)
            into.update({key: int(number(count)) for key, count in by_name.items()} if isinstance(by_name, dict) else {})


class Follower:
    """The objects that are appended to a log from now on; after a rotation those of the new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._offset = self._place()

    def _place(self) -> tuple[int, int]:
        try:
            file_stat = os.stat(self._path)
        except OSError:
            return 0, 0
        return file_stat.st_ino, file_stat.st_size

    def more(self) -> Iterator[dict[str, Any]]:
        inode, size = self._place()
        if inode != self._file or size < self._offset:
            self._file, self._offset = inode, 0
        if size == self._offset:
            return
        try:
            with opening.open_stream(self._path) as file:
                file.seek(self._offset)
                data = file.read(MOST_BYTES)
        except (OSError, IoFailed):
            return
        whole = data.rfind(b"\n") + 1  # a line that is being written comes next time
        self._offset += whole
        yield from logbook.objects(data[:whole].split(b"\n"))
