"""The listening sockets: they count connections from the moment that they are there until they are closed.

asyncio tells of a connection over TLS only when its handshake is over, and does not tell of one that fails. So it is counted by
the socket that accepts it, and counted off when its own socket is closed, whoever does that.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from shepherd.addresses import Listen
from shepherd.serve.log import tell

FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
NETWORK_BITS: Final = 64  # of an IPv6 address: whoever has one has all that begin so
TOLD_S: Final = 60.0  # between two lines of the log about connections that were turned away


@dataclass
class Guests:
    """Who is connected, by address. `most` of them is where no door opens any more, not even to say so."""

    most: int
    most_of_one: int  # 0 = no limit
    turned_away: Callable[[], None]
    inside: Counter[str] = field(default_factory=Counter)
    _told_s: float = float("-inf")
    _untold: int = 0

    def __len__(self) -> int:
        return self.inside.total()

    def may_enter(self, who: str) -> bool:
        return len(self) < self.most and not (self.most_of_one and self.inside[who] >= self.most_of_one)

    def leave(self, who: str) -> None:
        self.inside[who] -= 1
        if not self.inside[who]:
            del self.inside[who]

    def turn_away(self, who: str) -> None:
        self.turned_away()
        self._untold += 1
        if (now_s := time.monotonic()) >= self._told_s + TOLD_S:
            text = f"{who} has {self.inside[who]} connections, of {len(self)} in all: no more (serve.connections_per_address)"
            tell("turned_away", text, logging.WARNING, peer=who, held=self.inside[who], all=len(self), count=self._untold)
            self._told_s, self._untold = now_s, 0


class Door(socket.socket):
    """A listening socket. Whom it turns away is told so where no handshake comes before."""

    guests: Guests
    answer: bytes = b""

    def accept(self) -> tuple[socket.socket, Any]:
        number, address = self._accept()  # type: ignore[attr-defined]
        visitor = _Visitor(self.family, self.type, self.proto, fileno=number)
        who = network_of(address[0])
        if self.guests.may_enter(who):
            self.guests.inside[who] += 1
            visitor.on_close = lambda: self.guests.leave(who)
            return visitor, address
        with visitor, contextlib.suppress(OSError):
            visitor.setblocking(False)
            visitor.send(self.answer)
        self.guests.turn_away(who)
        raise ConnectionAbortedError("turned away")  # asyncio looks after others, and comes back for the next one


class _Visitor(socket.socket):
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        on_close, self.on_close = self.on_close, None
        super().close()
        if on_close is not None:
            on_close()


def open_doors(listen: Listen, guests: Guests, answer: bytes, backlog: int) -> list[Door]:
    """Where somebody listens: a name such as localhost may have several addresses."""
    doors: list[Door] = []
    found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            door = Door(family, kind, protocol)
            doors.append(door)
            door.guests, door.answer = guests, answer
            door.setblocking(False)
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            door.bind(address)
            door.listen(backlog)
    except OSError:
        for door in doors:
            door.close()
        raise
    return doors


def network_of(address: str) -> str:
    """Who an address stands for."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((int(parsed), NETWORK_BITS), strict=False)) if not parsed.is_loopback else str(parsed)
