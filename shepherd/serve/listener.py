"""The listening sockets. They count each connection from its accept until it is closed.

asyncio reports a connection over TLS only when its handshake is over, and never one that fails. So it is counted by
the socket that accepts it, and subtracted when its own socket is closed, whoever does that.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from shepherd.addresses import Listen, network_of
from shepherd.serve.log import log_event

FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
LOG_EVERY_S: Final = 60.0  # between two lines of the log about refused connections


@dataclass
class ConnectionLimits:
    """The connections by address. Beyond `most` none is accepted any more, not even to refuse it."""

    most: int
    most_of_one: int  # 0 = no limit
    turned_away: Callable[[], None]
    connections: Counter[str] = field(default_factory=Counter)
    _logged_s: float = float("-inf")
    _not_logged: int = 0

    def __len__(self) -> int:
        return self.connections.total()

    def may_connect(self, who: str) -> bool:
        return len(self) < self.most and not (self.most_of_one and self.connections[who] >= self.most_of_one)

    def release(self, who: str) -> None:
        self.connections[who] -= 1
        if not self.connections[who]:
            del self.connections[who]

    def turn_away(self, who: str) -> None:
        self.turned_away()
        self._not_logged += 1
        if (now_s := time.monotonic()) >= self._logged_s + LOG_EVERY_S:
            text = (
                f"{who} has {self.connections[who]} connections, of {len(self)} in all: no more (serve.connections_per_address)"
            )
            log_event(
                "turned_away", text, logging.WARNING, peer=who, held=self.connections[who], all=len(self), count=self._not_logged
            )
            self._logged_s, self._not_logged = now_s, 0


class Listener(socket.socket):
    """A listening socket. Without TLS, a connection beyond the limits gets `answer` before it is closed."""

    limits: ConnectionLimits
    answer: bytes = b""

    def accept(self) -> tuple[socket.socket, Any]:
        number, address = self._accept()  # type: ignore[attr-defined]
        accepted = _AcceptedSocket(self.family, self.type, self.proto, fileno=number)
        who = network_of(address[0])
        if self.limits.may_connect(who):
            self.limits.connections[who] += 1
            accepted.on_close = lambda: self.limits.release(who)
            return accepted, address
        with accepted, contextlib.suppress(OSError):
            accepted.setblocking(False)
            accepted.send(self.answer)
        self.limits.turn_away(who)
        raise ConnectionAbortedError("turned away")  # asyncio looks after others, and comes back for the next one


class _AcceptedSocket(socket.socket):
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        on_close, self.on_close = self.on_close, None
        super().close()
        if on_close is not None:
            on_close()


def open_listeners(listen: Listen, limits: ConnectionLimits, answer: bytes, backlog: int) -> list[Listener]:
    """One for each address: a name such as localhost may have several."""
    listeners: list[Listener] = []
    places = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(places):
            listener = Listener(family, kind, protocol)
            listeners.append(listener)
            listener.limits, listener.answer = limits, answer
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
