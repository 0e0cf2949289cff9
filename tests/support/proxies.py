"""An HTTP proxy and a SOCKS 5 proxy on loopback, that note what they are asked for."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.relay import accepting
from tests.support.waiting import PATIENCE_S


@dataclass
class Relay:
    port: int
    asked: list[str] = field(default_factory=list)  # address:port of each tunnel
    heads: list[bytes] = field(default_factory=list)  # what a client of the HTTP proxy sent before the tunnel
    credentials: str = ""  # user:password that is demanded
    answer: bytes = b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n"

    def http(self, client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = client.recv(4096)
            if not piece:
                return
            head += piece
        self.heads.append(head)
        method, target, _ = head.split(b" ", 2)
        if self.credentials and base64.b64encode(self.credentials.encode()) not in head:
            client.sendall(b"HTTP/1.1 407 Authenticate\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
            return
        assert method == b"CONNECT"
        host, _, port = target.decode().rpartition(":")
        self.asked.append(target.decode())
        client.sendall(self.answer)
        if b" 200 " in self.answer and self.answer.endswith(b"\r\n\r\n"):
            self._tunnel(client, host.strip("[]"), int(port))

    def socks5(self, client: socket.socket) -> None:
        file = client.makefile("rb")
        _, count = file.read(2)
        offered = file.read(count)
        if self.credentials:
            assert 2 in offered
            client.sendall(b"\5\2")
            file.read(1)
            user = file.read(file.read(1)[0])
            password = file.read(file.read(1)[0])
            good = f"{user.decode()}:{password.decode()}" == self.credentials
            client.sendall(b"\1\0" if good else b"\1\1")
            if not good:
                return
        else:
            client.sendall(b"\5\0")
        _, _, _, kind = file.read(4)
        host = socket.inet_ntoa(file.read(4)) if kind == 1 else file.read(file.read(1)[0]).decode()
        (port,) = struct.unpack(">H", file.read(2))
        self.asked.append(f"{host}:{port}")
        client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
        self._tunnel(client, host, port)

    def _tunnel(self, client: socket.socket, host: str, port: int) -> None:
        with socket.create_connection((host, port), 10) as server:
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def serve_proxy(kind: str) -> Iterator[Relay]:
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay(listener.getsockname()[1])
    handle: Callable[[socket.socket], None] = relay.http if kind == "http" else relay.socks5

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, IndexError, struct.error):
            client.settimeout(PATIENCE_S)
            handle(client)

    with accepting(listener, lambda client: threading.Thread(target=serve, args=(client,), daemon=True).start()):
        yield relay
