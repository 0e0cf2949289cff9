"""The toy web on sockets: its listeners, its processes, its files, and the signals that stop it or bring its next version.

The static table (`host address port` lines) and the certificate of its authority are complete, and every address listens, before
`serve` calls `on_ready`. With several processes each has its own share of the servers; with fewer servers than processes,
all listen on all of them and the system deals out the connections. No process outlives the first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import uvloop

from shepherd.errors import PeerLost, UsageError
from shepherd.store.disk import locks
from toyweb import dns, log
from toyweb.answer import PATIENCE_BYTES, Desk
from toyweb.connection import ClientConnection, Clock, Office
from toyweb.model import LOOPBACK, Model
from toyweb.tls import Authority

STATIC = "static"
ACCESS_LOG = "access.log"
CERTIFICATE = "ca.pem"
LOCK = "lock"  # one toy web in a directory: another would write over its table

_BACKLOG = 4096
_READY, _ADVANCE = b"r", b"a"


@dataclass(frozen=True)
class ServerSettings:
    """How a model is served."""

    directory: Path
    port: int = 0  # 0 = any that is free; with one address, the first of many
    tls_port: int = 0  # a second port of every server, which DNS without a static table needs; 0 = none
    version: int = 0
    processes: int = 1
    latency_s: float = 0.0
    prepare: bool = False
    dns_port: int = 0


def serve(
    model: Model, settings: ServerSettings, clock: Clock, on_ready: Callable[[], None], on_advanced: Callable[[int], None]
) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP advances the version of the web, then calls `on_advanced` with it."""
    _raise_limit()
    directory = settings.directory
    directory.mkdir(parents=True, exist_ok=True)
    lock = locks.lock(directory / LOCK, "shep-toyweb")
    try:
        _serve(model, settings, clock, on_ready, on_advanced)
    finally:
        lock.release()


def _serve(
    model: Model, settings: ServerSettings, clock: Clock, on_ready: Callable[[], None], on_advanced: Callable[[int], None]
) -> None:
    directory, authority = settings.directory, Authority()
    authority.write(directory / CERTIFICATE)
    desk = Desk(model, settings.version, mmap.mmap(-1, PATIENCE_BYTES))
    if settings.prepare:
        desk.prepare()
    # Unbuffered: a line is in the file when its client has the answer, whatever happens to this process then.
    with (directory / ACCESS_LOG).open("ab", buffering=0) as access:
        if access.tell() == 0:
            access.write(log.header_line())
        shares, ports = _listen(model, settings)
        table = (f"{host} {model.address_of(server)} {ports[server]}\n" for host, server in model.hosts())
        (directory / STATIC).write_text("".join(table), encoding="ascii")
        boss = _Boss(model, settings, desk, access, clock, authority.context)
        boss.run(shares, on_ready, on_advanced)


class _Boss:
    """The first process. It serves itself if it is the only one."""

    def __init__(
        self, model: Model, settings: ServerSettings, desk: Desk, access: FileIO, clock: Clock, context: ssl.SSLContext
    ) -> None:
        self._model, self._settings, self._desk = model, settings, desk
        self._office = Office(desk, access, clock, context, settings.latency_s)

    def run(self, shares: list[list[socket.socket]], on_ready: Callable[[], None], on_advanced: Callable[[int], None]) -> None:
        helpers: list[tuple[int, socket.socket]] = []
        for number in range(len(shares) if len(shares) > 1 else 0):
            helpers.append(self._fork(shares, number, [control for _, control in helpers]))
        own = shares[0] if not helpers else []
        for listener in [listener for share in shares for listener in share if listener not in own]:
            listener.close()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._command(own, [control for _, control in helpers], on_ready, on_advanced))
        finally:
            for _, control in helpers:
                control.close()  # which ends the helper
            for pid, _ in helpers:
                os.waitpid(pid, 0)

    def _fork(
        self, shares: list[list[socket.socket]], number: int, inherited: Sequence[socket.socket]
    ) -> tuple[int, socket.socket]:
        """A helper, and its control connection. It ends when that is closed, so no other process may have our end of it."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            return pid, ours
        status = 1
        try:
            for control in (ours, *inherited):
                control.close()
            for listener in [listener for index, share in enumerate(shares) if index != number for listener in share]:
                listener.close()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._help(shares[number], theirs))
            status = 0
        except BaseException as error:
            print(f"a process of the toy web ended: {error!r}", file=sys.stderr)
        finally:
            os._exit(status)

    async def _help(self, listeners: Sequence[socket.socket], control: socket.socket) -> None:
        """A helper: obeys its control connection, and ends with it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # a terminal sends them to all
            loop.add_signal_handler(number, lambda: None)
        control.setblocking(False)
        servers = await self._open(listeners)
        await loop.sock_sendall(control, _READY)
        while await loop.sock_recv(control, 1) == _ADVANCE:
            self._desk.advance()
            await loop.sock_sendall(control, _ADVANCE)
        await self._shut(servers)

    async def _command(
        self,
        listeners: Sequence[socket.socket],
        controls: Sequence[socket.socket],
        on_ready: Callable[[], None],
        on_advanced: Callable[[int], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        orders: asyncio.Queue[None] = asyncio.Queue()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.set)
        loop.add_signal_handler(signal.SIGHUP, orders.put_nowait, None)
        words: asyncio.Queue[bytes] = asyncio.Queue()
        listening = [asyncio.ensure_future(_listen_to(control, words)) for control in controls]
        servers = await self._open(listeners)
        names = None
        if self._settings.dns_port:
            names = await loop.create_datagram_endpoint(
                lambda: dns.NameServer(self._model), local_addr=(LOOPBACK, self._settings.dns_port)
            )
        for _ in controls:
            _must_live(await words.get())
        on_ready()

        async def advance() -> None:
            while True:
                await orders.get()
                self._desk.advance()
                for control in controls:
                    await loop.sock_sendall(control, _ADVANCE)
                for _ in controls:
                    _must_live(await words.get())
                on_advanced(self._desk.version)

        tasks = [asyncio.ensure_future(advance()), asyncio.ensure_future(stop.wait()), *listening]
        ended, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        if names is not None:
            names[0].close()
        await self._shut(servers)
        for task in ended:
            task.result()
        if not stop.is_set():
            _must_live(b"")

    async def _open(self, listeners: Sequence[socket.socket]) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        return [
            await loop.create_server(lambda: ClientConnection(self._office), sock=listener, backlog=_BACKLOG)
            for listener in listeners
        ]

    async def _shut(self, servers: Sequence[asyncio.Server]) -> None:
        for server in servers:
            server.close()
        for connection in list(self._office.connections):
            connection.close()
        await asyncio.sleep(0)


async def _listen_to(control: socket.socket, words: asyncio.Queue[bytes]) -> None:
    """What a helper says; nothing, when it has ended."""
    control.setblocking(False)
    while word := await asyncio.get_running_loop().sock_recv(control, 1):
        words.put_nowait(word)
    words.put_nowait(b"")


def _must_live(word: bytes) -> None:
    if not word:
        raise PeerLost("a process of the toy web ended before its time; what it said is above")


def has_many_addresses(address: str) -> bool:
    """Whether a loopback address but 127.0.0.1 can be listened on: Linux has them all, other systems may not."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _listen(model: Model, settings: ServerSettings) -> tuple[list[list[socket.socket]], list[int]]:
    """The listeners of each process, and the port of each server."""
    count = settings.processes
    shared = count > 1 and model.servers < count
    shares: list[list[socket.socket]] = [[] for _ in range(count)]
    ports = []
    for server in range(model.servers):
        port = settings.port + server if settings.port and model.shape.one_address else settings.port
        for wanted_port in (port, settings.tls_port) if settings.tls_port else (port,):
            first = _bind(model.address_of(server), wanted_port, shared)
            shares[server % count].append(first)
            if shared:
                for other in range(1, count):
                    shares[(server + other) % count].append(_bind(model.address_of(server), first.getsockname()[1], shared))
            if wanted_port == port:
                ports.append(first.getsockname()[1])
    return shares, ports


def _bind(address: str, port: int, shared: bool) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{address} port {port}" if port else address
        what = "choose another --base or --port, or --one-address"
        raise UsageError(f"the toy web cannot listen on {where}: {error.strerror}; {what}") from error
    return listener


def _raise_limit() -> None:
    """As many open files as the system lets us have: every server is one, and every client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
