"""A relay before a server that cuts connections: each of the first so many after a number of bytes of a stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Cutter:
    behind: tuple[str, int]
    left: list[int]  # bytes of its body that each of the next streams lives for
    then_dead: bool
    front: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    cuts: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front.getsockname()[1]}"

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.front.accept()
                if self.then_dead and not self.left:
                    client.close()
                    continue
                self._threads.append(threading.Thread(target=self._pass, args=(client,), daemon=True))
                self._threads[-1].start()

    def _pass(self, client: socket.socket) -> None:
        """One request after the other, until somebody closes; a stream is counted from its first byte after the headers."""
        with client, socket.create_connection(self.behind) as server, contextlib.suppress(OSError):
            sender = threading.Thread(target=self._to, args=(client, server), daemon=True)
            sender.start()
            head, body = b"", -1
            while data := server.recv(1 << 16):
                if body < 0:
                    head += data
                    if b"vnd.shepherd.documents" in head and b"\r\n\r\n" in head:
                        body = len(head) - head.index(b"\r\n\r\n") - 4
                        early = len(data) - body
                        client.sendall(data[: max(early, 0)])
                        data, body = data[max(early, 0) :], 0
                    else:
                        client.sendall(data)
                        if b"\r\n\r\n" in head and b"vnd.shepherd.documents" not in head:
                            head = b""
                        continue
                if self.left and body + len(data) > self.left[0]:
                    client.sendall(data[: self.left.pop(0) - body])
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)  # the other thread still reads from it
                    return
                body += len(data)
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _to(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutting(url: str, left: list[int], then_dead: bool = False) -> Iterator[Cutter]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    cutter = Cutter((parts.hostname, parts.port), list(left), then_dead)
    thread = threading.Thread(target=cutter.accept, daemon=True)
    thread.start()
    try:
        yield cutter
    finally:
        cutter.front.shutdown(socket.SHUT_RDWR)
        cutter.front.close()
        thread.join()
