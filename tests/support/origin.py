"""A small server on loopback that answers each path with given bytes, or does to the connection what a function says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from tests.support.waiting import PATIENCE_S

Answer: TypeAlias = bytes | Callable[[socket.socket], None]


@dataclass
class Origin:
    """`seen` has each request as received; `connections` counts also those that asked for nothing.

    A route is a path, or a host and a path.
    """

    port: int
    routes: dict[str, Answer]
    seen: list[bytes] = field(default_factory=list)
    connections: int = 0
    spans: list[tuple[str, float, float]] = field(default_factory=list)  # host and path, begin and end of each exchange

    def paths(self) -> list[str]:
        return [request.split(b" ", 2)[1].decode() for request in self.seen]

    def gaps_s(self) -> list[float]:
        """From the end of each exchange to the begin of the next: what a polite client keeps above the delay."""
        spans = sorted(self.spans, key=lambda span: span[1])
        return [after[1] - before[2] for before, after in pairwise(spans)]

    def urls(self) -> list[str]:
        """Host and path of each request."""
        return [_host(request) + request.split(b" ", 2)[1].decode() for request in self.seen]

    def answer(self, request: bytes) -> Answer:
        path = request.split(b" ", 2)[1].decode()
        missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        return self.routes.get(_host(request) + path) or self.routes.get(path, missing)

    def handle(self, plain: socket.socket, tls: ssl.SSLContext | None) -> None:
        with plain, contextlib.suppress(OSError), tls.wrap_socket(plain, server_side=True) if tls else plain as connection:
            connection.settimeout(PATIENCE_S)
            while (request := _read_request(connection)) is not None:
                self.seen.append(request)
                begin, end = time.monotonic(), 0.0
                answer, url = self.answer(request), self.urls()[-1]
                try:
                    if not isinstance(answer, bytes):
                        answer(connection)
                        return
                    end = time.monotonic()  # once it is sent the client may go on, however long this thread is kept waiting
                    connection.sendall(answer)
                finally:
                    self.spans.append((url, begin, end or time.monotonic()))
                if b"\r\nConnection: keep-alive\r\n" not in answer:
                    return


def _host(request: bytes) -> str:
    return request.lower().partition(b"\r\nhost: ")[2].partition(b"\r\n")[0].decode()


def _read_request(connection: socket.socket) -> bytes | None:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    return data


def ok(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "".join(line + "\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang(connection: socket.socket) -> None:
    """Keep the connection open, silent, until the other end leaves."""
    while connection.recv(65536):
        pass


@contextlib.contextmanager
def serve(
    routes: dict[str, Answer], tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", port: int = 0
) -> Iterator[Origin]:
    listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    origin = Origin(listener.getsockname()[1], routes)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                origin.connections += 1
                threading.Thread(target=origin.handle, args=(connection, tls), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield origin
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
