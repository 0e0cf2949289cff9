"""Bad HTTP/2, by hand: a server over TLS that sends the frames a test gives it once it has a request."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE_S

DATA, HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATUS_200 = b"\x88"  # HPACK: an entry of the static table
REFUSED_STREAM, HTTP_1_1_REQUIRED = 7, 13


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header for HPACK, never indexed; each text below 127 bytes."""
    return b"\x10" + bytes((len(name),)) + name + bytes((len(value),)) + value


@dataclass
class BadServer:
    port: int
    requests: int = 0  # HEADERS frames of all connections
    connections: int = 0
    old_requests: int = 0  # in HTTP/1.1, which it speaks with whoever does not offer HTTP/2

    def handle(self, plain: socket.socket, context: ssl.SSLContext, answer: Callable[[ssl.SSLSocket, int], None]) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
            connection.settimeout(PATIENCE_S)
            if connection.selected_alpn_protocol() != "h2":
                self.old_requests += connection.recv(65536).startswith(b"GET ")
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold")
                return
            file = connection.makefile("rb")
            file.read(24)  # the preface
            connection.sendall(frame(SETTINGS, 0, 0))
            while len(head := file.read(9)) == 9:
                size, kind, stream = int.from_bytes(head[:3], "big"), head[3], int.from_bytes(head[5:], "big")
                file.read(size)
                if kind == SETTINGS and not head[4] & ACK:
                    connection.sendall(frame(SETTINGS, ACK, 0))
                elif kind == HEADERS:
                    self.requests += 1
                    answer(connection, stream)


@contextlib.contextmanager
def serve_frames(answer: Callable[[ssl.SSLSocket, int], None]) -> Iterator[BadServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem")
    context.set_alpn_protocols(["h2"])
    listener = socket.create_server(("127.0.0.1", 0))
    server = BadServer(listener.getsockname()[1])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.connections += 1
                threading.Thread(target=server.handle, args=(connection, context, answer), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
