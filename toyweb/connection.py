"""One client of the toy web: HTTP/1.1 with kept connections, plain or in TLS, every request in the access log.

A connection begins with TLS where its first byte is that of a handshake, so http and https need no port each. Requests are
answered in the order in which they come, one at a time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from toyweb import log
from toyweb.answer import Desk
from toyweb.http import HANG_UP, ToyAnswer, ToyRequest, message, parse
from toyweb.tls import Layer

_HEAD_BYTES = 16 * 1024
_HANDSHAKE = 0x16  # the first byte of a TLS client
_LONGEST_S = 900.0  # that an exhibit may last
_NOBODY = ToyRequest("GET", "", {})

Clock = Callable[[], float]


class LineSink(Protocol):
    """Where lines of the log go."""

    def write(self, data: bytes, /) -> object: ...


@dataclass
class Office:
    """What all connections of a process share."""

    desk: Desk
    access: LineSink
    clock: Clock
    tls: ssl.SSLContext
    latency_s: float = 0.0
    connections: set[ClientConnection] = field(default_factory=set)


class ClientConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._buffer = b""
        self._start_s = 0.0
        self._layer: Layer | None = None
        self._scheme = "http"
        self._begun = self._busy = False
        self._play: asyncio.Task[None] | None = None
        self._writable: asyncio.Event | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._address, self._port = transport.get_extra_info("sockname")[:2]
        self._office.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._office.connections.discard(self)
        if self._play is not None:
            self._play.cancel()

    def pause_writing(self) -> None:
        if self._writable is not None:
            self._writable.clear()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()

    def data_received(self, data: bytes) -> None:
        if not self._buffer and not self._busy:
            self._start_s = self._office.clock()
        if not self._begun:
            self._begun = True
            if data[0] == _HANDSHAKE:
                self._layer, self._scheme = Layer(self._office.tls), "https"
        if self._layer is not None:
            plain = self._decrypted(self._layer, data)
            if plain is None:
                return
            data = plain
        self._buffer += data
        self._serve()

    def close(self) -> None:
        self._transport.close()

    def _decrypted(self, layer: Layer, data: bytes) -> bytes | None:
        try:
            plain = layer.receive(data)
        except ssl.SSLError:
            # A client that refuses our certificate has been here, too.
            self._log(_NOBODY, self._office.clock(), HANG_UP, 0)
            self._transport.write(layer.waiting())
            self._transport.close()
            return None
        greeting = layer.waiting()
        if greeting:
            self._transport.write(greeting)
        return plain

    def _serve(self) -> None:
        while not self._busy and not self._transport.is_closing():
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                if len(head) > _HEAD_BYTES:
                    self._send(_NOBODY, ToyAnswer(431, close=True))
                return
            self._buffer = rest
            request = parse(head, self._scheme)
            answer = ToyAnswer(400, close=True) if request is None else self._office.desk.answer(request, self._start_s)
            pause_s = answer.pause_s + self._office.latency_s
            if answer.script is not None and request is not None:
                self._busy = True
                self._play = asyncio.get_running_loop().create_task(self._perform(request, answer, pause_s))
            elif pause_s:
                self._busy = True
                asyncio.get_running_loop().call_later(pause_s, self._send_late, request or _NOBODY, answer)
            else:
                self._send(request or _NOBODY, answer)
                self._start_s = self._office.clock()

    def _send_late(self, request: ToyRequest, answer: ToyAnswer) -> None:
        self._busy = False
        if not self._transport.is_closing():
            self._send(request, answer)
            self._start_s = self._office.clock()
            self._serve()

    def _send(self, request: ToyRequest, answer: ToyAnswer) -> None:
        data = message(request, answer)
        # The end is taken, and the line written, before the last byte can reach the client: see log.py.
        self._log(request, self._office.clock(), answer.status, len(data))
        self._write(data)
        if answer.close or request.wants_close:
            self._farewell()

    async def _perform(self, request: ToyRequest, answer: ToyAnswer, pause_s: float) -> None:
        """Play a script. Its end is that of the last thing we did: when a client that left us did so, we cannot know as soon."""
        assert answer.script is not None
        clock = self._office.clock
        self._writable = asyncio.Event()
        self._writable.set()
        status, bytes_sent, end_s = HANG_UP, 0, clock()
        try:
            await asyncio.sleep(pause_s)
            for step in answer.script():
                if not isinstance(step, bytes):
                    if step < 0:
                        self._transport.abort()
                        return
                    await asyncio.sleep(step)
                    continue
                await self._writable.wait()
                if not bytes_sent and step.startswith(b"HTTP/1."):
                    status = int(step[9:12]) if step[9:12].isdigit() else HANG_UP
                end_s, bytes_sent = clock(), bytes_sent + len(step)
                self._write(step)
                await asyncio.sleep(0)
                if end_s - self._start_s > _LONGEST_S:
                    return
        finally:
            self._log(request, end_s, status, bytes_sent)
            self._farewell()

    def _write(self, data: bytes) -> None:
        self._transport.write(data if self._layer is None else self._layer.send(data))

    def _farewell(self) -> None:
        if self._layer is not None and not self._transport.is_closing():
            self._transport.write(self._layer.close())
        self._transport.close()

    def _log(self, request: ToyRequest, end_s: float, status: int, size_bytes: int) -> None:
        entry = log.AccessEntry(
            self._start_s,
            end_s,
            self._address,
            self._port,
            self._scheme,
            request.host,
            request.target,
            status,
            size_bytes,
            request.headers.get("user-agent", ""),
            request.conditional,
        )
        self._office.access.write(log.line(entry))
