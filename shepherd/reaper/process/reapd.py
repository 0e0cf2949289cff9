"""reapd: forks one worker for each connection, from a parent that has imported everything.

The parent reads nothing that a dispatcher or the web sends; it accepts, forks, watches and waits, until SIGTERM or SIGINT. What a
worker was parsing when it died is in its slot (reaper/process/shared.py), and the other workers of the same session report it. A
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
from shepherd.addresses import Address, Descriptor, TlsAddress, network_of
from shepherd.errors import IoFailed, UsageError
from shepherd.rate import TokenBucket
from shepherd.reaper.process import confine, worker
from shepherd.reaper.process.limits import WorkerLimits
from shepherd.reaper.process.listener import Listener, open_listener
from shepherd.reaper.process.seats import SEATS, Arrival, ArrivalSeats
from shepherd.reaper.process.shared import SlotStage, WorkerSlot, WorkerTable
from shepherd.wire.tls import Keys

LOG = logging.getLogger("shepherd.reapd")
LINES: Final = 10  # about strangers in the log at once, and then one a minute: they come as often as they like
LINES_A_S: Final = 1 / 60
LOOK_S: Final = 1.0  # how often the watchdog looks
# Imported elsewhere when first needed, so that other programs start fast; here before the first fork, so that workers do.
PRELOADED: Final = ("aiodns", "brotli", "cchardet", "isal.igzip_lib", "isal.isal_zlib", "selectolax.lexbor", "zstandard")


class ReaperServer:
    """The parent: accepts connections, forks workers and counts them."""

    def __init__(self, listener: Listener, limits: WorkerLimits, tls: ssl.SSLContext | None = None) -> None:
        self._listener, self._limits, self._tls = listener, limits, tls
        self._table = WorkerTable(2 * limits.workers + SEATS)
        self._seats = ArrivalSeats()
        self._lines = TokenBucket(LINES_A_S, time.monotonic() * 1000, LINES)
        self._not_logged = 0
        self._workers: dict[int, WorkerSlot] = {}
        self._wedged: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        """Serve until a signal; no worker outlives this call."""
        gc.freeze()  # what the parent has imported stays shared with its workers
        read_end, write_end = socket.socketpair()
        with read_end, write_end, selectors.DefaultSelector() as selector:
            write_end.setblocking(False)
            signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._stop)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # its only purpose is to wake the loop
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(read_end, selectors.EVENT_READ)
            try:
                while not self._stopping:
                    ready = {key.fileobj for key, _ in selector.select(LOOK_S if self._workers else None)}
                    if read_end in ready:
                        read_end.recv(4096)
                    self._end_wedged()
                    self._collect_ended()
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
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except EOFError:
            self._stopping = True
            return
        except OSError as error:
            raise IoFailed(f"no connection can be accepted any more: {error}") from error
        who = network_of(address[0]) if isinstance(address, tuple) else ""  # on a unix socket it is one of ours
        with connection:
            slot = self._free_slot(who)
            if slot is not None:
                self._fork(connection, slot, who)

    def _free_slot(self, who: str) -> WorkerSlot | None:
        """A free slot, if there is one. Connections that may be anybody's have few seats: one may have to go for this one."""
        for pid in self._seats.pids():
            if self._workers[pid].stage != SlotStage.ARRIVED:
                self._seats.remove(pid)
        if self._seats.is_full():
            loser = self._seats.loser(who, time.monotonic())
            if loser is None:
                self._log_stranger(who, f"{len(self._seats)} others have not shown a key or said HELLO yet")
                return None
            self._end_arrival(loser)
        slot = self._table.take()
        if slot is None:
            self._log_stranger(who, "there are too many")
        return slot

    def _end_arrival(self, arrival: Arrival) -> None:
        self._log_stranger(arrival.who, "it has shown no key and not said HELLO, and others are waiting")
        with contextlib.suppress(ProcessLookupError):
            os.kill(arrival.pid, signal.SIGKILL)
        os.waitpid(arrival.pid, 0)
        self._seats.remove(arrival.pid)
        self._workers.pop(arrival.pid).free()

    def _log_stranger(self, who: str, why: str) -> None:
        """Somebody could not stay, or did not want to, of whom nothing is known."""
        now_ms = time.monotonic() * 1000
        if self._lines.missing(now_ms):
            self._not_logged += 1
            return
        self._lines.take(now_ms)
        more = f"; {self._not_logged} more since the last such line" if self._not_logged else ""
        LOG.warning("connection dropped: %s%s%s", f"{who}: " if who else "", why, more)
        self._not_logged = 0

    def _fork(self, connection: socket.socket, slot: WorkerSlot, who: str) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            slot.free()
            LOG.warning("connection dropped: no worker can be started: %s", error)
            return
        if pid == 0:
            self._become_worker(connection, slot, parent)
        self._workers[pid] = slot
        self._seats.add(pid, who, time.monotonic())

    def _become_worker(self, connection: socket.socket, slot: WorkerSlot, parent: int) -> None:
        """In the child; never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
            self._listener.close()
            family.die_with(parent, signal.SIGKILL)
            confine.limit_memory(self._limits.memory_bytes)
            confine.allow_cpu(self._limits.parse_s + worker.SPARE_CPU_S)
            connection.setblocking(False)
            uvloop.run(worker.serve(connection.dup(), self._limits, slot, self._tls))
            status = 0
        except Exception:
            LOG.exception("worker %d failed", os.getpid())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _end_wedged(self) -> None:
        """Kill workers that are at the same page for too long; they then count as killed by that page."""
        longest_ns, now_ns = self._limits.parse_s * 1e9, time.monotonic_ns()
        for pid, slot in self._workers.items():
            if slot.token and now_ns - slot.since_ns > longest_ns and pid not in self._wedged:
                LOG.warning("worker %d has been at one page for %d s and is killed", pid, (now_ns - slot.since_ns) / 1e9)
                self._wedged.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _collect_ended(self) -> None:
        """Collect the exit status of every worker that has ended, and record the page that killed it."""
        for pid, slot in list(self._workers.items()):
            pid_ended, status = os.waitpid(pid, os.WNOHANG)
            if not pid_ended:
                continue
            del self._workers[pid]
            arrival = self._seats.remove(pid)
            self._wedged.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code and slot.token:
                LOG.warning("worker %d ended with status %d at the page of token %d", pid, code, slot.token)
                self._table.died(slot.session, slot.token)
            elif slot.why and arrival is not None:
                self._log_stranger(arrival.who, slot.why)
            elif slot.session or code:
                LOG.info("worker %d ended with status %d", pid, code)
            slot.free()

    def _end_workers(self) -> None:
        """Kill all workers. A worker has nothing to save: what is not acknowledged is requested again."""
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)


def main(address: Address, limits: WorkerLimits, keys: Keys | None, user: str) -> None:
    """Serve connections at `address` until a signal. `user` is the one to become if started as root."""
    parent = os.getppid()
    if isinstance(address, TlsAddress) != (keys is not None):
        raise UsageError(f"{address}: --keys FILE is needed for tls:, and for nothing else; shep-keys makes such a file")
    tls = keys.server() if keys is not None else None
    if os.geteuid() == 0:
        confine.user_named(user)  # before there is a socket that a refusal would leave behind
    listener = open_listener(address)
    for name in PRELOADED:
        importlib.import_module(name)
    if os.geteuid() == 0:
        limits = replace(limits, authorities=Path(certifi.where()).read_text(encoding="utf-8"))
        _give_up_root(user)
    confine.give_up_rights()
    if isinstance(address, Descriptor):
        family.die_with(parent)  # a change of user has undone it
    LOG.info("listening on %s", address)
    ReaperServer(listener, limits, tls).run()


def _give_up_root(user: str) -> None:
    """Become that user, after loading all that may be needed: that user may be unable to read the files of Shepherd or Python."""
    for module in pkgutil.iter_modules(encodings.__path__):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"encodings.{module.name}")
    confine.change_user(user)
    if os.geteuid() == 0:
        LOG.warning("reaping as root, as --user %s says: whatever breaks a parser has all rights", user)
