"""The toy web on sockets: one listener per loopback address, HTTP/1.1 with kept connections, every request in the access log.

The static table (`host address port` lines) is complete, and every address listens, before `serve` calls `ready`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from io import FileIO
from pathlib import Path
from typing import cast

from shepherd.errors import UsageError
from shepherd.toyweb import log
from shepherd.toyweb.answer import HANG_UP, Answer, Desk, Request

STATIC = "static"
ACCESS_LOG = "access.log"

_HEAD_BYTES = 16 * 1024
_BACKLOG = 512
_REASONS = {status.value: status.phrase for status in HTTPStatus}

Clock = Callable[[], float]


class Connection(asyncio.Protocol):
    """One client: requests are answered in the order in which they come."""

    def __init__(self, desk: Desk, access: FileIO, clock: Clock, open_connections: set[Connection]) -> None:
        self._desk = desk
        self._access = access
        self._clock = clock
        self._open = open_connections
        self._buffer = b""
        self._start_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._address, self._port = transport.get_extra_info("sockname")[:2]
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self._start_s = self._clock()
        self._buffer += data
        while not self._transport.is_closing():
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                if len(head) > _HEAD_BYTES:
                    self._send(Request("GET", "", {}), Answer(431, close=True))
                return
            self._buffer = rest
            request = _parse(head)
            self._send(request or Request("GET", "", {}), self._desk.answer(request) if request else Answer(400, close=True))
            self._start_s = self._clock()

    def close(self) -> None:
        self._transport.close()

    def _send(self, request: Request, answer: Answer) -> None:
        if answer.status == HANG_UP:
            message = b""
        else:
            message = _head(request, answer) + (b"" if request.method == "HEAD" else answer.body)
        # The end is taken, and the line written, before the last byte can reach the client: see log.py.
        entry = log.Entry(
            start_s=self._start_s,
            end_s=self._clock(),
            address=self._address,
            port=self._port,
            host=request.host,
            path=request.target,
            status=answer.status,
            size_bytes=len(message),
            agent=request.headers.get("user-agent", ""),
            conditional=request.conditional,
        )
        self._access.write(log.line(entry))
        self._transport.write(message)
        if answer.close or _wants_close(request):
            self._transport.close()


def _parse(head: bytes) -> Request | None:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        return None
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        headers[name.strip().lower()] = value.strip()
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    return Request(words[0], words[1], headers)


def _head(request: Request, answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", "Server: toyweb"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.status != 304:
        lines.append(f"Content-Length: {len(answer.body)}")
    if answer.close or _wants_close(request):
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _wants_close(request: Request) -> bool:
    return request.headers.get("connection", "").lower() == "close"


async def serve(
    desk: Desk, directory: Path, port: int, clock: Clock, ready: Callable[[], None], advanced: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT. SIGHUP advances the version of the web, then calls `advanced`."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def advance() -> None:
        desk.advance()
        advanced()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGHUP, advance)
    connections: set[Connection] = set()
    directory.mkdir(parents=True, exist_ok=True)
    # Unbuffered: a line is in the file when its client has the answer, whatever happens to this process then.
    with (directory / ACCESS_LOG).open("ab", buffering=0) as access:
        if access.tell() == 0:
            access.write(log.header_line())
        listeners = [_listen(address, port) for address in desk.model.addresses]
        ports = {listener.getsockname()[0]: listener.getsockname()[1] for listener in listeners}
        table = [f"{host} {site.address} {ports[site.address]}\n" for host, site in desk.model.hosts()]
        (directory / STATIC).write_text("".join(table), encoding="ascii")
        servers = [
            await loop.create_server(lambda: Connection(desk, access, clock, connections), sock=listener, backlog=_BACKLOG)
            for listener in listeners
        ]
        ready()
        await stop.wait()
        for server in servers:
            server.close()
        for connection in list(connections):
            connection.close()
        await asyncio.sleep(0)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{address} port {port}" if port else address
        raise UsageError(f"the toy web cannot listen on {where}: {error.strerror}; choose another --base or --port") from error
    return listener
