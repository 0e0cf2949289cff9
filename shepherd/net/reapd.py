"""reapd: forks one worker for each connection, from a parent that has imported everything.

Connections come to a unix socket at a path, or from a dispatcher that started this reapd and hands them over a socket of their
own: then no directory has a name of it, whose length could be too long and which a killed dispatcher could leave behind.

The parent reads nothing that a dispatcher or the web sends; it accepts, forks and waits, until SIGTERM or SIGINT. A dispatcher
that starts a reapd of its own has the system send it SIGTERM (PR_SET_PDEATHSIG), so that none is left behind. Workers end with
their connection and with their parent, however either ends.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import logging
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Final, TypeAlias

import uvloop

from shepherd.errors import IoFailed, Locked, UsageError
from shepherd.net import family, worker

LOG = logging.getLogger("shepherd.reapd")
BACKLOG: Final = 64
# Imported elsewhere when first needed, so that other programs start fast; here before the first fork, so that workers do.
PRELOADED: Final = ("aiodns", "brotli", "cchardet", "isal.igzip_lib", "isal.isal_zlib", "selectolax.lexbor", "zstandard")


class Handed:
    """Connections that a dispatcher hands us, one descriptor a byte; the byte goes back when a connection is taken."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError as error:
            raise UsageError(f"fd:{descriptor}: not a socket: {error}; only a dispatcher starts reapd like this") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def accept(self) -> tuple[socket.socket, object]:
        """As a listening socket has it; EOFError when the dispatcher is gone."""
        asked, descriptors, _flags, address = socket.recv_fds(self._socket, 1, 1)
        if not asked or not descriptors:
            raise EOFError
        self._socket.send(asked)
        return socket.socket(fileno=descriptors[0]), address

    def close(self) -> None:
        self._socket.close()


Entrance: TypeAlias = socket.socket | Handed


def entrance(address: str) -> Entrance:
    """Where connections come in: `unix:PATH`, or `fd:NUMBER` as a dispatcher writes it."""
    scheme, _, place = address.partition(":")
    if scheme == "fd" and place.isdecimal():
        return Handed(int(place))
    if scheme != "unix" or not place:
        raise UsageError(f"{address!r}: write the address to listen on as unix:PATH")
    return listen(Path(place))


def listen(path: Path) -> socket.socket:
    """A listening socket at a path that must be free; only this user can connect to it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the socket has its mode from the start, so there is no moment in which others could connect
    try:
        listener.bind(os.fspath(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_bind(path, error) from error
    finally:
        os.umask(before)
    return listener


def _cannot_bind(path: Path, error: OSError) -> Exception:
    if error.errno != errno.EADDRINUSE:
        return UsageError(f"unix:{path}: cannot listen there: {error}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return UsageError(f"unix:{path}: the path exists and nobody listens there; remove it or choose another")
    return Locked(f"unix:{path}: another reapd listens there; choose another path")


class Reaper:
    """The parent: accepts, forks, and keeps count of its workers."""

    def __init__(self, listener: Entrance) -> None:
        self._listener = listener
        self._workers: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        """Serve until told to stop; no worker outlives this call."""
        for name in PRELOADED:
            importlib.import_module(name)
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
                    ready = {key.fileobj for key, _ in selector.select()}
                    if read_end in ready:
                        read_end.recv(4096)
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
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(connection, parent)
        connection.close()
        self._workers.add(pid)
        LOG.info("worker %d serves a new connection", pid)

    def _become_worker(self, connection: socket.socket, parent: int) -> None:
        """In the child; never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
            self._listener.close()
            family.die_with(parent, signal.SIGKILL)
            connection.setblocking(False)
            uvloop.run(worker.serve(connection))
            status = 0
        except Exception:
            LOG.exception("worker %d failed", os.getpid())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _bury(self) -> None:
        """Take the exit status of every worker that has ended."""
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._workers.discard(pid)
                LOG.info("worker %d ended with status %d", pid, os.waitstatus_to_exitcode(status))

    def _end_workers(self) -> None:
        """A worker has nothing to save: what is not acknowledged is asked for again."""
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)


def main(address: str) -> None:
    """Serve who comes to `address` until stopped."""
    listener = entrance(address)
    LOG.info("listening on %s", address)
    Reaper(listener).run()
