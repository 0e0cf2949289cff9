"""reapd: forks one worker for each connection, from a parent that has imported everything.

The parent reads nothing that a dispatcher or the web sends; it accepts, forks, watches and waits, until SIGTERM or SIGINT. What a
worker was parsing when it died is on the board (reaper/process/shared.py), and the other workers of the same session tell. A
dispatcher that starts a reapd of its own has the system send it SIGTERM (PR_SET_PDEATHSIG), so that none is left behind. Workers
end with their connection and with their parent, however either ends.
"""

from __future__ import annotations

import contextlib
import encodings
import gc
import importlib
import logging
import os
import pkgutil
import selectors
import signal
import socket
import ssl
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import certifi
import uvloop

from shepherd import family
from shepherd.addresses import Address, Descriptor, TlsAddress
from shepherd.errors import IoFailed, UsageError
from shepherd.reaper.process import confine, worker
from shepherd.reaper.process.limits import Terms
from shepherd.reaper.process.listener import Entrance, entrance
from shepherd.reaper.process.shared import Board, Seat, Stage
from shepherd.wire.tls import Keys

LOG = logging.getLogger("shepherd.reapd")
ARRIVING: Final = 16  # connections that have not said HELLO, beside those that are served
LOOK_S: Final = 1.0  # how often the watchdog looks
# Imported elsewhere when first needed, so that other programs start fast; here before the first fork, so that workers do.
PRELOADED: Final = ("aiodns", "brotli", "cchardet", "isal.igzip_lib", "isal.isal_zlib", "selectolax.lexbor", "zstandard")


class Reaper:
    """The parent: accepts, forks, and keeps count of its workers."""

    def __init__(self, listener: Entrance, terms: Terms, tls: ssl.SSLContext | None = None) -> None:
        self._listener, self._terms, self._tls = listener, terms, tls
        self._board = Board(2 * terms.workers + ARRIVING)
        self._workers: dict[int, Seat] = {}
        self._wedged: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        """Serve until told to stop; no worker outlives this call."""
        gc.freeze()  # what the parent has imported stays shared with its workers
        read_end, write_end = socket.socketpair()
        with read_end, write_end, selectors.DefaultSelector() as selector:
            write_end.setblocking(False)
            signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # it only has to wake the loop
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(read_end, selectors.EVENT_READ)
            try:
                while not self._stopping:
                    ready = {key.fileobj for key, _ in selector.select(LOOK_S if self._workers else None)}
                    if read_end in ready:
                        read_end.recv(4096)
                    self._end_wedged()
                    self._bury()
                    if self._listener in ready:
                        self._accept()
            finally:
                signal.set_wakeup_fd(-1)
                self._listener.close()
                self._end_workers()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except EOFError:
            self._stopping = True
            return
        except OSError as error:
            raise IoFailed(f"no connection can be accepted any more: {error}") from error
        with connection:
            seat = self._seat()
            if seat is not None:
                self._fork(connection, seat)

    def _seat(self) -> Seat | None:
        """A stranger who connects and says nothing must not keep others out for long: such connections are few."""
        arriving = sum(seat.stage == Stage.ARRIVED for seat in self._workers.values())
        seat = self._board.take() if arriving < ARRIVING else None
        if seat is None:
            LOG.warning("connection dropped: %d have come and not said HELLO", arriving)
        return seat

    def _fork(self, connection: socket.socket, seat: Seat) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            seat.free()
            LOG.warning("connection dropped: no worker can be started: %s", error)
            return
        if pid == 0:
            self._become_worker(connection, seat, parent)
        self._workers[pid] = seat
        LOG.info("worker %d serves a new connection", pid)

    def _become_worker(self, connection: socket.socket, seat: Seat, parent: int) -> None:
        """In the child; never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
            self._listener.close()
            family.die_with(parent, signal.SIGKILL)
            confine.limit_memory(self._terms.memory_bytes)
            confine.allow_cpu(self._terms.parse_s + worker.SPARE_CPU_S)
            connection.setblocking(False)
            uvloop.run(worker.serve(connection.dup(), self._terms, seat, self._tls))
            status = 0
        except Exception:
            LOG.exception("worker %d failed", os.getpid())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _end_wedged(self) -> None:
        """Kill whoever is at the same page for too long; it is then buried like one that died of it."""
        longest_ns, now_ns = self._terms.parse_s * 1e9, time.monotonic_ns()
        for pid, seat in self._workers.items():
            if seat.token and now_ns - seat.since_ns > longest_ns and pid not in self._wedged:
                LOG.warning("worker %d has been at one page for %d s and is killed", pid, (now_ns - seat.since_ns) / 1e9)
                self._wedged.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """Take the exit status of every worker that has ended, and remember what one died of."""
        for pid, seat in list(self._workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._workers[pid]
            self._wedged.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code and seat.token:
                LOG.warning("worker %d ended with status %d at the page of token %d", pid, code, seat.token)
                self._board.died(seat.session, seat.token)
            else:
                LOG.info("worker %d ended with status %d", pid, code)
            seat.free()

    def _end_workers(self) -> None:
        """A worker has nothing to save: what is not acknowledged is asked for again."""
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)


def main(address: Address, terms: Terms, keys: Keys | None, user: str) -> None:
    """Serve who comes to `address` until stopped. `user` is who to be if started as root."""
    parent = os.getppid()
    if isinstance(address, TlsAddress) != (keys is not None):
        raise UsageError(f"{address}: --keys FILE is needed for tls:, and for nothing else; shep-keys makes such a file")
    tls = keys.server() if keys is not None else None
    if os.geteuid() == 0:
        confine.user_named(user)  # before there is a socket that a refusal would leave behind
    listener = entrance(address)
    for name in PRELOADED:
        importlib.import_module(name)
    if os.geteuid() == 0:
        terms = replace(terms, authorities=Path(certifi.where()).read_text(encoding="utf-8"))
        _give_up_root(user)
    confine.no_more_rights()
    if isinstance(address, Descriptor):
        family.die_with(parent)  # a change of user has undone it
    LOG.info("listening on %s", address)
    Reaper(listener, terms, tls).run()


def _give_up_root(user: str) -> None:
    """Be that user. Nothing of Shepherd or of Python may have to be read from then on: both may be hidden from everybody else."""
    for module in pkgutil.iter_modules(encodings.__path__):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"encodings.{module.name}")
    confine.become(user)
    if os.geteuid() == 0:
        LOG.warning("reaping as root, as --user %s says: whatever breaks a parser has all rights", user)
