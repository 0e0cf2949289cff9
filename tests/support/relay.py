"""A relay between a dispatcher and a reaper that a test controls: it can lose either direction, be slow, or cut at a message.

It forwards whole messages of the protocol, so that a test can say at which of them something happens.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import PATIENCE_S

AT = Callable[[str, int], bool]  # direction ("to" or "from" the reaper) and the number of the message: whether to cut there


@dataclass
class Relay:
    """`to` and `from` are open while data flows to and from the reaper."""

    behind: Path  # the reaper's socket
    cut_at: AT = lambda direction, number: False
    in_the_middle: bool = False  # a cut leaves half of its message behind
    rate: int = 0  # bytes a second from the reaper; 0 = as fast as it goes
    to: threading.Event = field(default_factory=threading.Event)
    back: threading.Event = field(default_factory=threading.Event)
    on_cut: Callable[[], None] = lambda: None
    connections: int = 0
    messages: int = 0
    cuts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def serve_one(self, front: socket.socket) -> None:
        with self._lock:
            self.connections += 1
        back = socket.socket(socket.AF_UNIX)
        try:
            back.connect(str(self.behind))
        except OSError:
            front.close()
            back.close()
            return
        self._open += [front, back]
        for source, target, direction in ((front, back, "to"), (back, front, "from")):
            self._threads.append(threading.Thread(target=self._pass_on, args=(source, target, direction), daemon=True))
            self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        gate = self.to if direction == "to" else self.back
        with contextlib.suppress(OSError, EOFError):
            while True:
                message = _message(source)
                gate.wait()
                with self._lock:
                    self.messages += 1
                    cut = self.cut_at(direction, self.messages)
                    self.cuts += cut
                if cut:
                    target.sendall(message[: len(message) // 2] if self.in_the_middle else b"")
                    self.on_cut()
                    break
                self._send(target, message, direction)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _send(self, target: socket.socket, message: bytes, direction: str) -> None:
        if not self.rate or direction == "to":
            target.sendall(message)
            return
        for begin in range(0, len(message), 65536):
            piece = message[begin : begin + 65536]
            target.sendall(piece)
            time.sleep(len(piece) / self.rate)

    def close(self) -> None:
        self.to.set()
        self.back.set()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in self._open:
            end.close()


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack("<I", head)[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(min(1 << 16, size - len(data)))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


@contextlib.contextmanager
def relaying(front: Path, relay: Relay) -> Iterator[Relay]:
    """Serve dispatchers at the path `front`."""
    relay.to.set()
    relay.back.set()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(front))
    listener.listen(16)

    try:
        with accepting(listener, relay.serve_one):
            yield relay
    finally:
        relay.close()


@contextlib.contextmanager
def accepting(listener: socket.socket, on_connection: Callable[[socket.socket], object]) -> Iterator[None]:
    """Hand every connection on, in a thread; the listener is closed at the end."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                on_connection(listener.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
