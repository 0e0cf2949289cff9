"""shep-serve beside a master: started where `serve.listen` is set, started again when it ends, ended with the master.

It is a process of its own with no part in the lock: however it ends, gathering continues. It reads cf/ itself, tokens too.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from shepherd import family
from shepherd.config import Serve
from shepherd.console import common, phase
from shepherd.master import events

PROGRAM: Final = "shep-serve"
FIRST_S: Final = 1.0  # before it is started again; doubled with each further time
LONGEST_S: Final = 600.0
STEADY_S: Final = 60.0  # one that ran for so long has not failed at once
END_S: Final = 10.0  # beyond serve.drain_s


class Attendant:
    """Looks after the server; `look` is to be called often, and never waits."""

    def __init__(self, db: Path, cf: Path, log: Path | None, log_format: str) -> None:
        arguments = ["--db", str(db.absolute()), "--cf", str(cf.absolute()), "--log-format", log_format]
        self._arguments = [*arguments, *(["--log", str(log.absolute())] if log else [])]
        self._is_logged = log is not None  # also what it writes before it has a log of its own
        self._child: subprocess.Popen[bytes] | None = None
        self._output_tail: events.OutputTail | None = None
        self._settings = Serve()
        self._failures, self._next_s, self._began_s = 0, 0.0, 0.0

    def look(self, settings: Serve) -> None:
        """See to it that it runs as the configuration wants it."""
        if settings != self._settings:
            self.end()
            self._settings, self._failures, self._next_s = settings, 0, 0.0
        if self._child is not None and self._child.poll() is not None:
            self._ended(self._child.returncode)
        if settings.listen and self._child is None and time.monotonic() >= self._next_s:
            self._start()

    def hang_up(self) -> None:
        """Its log was rotated."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGHUP)

    def end(self) -> None:
        """End it, and wait for that; readers continue where they were when the next one is there."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(self._settings.drain_s + END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._forget()

    def _start(self) -> None:
        self._output_tail = events.OutputTail(_say) if self._is_logged else None
        environment = {name: value for name, value in os.environ.items() if name != phase.LOCK_FD}
        self._child = subprocess.Popen(
            family.command(PROGRAM, *self._arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # where it would print the token of a run without clients
            stderr=self._output_tail.fd if self._output_tail else None,
            start_new_session=True,
            env=environment,
            preexec_fn=family.dying_with_us(),
        )
        self._began_s = time.monotonic()
        events.log_event("serve", program=PROGRAM, pid=self._child.pid, listen=self._settings.listen)

    def _ended(self, status: int) -> None:
        self._forget()
        if time.monotonic() - self._began_s > STEADY_S:
            self._failures = 0
        wait_s = min(FIRST_S * 2**self._failures, LONGEST_S)
        self._failures += 1
        self._next_s = time.monotonic() + wait_s
        exit_status = status if status >= 0 else 128 - status
        events.log_event("serve_ended", "", logging.WARNING, program=PROGRAM, status=exit_status, seconds=wait_s)

    def _forget(self) -> None:
        self._child = None
        if self._output_tail is not None:
            self._output_tail.close()
            self._output_tail = None


def _say(line: str) -> None:
    events.log_event("said", common.escape(line), program=PROGRAM)
