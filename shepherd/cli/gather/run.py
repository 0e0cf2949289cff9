"""Cycles until there is nothing more to do, or a limit is reached: the loop of `gather`, and what comes before and after it.

Every cycle is a `shepherd cycle` of its own that gets what is left of the limits as options, so neither a plan nor a reap goes
beyond them; and whatever ends us, the next run continues from the database alone. The lock is held from before the
first write to the end, and passed on to every cycle: so no second run can come between.
"""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shepherd.config import load
from shepherd.console import common, phase
from shepherd.errors import NothingToDo
from shepherd.master.children import Signals
from shepherd.master.cycle_table import CORK, look, next_step

if TYPE_CHECKING:
    from shepherd.store.disk.locks import FileLock

MOST_ROUNDS: Final = 1_000
NOTHING: Final = NothingToDo.exit_status
TERMINATED: Final = 128 + signal.SIGTERM  # a child that got the signal before it could handle it


@dataclass(frozen=True)
class Ending:
    """Why no further cycle was begun."""

    why: str
    status: int = 0


COMPLETE: Final = Ending("nothing more is due")
PAGES: Final = Ending("the page limit is reached")
MINUTES: Final = Ending("the time limit is reached")
ROUNDS: Final = Ending(f"{MOST_ROUNDS} cycles have been run")
STOPPED: Final = Ending("stopped as asked")


class Gatherer:
    """One run of gather on one database, whose lock it holds."""

    def __init__(self, db: Path, lock: FileLock, pages: int, seconds: float, signals: Signals) -> None:
        self.db = db
        self._lock = lock
        self._pages = pages
        self._seconds = seconds
        self._signals = signals
        self._began_s = time.monotonic()
        self._settled = 0  # pages that an answer was got for, or that were given up: what the page limit counts
        self._requests_before = self._requests()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def requests(self) -> int:
        """What servers were asked in this run, robots files included."""
        return self._requests() - self._requests_before

    def until_done(self, cf: Path) -> Ending:
        """Repeat cycles with this configuration until nothing is due or a limit is reached."""
        start_s, before = int(time.time()), self._settled
        for _ in range(MOST_ROUNDS):
            ending = self.cycle(cf)
            self._settled = before + self._checked_since(start_s)
            if ending is not None:
                return ending
        return ROUNDS

    def refresh(self, cf: Path) -> Ending | None:
        """One cycle that counts every page it checks, also those that were gathered a moment ago."""
        start_s = int(time.time())
        ending = self.cycle(cf)
        self._settled += self._checked_since(start_s)
        return ending

    def cycle(self, cf: Path) -> Ending | None:
        """One cycle; why it must be the last, if so."""
        pages, seconds = self._pages - self._settled, int(self._seconds - self.elapsed_s)
        if self._signals.stopping():
            return STOPPED
        if pages <= 0 or seconds <= 0:
            return PAGES if pages <= 0 else MINUTES
        limits = ["--pages", str(pages), "--seconds", str(seconds)]
        arguments = ["cycle", "--db", str(self.db), "--cf", str(cf), *limits, *_verbosity()]
        # The second signal, too, is for the cycle: it kills what it has started, then itself ends.
        status = self._run("shepherd", arguments, on_soft=signal.SIGTERM, on_hard=signal.SIGTERM, dies_with_us=True)
        if self._signals.killing():
            return Ending("killed as asked", self._signals.exit_status)
        if self._signals.stopping() and status == TERMINATED:
            return STOPPED  # it had not begun yet
        if status not in (0, NOTHING):
            return Ending(f"`shepherd cycle` ended with exit status {status}", status)
        if self._signals.stopping():
            self._cork(cf)
            return STOPPED
        return COMPLETE if status == NOTHING else None

    def _cork(self, cf: Path) -> None:
        """A reap that was cut short has ended well: what it gathered belongs into the summary."""
        from shepherd.store.state.database import Database

        if next_step(look(Database(self.db), load(cf)), []) == CORK:
            self._run(CORK, ["--db", str(self.db), "--cf", str(cf), "--quiet"])

    def _run(self, program: str, arguments: list[str], **how: Any) -> int:
        lock = self._lock.fd
        return self._signals.run(program, arguments, environment={phase.LOCK_FD: str(lock)}, descriptors=(lock,), **how)

    def _requests(self) -> int:
        from shepherd.cli.gather import summary as gather_summary
        from shepherd.store.state.database import Database

        with Database(self.db).reading("gather", time.time_ns() // 1_000_000) as state:
            return gather_summary.requests(state)

    def _checked_since(self, start_s: int) -> int:
        from shepherd.cli.gather import summary as gather_summary
        from shepherd.store.state.database import Database

        with Database(self.db).reading("gather", time.time_ns() // 1_000_000) as state:
            return gather_summary.checked_since(state, start_s)


def claim(db: Path) -> FileLock | None:
    """The lock of a database, before anything is written there; None if there is no database yet."""
    from shepherd.store.disk import locks, names

    return locks.lock(db / names.LOCK, "gather") if (db / names.STATES).is_dir() else None


def create(db: Path, filter_text: str) -> FileLock:
    """A database as shep-init makes it, and its lock."""
    import secrets

    from shepherd.filters import parse_filter
    from shepherd.store.disk import locks, names
    from shepherd.store.state import database

    database.create(db, secrets.token_bytes(16), int(time.time()), parse_filter(filter_text).version)
    common.LOG.info("%s: a new database", db)
    return locks.lock(db / names.LOCK, "gather")


def insert(db: Path, hrefs: list[str], weight: int) -> None:
    """Leave the URLs in the inbox, as `shep insert` does; those that are known change nothing."""
    from shepherd.store.state.database import Database

    database = Database(db)
    request = {"op": "insert", "weight": weight, "pinned": False, "by": "gather"}
    database.inbox.drop(database.new_item_name(time.time_ns() // 1_000_000), (request | {"url": href} for href in hrefs))


def finish(gatherer: Gatherer, ending: Ending, cf: Path, url: str, refreshed: bool) -> int:
    """Show what was gathered; the exit status. `url` is one of this run."""
    from shepherd.cli.gather import summary as gather_summary
    from shepherd.store.state.database import Database

    elapsed_s = gatherer.elapsed_s
    with Database(gatherer.db).reading("gather", time.time_ns() // 1_000_000) as state:
        summary = gather_summary.measure(state, load(cf))
    gather_summary.show(summary, cf, ending_in_words(ending, summary.ungathered), gatherer.requests, elapsed_s, refreshed)
    gather_summary.show_next(summary, gatherer.db, cf, url)
    if not ending.status and ending is not STOPPED and not (summary.pages or summary.redirects):
        raise NothingToDo(f"no page came: {gather_summary.why_none(summary) or ending.why}")
    return ending.status


def ending_in_words(ending: Ending, ungathered: int) -> str:
    """Why it has ended, and how to go on where something is left: that nothing is due is true only if nothing is."""
    if not ungathered or ending.status:
        return ending.why
    if ending is COMPLETE:
        return "no server may be asked now for what is still to come: run the same command again later"
    more = {PAGES: ", or give more with --pages", MINUTES: ", or give more with --minutes"}.get(ending, "")
    return f"{ending.why}: to go on run the same command again{more}"


def _verbosity() -> list[str]:
    if common.LOG.isEnabledFor(logging.DEBUG):
        return ["--verbose"]
    return [] if common.LOG.isEnabledFor(logging.INFO) else ["--quiet"]
