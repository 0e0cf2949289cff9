"""How connections reach a reapd: a unix socket at a path, a TCP port for TLS, or a dispatcher that hands them over.

A dispatcher that started this reapd hands it connections over an inherited socket: that needs no path, which could be too long
and which a killed dispatcher could leave behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from shepherd.addresses import Address, Descriptor, TlsAddress, UnixAddress
from shepherd.errors import Locked, UsageError
from shepherd.store.disk import fsio
from shepherd.wire import unix_user

LOG = logging.getLogger("shepherd.reapd")
BACKLOG: Final = 64


class InheritedListener:
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
        """Like that of a listening socket; raises EOFError when the dispatcher is gone."""
        request, descriptors, _flags, address = socket.recv_fds(self._socket, 1, 1)
        if not request or not descriptors:
            raise EOFError
        self._socket.send(request)
        return socket.socket(fileno=descriptors[0]), address

    def close(self) -> None:
        self._socket.close()


class UnixListener:
    """A socket at a path, for dispatchers of the user that opened it, or of root: others are hung up on."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket, self._user = listening, os.geteuid()  # soon we are another

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def accept(self) -> tuple[socket.socket, object]:
        connection, address = self._socket.accept()
        user = unix_user.user_of_peer(connection)
        if unix_user.is_trusted(user, self._user):
            return connection, address
        connection.close()
        LOG.info("connection dropped: it is of user %s", unix_user.name_of(user))
        raise ConnectionAbortedError

    def close(self) -> None:
        self._socket.close()


Listener: TypeAlias = socket.socket | InheritedListener | UnixListener


def open_listener(address: Address) -> Listener:
    match address:
        case Descriptor():
            return InheritedListener(address.number)
        case UnixAddress():
            return UnixListener(listen_at_path(address.path))
        case TlsAddress():
            return _listen_tcp(address)


def listen_at_path(path: Path) -> socket.socket:
    """A listening socket at a path that only this user can connect to. The path is free, or a dead reapd's socket is there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the socket has its mode from the start, so there is no moment in which others could connect
    try:
        with _alone(path.parent):
            _remove_dead_socket(path)
            listener.bind(os.fspath(path))
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"unix:{path}: cannot listen there: {error}") from error
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keep other reapds from probing the sockets of the directory: one that is bound and does not listen yet seems dead."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket of ours that refuses connections; anything else at the path stays, and is an error."""
    try:
        entry = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(entry.st_mode) or entry.st_uid != os.geteuid():
        raise UsageError(f"unix:{path}: what is there is not a socket of this user; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a listener that is too busy to accept would make us wait
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise Locked(f"unix:{path}: another reapd or program listens there; choose another path")
    fsio.unlink(path)


def _listen_tcp(address: TlsAddress) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Locked(f"{address}: another program listens there; choose another port") from error
        raise UsageError(f"{address}: cannot listen there: {error}") from error
