"""Connections that have not shown yet who they are, and which of them goes when there is no seat left for another.

A stranger can open connections without end, and each costs a process until it has failed. So there are few seats, and whoever has
most of them gives one up: its oldest. A dispatcher whose address has one seat keeps it, however many a stranger opens from fewer
addresses than there are seats. Invariant: there are never more arrivals than seats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

SEATS: Final = 16
SECURE_S: Final = 1.0  # so long nobody must go for another one of the same address: a burst must not drive itself out


@dataclass(frozen=True, slots=True)
class Arrival:
    pid: int
    who: str  # an address, or the network that stands for it
    since_s: float


class ArrivalSeats:
    """Who has which."""

    def __init__(self, count: int = SEATS) -> None:
        self._count = count
        self._arrivals: dict[int, Arrival] = {}  # by pid, oldest first

    def __len__(self) -> int:
        return len(self._arrivals)

    def pids(self) -> list[int]:
        return list(self._arrivals)

    def add(self, pid: int, who: str, now_s: float) -> None:
        """It takes a seat."""
        self._arrivals[pid] = Arrival(pid, who, now_s)

    def remove(self, pid: int) -> Arrival | None:
        """It is known now, or gone."""
        return self._arrivals.pop(pid, None)

    def is_full(self) -> bool:
        return len(self._arrivals) >= self._count

    def loser(self, who: str, now_s: float) -> Arrival | None:
        """Where all seats are taken: who must go for a newcomer from there; None = the newcomer itself."""
        counts = Counter(arrival.who for arrival in self._arrivals.values())
        counts[who] += 1
        most = max(counts.values())
        oldest = next((arrival for arrival in self._arrivals.values() if counts[arrival.who] == most), None)
        if oldest is None or (oldest.who == who and now_s < oldest.since_s + SECURE_S):
            return None
        return oldest
