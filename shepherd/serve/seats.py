"""The seats of the server: who has which connection, and whose ends where a newcomer finds none free.

Invariant: a connection that has shown no known token keeps nobody out. Where all seats are taken, or all that one address may
have, a stranger leaves: of whoever has most, the one that has been silent for longest. So who opens many closes his own. Where no
stranger is left, a client's connection that has nothing under way leaves by the same rule. Only requests under way fill a server.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from shepherd.serve.log import EventThrottle

LINE_EVERY_S: Final = 60.0  # between two lines of the log about connections that found no seat, or lost theirs


@dataclass(eq=False)
class Seat:
    """One connection, from its accept on, also in a TLS handshake."""

    number: int  # of its file, which nobody else has as long as it is open
    network: str  # who its address stands for
    close: Callable[[], object]  # ends it, whatever it is doing
    last_sign: int = 0  # of life: the higher, the later
    client: str | None = None  # whose token its last request had
    is_busy: bool = False  # a request is under way

    @property
    def owner(self) -> str:
        return self.client or self.network


class Seats:
    """`most` seats, and some more for those who are only to hear that there is none."""

    def __init__(
        self, most: int, most_of_one: int, spare: int, on_turned_away: Callable[[], object], on_displaced: Callable[[], object]
    ) -> None:
        self._most, self._most_of_one, self._spare = most, most_of_one, spare  # most_of_one: 0 = no limit
        self._on_turned_away, self._on_displaced = on_turned_away, on_displaced
        self._seats: dict[int, Seat] = {}
        self._signs = itertools.count(1)
        self._log = {name: EventThrottle(1 / LINE_EVERY_S, 1.0) for name in ("turned_away", "displaced")}

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def is_overfull(self) -> bool:
        """Whether somebody sits where he is only to hear that there is no seat."""
        return len(self) > self._most

    def take(self, number: int, network: str, close: Callable[[], object]) -> Seat | None:
        """A seat for a new connection; None where there is none, not even by another's leaving."""
        own = [seat for seat in self._seats.values() if seat.network == network]
        if self._most_of_one and len(own) >= self._most_of_one:
            is_free = self._displace(own)
        else:
            is_free = len(self) < self._most or self._displace(self._seats.values()) or len(self) < self._most + self._spare
        if not is_free:
            self._turn_away(network, len(own))
            return None
        seat = self._seats[number] = Seat(number, network, close, next(self._signs))
        return seat

    def find(self, number: int) -> Seat | None:
        """The seat of this file; None if it was taken away."""
        return self._seats.get(number)

    def leave(self, seat: Seat) -> None:
        if self._seats.get(seat.number) is seat:
            del self._seats[seat.number]

    def on_request(self, seat: Seat, client: str | None) -> None:
        """A request has come, of this client or of a stranger."""
        seat.client, seat.is_busy, seat.last_sign = client, client is not None, next(self._signs)

    def on_answer(self, seat: Seat) -> None:
        seat.is_busy, seat.last_sign = False, next(self._signs)

    def _displace(self, seats: Iterable[Seat]) -> bool:
        """Take one of these seats away, if one of them may be."""
        idle = [seat for seat in seats if not seat.is_busy]
        candidates = [seat for seat in idle if seat.client is None] or idle
        if not candidates:
            return False
        counts = Counter(seat.owner for seat in candidates)
        seat = max(candidates, key=lambda seat: (counts[seat.owner], -seat.last_sign))
        self.leave(seat)
        self._on_displaced()
        text = (
            f"{seat.owner} had {counts[seat.owner]} idle connections; the one that was silent for longest made room for another"
        )
        self._log["displaced"].log("displaced", text, peer=seat.network, held=counts[seat.owner], all=len(self))
        seat.close()
        return True

    def _turn_away(self, network: str, count: int) -> None:
        self._on_turned_away()
        text = f"{network} has {count} connections, of {len(self)} in all, and requests are under way on all that could make room"
        advice = "serve.connections and serve.connections_per_address say how many there may be"
        self._log["turned_away"].log("turned_away", f"{text}; {advice}", logging.WARNING, peer=network, held=count, all=len(self))
