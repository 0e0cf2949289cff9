"""`shepherd run`: cycles for ever. A pause where nothing is due, another try where that may help, an end where it does not.

All that it knows is in the database: killed at any moment, the next start continues. Between two cycles it heeds SIGHUP; the
configuration of a cycle never changes under its hands.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shepherd.config import Config
from shepherd.console import cf_place, common, progress
from shepherd.errors import ConfigError, Locked
from shepherd.master import events
from shepherd.master.attendant import Attendant
from shepherd.master.children import Signals
from shepherd.master.config_snapshot import ConfigSnapshot
from shepherd.master.cycle_run import NOTHING, CycleOptions, CycleRun
from shepherd.master.cycle_table import is_passing

if TYPE_CHECKING:
    from shepherd.store.disk.locks import FileLock
    from shepherd.store.state.database import Database, Writer

NAME: Final = "shepherd run"
ORPHAN_S: Final = 1.0  # how often we look whether the program of a killed master has ended


def run(db: Path, config: Config, log: Path | None, log_format: str | None) -> int:
    """Until a signal or a failure ends it; the exit status."""
    from shepherd.store.state.database import Database

    database = Database(db)
    signals = Signals(master=True)
    handler = events.structured(log, (log_format or config.master.log_format) == "json")
    lock = _lock(database, signals)
    if lock is None:
        return 0  # stopped while we waited
    with database.writing(NAME, inherited=lock.fd, tidy=False) as writer:
        cf_place.require(db, config)
        cf = ConfigSnapshot(config.directory, database.log_path)
        if complaints := cf.read():
            raise ConfigError(*complaints)
        shows = log is None and sys.stderr.isatty()  # then programs may draw their bars
        attendant = Attendant(db, config.directory, log, log_format or config.master.log_format)
        try:
            return Daemon(writer, lock.fd, signals, cf, handler, shows, log_format, attendant).run()
        finally:
            attendant.end()


def _lock(database: Database, signals: Signals) -> FileLock | None:
    """The lock; None if we are to stop. A program that outlived a killed master is waited for: it does what comes next."""
    from shepherd.store.disk import locks, names

    path = database.path / names.LOCK
    while not signals.stopping():
        try:
            return locks.lock(path, NAME)
        except Locked as error:
            if not locks.is_taker_gone(locks.text_of(path)):
                raise
            events.log_event("wait", str(error), logging.WARNING)
            signals.pause(ORPHAN_S)
    return None


class Daemon:
    """The daemon, which holds the lock."""

    def __init__(
        self,
        writer: Writer,
        lock: int,
        signals: Signals,
        cf: ConfigSnapshot,
        handler: events.Handler,
        shows: bool,
        log_format: str | None,
        attendant: Attendant,
    ) -> None:
        self._writer = writer
        self._database = writer.database
        self._lock = lock
        self._signals = signals
        self._cf = cf
        self._handler = handler
        self._shows = shows
        self._log_format = log_format
        self._attendant = attendant
        self._reread = False  # cf/ is to be read before the next cycle

    def run(self) -> int:
        events.log_event("start", pid=os.getpid(), db=str(self._database.path), cf=str(self._cf.config.directory))
        status = self._cycles()
        events.log_event("stop", status=status, signal=[int(number) for number in self._signals.signals_received] or None)
        return status

    def _cycles(self) -> int:
        failures = 0
        while True:
            self._heed()
            if self._signals.stopping():
                return self._signals.exit_status if self._signals.killing() else 0
            began_s = time.monotonic()
            self._cf.keep()
            master = self._cf.config.master
            status = CycleRun(self._writer, self._cycle_options()).run()
            if self._signals.stopping() or self._heed():
                continue
            if status in (0, NOTHING):
                failures = 0
                self._pause(master.pause_s if status else began_s + master.cycle_s - time.monotonic())
            elif is_passing(status) and failures < master.retries:
                wait_s = master.retry_s * 2**failures
                failures += 1
                events.log_event("retry", "", logging.WARNING, status=status, failures=failures, seconds=wait_s)
                self._pause(wait_s, inbox=False)
            else:
                return status

    def _cycle_options(self) -> CycleOptions:
        on_line = None if self._shows else _log_line
        return CycleOptions(
            self._cf.config,
            self._signals,
            self._lock,
            lambda: cf_place.note_taken(self._database.path, self._cf.config),
            NAME,
            on_line=on_line,
            on_second=self._attend,
        )

    def _attend(self) -> None:
        """While a program runs: a log that was rotated is closed at once, cf/ is read when the cycle is over."""
        if self._signals.hung_up:
            self._signals.hung_up = False
            self._reread = True
            self._reopen()
            self._attendant.hang_up()
        self._attendant.look(self._cf.config.serve)

    def _heed(self) -> bool:
        """SIGHUP; whether there is a new configuration."""
        self._attend()
        if not self._reread:
            return False
        self._reread = False
        complaints = self._cf.read()
        for complaint in complaints:
            events.log_event("reload_failed", f"{complaint}; the old configuration stays", logging.WARNING)
        if not complaints:
            self._handler.as_json = (self._log_format or self._cf.config.master.log_format) == "json"
            events.log_event("reload", cf=str(self._cf.config.directory))
        return not complaints

    def _reopen(self) -> None:
        try:
            self._handler.reopen()
        except OSError as error:
            events.log_event("reopen_failed", f"the log cannot be opened again: {error}", logging.WARNING)

    def _pause(self, seconds: float, inbox: bool = True) -> None:
        """Until so long has passed, a signal comes, or (if `inbox`) something new is in the inbox."""
        until_s = time.monotonic() + seconds
        if seconds <= 0:
            return
        events.log_event("pause", seconds=round(seconds, 1))
        notice = progress.Notice(self._database.path, progress.ProgressJob(NAME, "pause"), first_s=0)
        before = self._waiting()
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                self._attendant.look(self._cf.config.serve)
                notice.write(figures={"until": round(time.time() + left_s)})
                self._signals.pause(min(left_s, self._cf.config.master.look_s))
                if self._signals.stopping() or self._signals.hung_up or self._signals.cleanup_requested:
                    return
                if inbox and (new := self._waiting() - before):
                    events.log_event("wake", items=len(new))
                    return
        finally:
            notice.remove()

    def _waiting(self) -> set[str]:
        """What is in the inbox: something that nobody can take does not end a pause again and again."""
        return {item.name for item in self._database.inbox.all_items()}


def _log_line(step: str, line: str) -> None:
    events.log_event("said", common.escape(line), program=step)
