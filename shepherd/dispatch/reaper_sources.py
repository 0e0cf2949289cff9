"""Where connections to reapers come from: a reapd of our own as a child, a unix socket, or a machine elsewhere over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import socket
import ssl
import subprocess
from typing import Final

from shepherd import family
from shepherd.addresses import TlsAddress, UnixAddress, parse_address
from shepherd.config import FILE, Config, Reap
from shepherd.dispatch.reapers import ReaperSource
from shepherd.errors import ConfigError, PeerLost, PeerRefused, UsageError
from shepherd.wire import messages as wire
from shepherd.wire import tls, unix_user

LOG = logging.getLogger("shepherd.dispatch")
START_S: Final = 20
STARTS: Final = 3  # of a local reapd that is killed each time, before its connection counts as lost


def configured(config: Config) -> list[ReaperSource]:
    """The reapers of [reap]. Those on other machines need our key file."""
    sources: list[ReaperSource] = []
    context: ssl.SSLContext | None = None
    for address in map(parse_address, config.reap.reapers):
        if isinstance(address, UnixAddress):
            sources.append(UnixSource(address))
        elif isinstance(address, TlsAddress):
            context = context or _context(config)
            sources.append(TlsSource(address, context))
    return sources


def _context(config: Config) -> ssl.SSLContext:
    now = datetime.datetime.now(datetime.UTC)
    try:
        keys = tls.read_keys(config.keys_path, tls.Role.DISPATCHER, now)
    except UsageError as error:
        raise ConfigError(f"{config.directory / FILE}: [reap] keys: {error}") from error
    if warning := tls.warning(keys, now):
        LOG.warning("%s", warning)
    return keys.client()


def local(reap: Reap) -> LocalReapd:
    """A reapd of our own, on the terms of [reap]."""
    terms = {
        "workers": reap.workers,
        "recycle": reap.recycle,
        "memory": reap.worker_bytes,
        "parse": reap.parse_s,
        "user": reap.user,
    }
    return LocalReapd(*(f"--{name}={value}" for name, value in terms.items()))


class UnixSource:
    """A reapd that listens at a path."""

    def __init__(self, address: UnixAddress) -> None:
        self._address = address
        self.name = str(address)

    async def connect(self) -> wire.Peer:
        """A connection to a reapd of ours or of root's: in HELLO stands what nobody else may know."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, os.fspath(self._address.path))
            user = unix_user.user_of_peer(connection)
            if not unix_user.is_trusted(user, os.geteuid()):
                who = unix_user.name_of(user)
                raise PeerRefused(f"user {who} listens there, and was sent nothing; run both ends as one user, or reapd as root")
            return await wire.adopt(connection)
        except OSError as error:
            connection.close()
            raise PeerLost(f"no reaper answers: {error.strerror or error}; is reapd running there?") from error
        except BaseException:
            connection.close()
            raise

    def stop(self) -> None:
        pass


class TlsSource:
    """A reapd that listens on a port, here or elsewhere."""

    def __init__(self, address: TlsAddress, context: ssl.SSLContext) -> None:
        self._address, self._context = address, context
        self.name = str(address)

    async def connect(self) -> wire.Peer:
        return await tls.connect(self._address, self._context)

    def stop(self) -> None:
        pass


class _Killed(PeerLost):
    """A reapd of ours has died of a signal."""


class LocalReapd:
    """A reapd as our child: it ends when we do, even by kill -9. One that dies is started anew.

    Connections are pairs of sockets, of which it is handed one end: they have no name in any directory.
    """

    name = "the local reaper"

    def __init__(self, *options: str) -> None:
        self._options = options
        self._taking = asyncio.Lock()  # answers to what we hand over come one after the other
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the one that was started last."""
        return self._process.pid if self._process is not None else None

    def _start(self) -> subprocess.Popen[bytes]:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                family.command("reapd", "--listen", f"fd:{theirs.fileno()}", "--quiet", *self._options),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                preexec_fn=family.dying_with_us(),
            )
        return self._process

    async def connect(self) -> wire.Peer:
        """A connection, as soon as it takes one. That a reapd was killed before, as the system does where memory is short, says
        nothing against the next one; one that ends by itself will do so again."""
        async with self._taking:
            for _ in range(STARTS - 1):
                with contextlib.suppress(_Killed):
                    return await self._connected()
            return await self._connected()

    async def _connected(self) -> wire.Peer:
        process = self._process or self._start()
        if process.poll() is not None:
            self._control.close()
            process = self._start()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._hand_over(theirs, process)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return await wire.adopt(ours)

    async def _hand_over(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        try:
            socket.send_fds(self._control, [b"+"], [connection.fileno()])
            reply = await asyncio.wait_for(loop.sock_recv(self._control, 1), START_S)
        except TimeoutError:
            process.kill()  # what it would say later belongs to no connection
            raise PeerLost(f"reapd took no connection within {START_S} s") from None
        except OSError:  # it has ended, and with it the other end of the socket
            reply = b""
        if not reply:
            status = process.wait(START_S)
            raise (_Killed if status < 0 else PeerLost)(f"reapd ended with status {status} before it took a connection")

    def stop(self) -> None:
        if self._process is None:
            return
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
