"""Bytes to a reader: pieces of memory and of files, put on its socket by a thread that does nothing else.

After the headers the event loop has nothing to say on a connection until the answer is over, so a thread may write to the same
socket. Files go by sendfile: their bytes never come to us. Over TLS they must, and the event loop sends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from shepherd.serve.limits import Rate
from shepherd.serve.service import Ask

READ_BYTES: Final = 1 << 18  # at a time, where they must pass through us
SETTLE_S: Final = 0.002
WAIT_MS: Final = 500  # at a time, for a reader that takes nothing


@dataclass(frozen=True)
class FileSpans:
    """Ranges of an open file, none of them empty, one after the other. It stays open until the next piece is asked for."""

    fd: int
    offsets: list[int]
    lengths: list[int]


Piece: TypeAlias = bytes | FileSpans
KeepAlive: TypeAlias = Callable[[], None]  # called again and again; what it raises ends the transfer


class Stalled(Exception):
    """The reader takes nothing, or the connection is gone, or a file is shorter than it was: no answer can say so."""


class Unchunked(web.StreamResponse):
    """An answer whose end is that of the connection, if it has no Content-Length. aiohttp would send it in chunks."""

    _length_check = False


async def send(ask: Ask, response: web.StreamResponse, pieces: Iterable[Piece], keep_alive: KeepAlive) -> web.StreamResponse:
    """Send an answer whose headers are ready. From here on a failure can only cut the connection."""
    await response.prepare(ask.request)
    if ask.is_head:
        await response.write_eof()
        return response
    transport = ask.request.transport
    ask.bytes_sent = 0
    try:
        if transport is None:
            raise Stalled("the reader has gone")
        if transport.get_extra_info("sslcontext") is not None:
            await _through_us(ask, response, iter(pieces), keep_alive)
        else:
            await _past_us(ask, transport, pieces, keep_alive)
    except Exception as error:
        ask.notes["cut"] = str(error) or type(error).__name__
        if transport is not None:
            transport.abort()
    await response.write_eof()
    return response


# --- plain ------------------------------------------------------------------------------------------------------


async def _past_us(ask: Ask, transport: asyncio.WriteTransport, pieces: Iterable[Piece], keep_alive: KeepAlive) -> None:
    until_s = time.monotonic() + ask.service.settings.stall_s
    while transport.get_write_buffer_size():  # the headers must be out before a thread goes on behind them
        if transport.is_closing() or time.monotonic() > until_s:
            raise Stalled("the reader does not take the headers")
        await asyncio.sleep(SETTLE_S)
    connection = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    await ask.work(_send_all, ask, connection, pieces, keep_alive)


def _send_all(ask: Ask, connection: socket.socket, pieces: Iterable[Piece], keep_alive: KeepAlive) -> None:
    connection.setblocking(False)
    line = _Line(connection, ask.service.settings.stall_s, ask.allowance.bytes, keep_alive)
    try:
        with connection, ask.service.sending_on(connection), line.corked():
            for piece in pieces:
                keep_alive()
                if isinstance(piece, FileSpans):
                    line.send_file(piece)
                else:
                    line.send_bytes(piece)
    except OSError as error:
        raise Stalled(error.strerror or str(error)) from error
    finally:
        line.settle()
        ask.bytes_sent = line.bytes_sent


class _Line:
    """A socket that never blocks longer than a reader may stall, and not faster than its client may have it."""

    def __init__(self, connection: socket.socket, stall_s: float, rate: Rate, keep_alive: KeepAlive) -> None:
        self._connection, self._stall_s, self._rate, self._keep_alive = connection, stall_s, rate, keep_alive
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLOUT)
        self._credit: float = 0 if rate.portion else math.inf  # bytes that may go without asking the rate
        self.bytes_sent = 0

    @contextlib.contextmanager
    def corked(self) -> Iterator[None]:
        """Many small pieces go as few large packets."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        yield
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def send_file(self, spans: FileSpans) -> None:
        """Nearly every range goes by one call, so there is little beside it."""
        out, fd, sendfile, keep_alive = self._connection.fileno(), spans.fd, os.sendfile, self._keep_alive
        for offset, length in zip(spans.offsets, spans.lengths, strict=True):
            keep_alive()
            try:
                count = sendfile(out, fd, offset, length) if length <= self._credit else 0
            except BlockingIOError:
                count = 0
            self._credit -= count
            self.bytes_sent += count
            if count != length:
                self._send_rest(out, fd, offset + count, offset + length)

    def _send_rest(self, out: int, fd: int, offset: int, end: int) -> None:
        while offset < end:
            stop = offset + self._paced(end - offset)
            while offset < stop:
                try:
                    count = os.sendfile(out, fd, offset, stop - offset)
                except BlockingIOError:
                    self._wait()
                    continue
                if not count:
                    raise Stalled("a file is shorter than it was")
                offset += count
                self.bytes_sent += count

    def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            part = view[: self._paced(len(view))]
            view = view[len(part) :]
            while part:
                try:
                    count = self._connection.send(part)
                except BlockingIOError:
                    self._wait()
                    continue
                part = part[count:]
                self.bytes_sent += count

    def _paced(self, length: int) -> int:
        """How much of it may be sent now, after the wait that it takes: one for a portion, not one for each of its ranges."""
        self._keep_alive()
        if self._credit <= 0:
            time.sleep(self._rate.take(self._rate.portion))
            self._credit = self._rate.portion
        length = int(min(length, self._credit))
        self._credit -= length
        return length

    def settle(self) -> None:
        """Give back what was taken and not sent."""
        if self._rate.portion:
            self._rate.give_back(max(self._credit, 0))

    def _wait(self) -> None:
        self._keep_alive()  # also where the reader takes something each time: such a range may last for hours
        until_s = time.monotonic() + self._stall_s
        while not self._poll.poll(WAIT_MS):
            self._keep_alive()
            if time.monotonic() > until_s:
                raise Stalled(f"the reader took nothing for {self._stall_s:g} s")


# --- TLS --------------------------------------------------------------------------------------------------------


async def _through_us(ask: Ask, response: web.StreamResponse, pieces: Iterator[Piece], keep_alive: KeepAlive) -> None:
    rate, bytes_sent = ask.allowance.bytes, 0
    chunks = _chunks(pieces, keep_alive, rate.portion)
    while (chunk := await ask.work(next, chunks, b"")) != b"":
        await asyncio.sleep(rate.take(len(chunk)))
        try:
            async with asyncio.timeout(ask.service.settings.stall_s):
                await response.write(chunk)
        except TimeoutError:
            raise Stalled(f"the reader took nothing for {ask.service.settings.stall_s:g} s") from None
        bytes_sent += len(chunk)
        ask.bytes_sent = bytes_sent


def _chunks(pieces: Iterator[Piece], keep_alive: KeepAlive, most: int) -> Iterator[bytes]:
    """Small ranges together: each chunk costs a turn of a thread and one of the event loop."""
    step, buffer = min(most or READ_BYTES, READ_BYTES), bytearray()
    for data in _read(pieces, keep_alive, step):
        buffer += data
        if len(buffer) >= step:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _read(pieces: Iterator[Piece], keep_alive: KeepAlive, step: int) -> Iterator[bytes]:
    for piece in pieces:
        if isinstance(piece, bytes):
            for first in range(0, len(piece), step):
                keep_alive()
                yield piece[first : first + step]
            continue
        for offset, length in zip(piece.offsets, piece.lengths, strict=True):
            for first in range(0, length, step):
                keep_alive()
                data = os.pread(piece.fd, min(step, length - first), offset + first)
                if len(data) < min(step, length - first):
                    raise Stalled("a file is shorter than it was")
                yield data
