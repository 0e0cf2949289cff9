"""The listening sockets. Each connection has a seat from its accept until it is closed.

asyncio reports a connection over TLS only when its handshake is over, and never one that fails. So it gets its seat
from the socket that accepts it, and leaves it when its own socket is closed, whoever does that.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final

from shepherd.addresses import Listen, network_of
from shepherd.serve.seats import Seats

FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


class Listener(socket.socket):
    """A listening socket. Without TLS, a connection that finds no seat gets `answer` before it is closed."""

    seats: Seats
    answer: bytes = b""

    def accept(self) -> tuple[socket.socket, Any]:
        number, address = self._accept()  # type: ignore[attr-defined]
        accepted = _AcceptedSocket(self.family, self.type, self.proto, fileno=number)
        who = network_of(address[0])
        seat = self.seats.take(number, who, accepted.cut)
        if seat is not None:
            accepted.on_close = lambda: self.seats.leave(seat)
            return accepted, address
        with accepted, contextlib.suppress(OSError):
            accepted.setblocking(False)
            accepted.send(self.answer)
        raise ConnectionAbortedError("turned away")  # asyncio looks after others, and comes back for the next one


class _AcceptedSocket(socket.socket):
    on_close: Callable[[], None] | None = None

    def cut(self) -> None:
        """End it while it is in the hands of asyncio, which finds it shut."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        on_close, self.on_close = self.on_close, None
        super().close()
        if on_close is not None:
            on_close()


def open_listeners(listen: Listen, seats: Seats, answer: bytes, backlog: int) -> list[Listener]:
    """One for each address: a name such as localhost may have several."""
    listeners: list[Listener] = []
    places = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(places):
            listener = Listener(family, kind, protocol)
            listeners.append(listener)
            listener.seats, listener.answer = seats, answer
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(backlog)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners
