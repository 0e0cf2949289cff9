"""Token buckets over a clock that the caller gives, and what the whole reap may do in a second, over all servers.

A reap's bucket holds at most one second's worth, so nothing is saved up while servers wait. The size of a fetch is known only
afterwards: its bytes are charged then, and while there is a debt no page is handed out.
"""

from __future__ import annotations

import math
from typing import Final

UNLIMITED: Final = 1 << 62


class TokenBucket:
    """`rate` tokens a second, and `most` at once after a pause: by default a second's worth. A rate of 0 = no limit."""

    def __init__(self, rate: float, now_ms: float, most: float | None = None) -> None:
        self._rate, self._most = rate, max(rate, 1.0) if most is None else most
        self._tokens, self._filled_ms = self._most, now_ms

    def missing(self, now_ms: float, need: float = 1.0) -> float:
        """How many tokens there are too few; 0 = there are so many."""
        if not self._rate:
            return 0.0
        self._fill(now_ms)
        return max(need - self._tokens, 0.0)

    def wait_ms(self, now_ms: int, need: float = 1.0) -> int:
        """How long until there are so many tokens; 0 = there are."""
        missing = self.missing(now_ms, need)
        return math.ceil(round(missing * 1000 / self._rate, 6)) if missing else 0

    def affordable(self, now_ms: float) -> int:
        """How many may be taken one by one, the last of them when there was still a whole token."""
        if not self._rate:
            return UNLIMITED
        self._fill(now_ms)
        return max(math.floor(self._tokens), 0)

    def take(self, now_ms: float, count: float = 1.0) -> None:
        """Pay; below zero it is a debt."""
        if self._rate:
            self._fill(now_ms)
            self._tokens -= count

    def _fill(self, now_ms: float) -> None:
        if now_ms > self._filled_ms:
            self._tokens = min(self._most, self._tokens + (now_ms - self._filled_ms) * self._rate / 1000)
            self._filled_ms = now_ms


class ReapLimits:
    """Pages and bytes a second, and connections at a time, of all reapers together."""

    def __init__(self, pages_per_s: float, bytes_per_s: int, connections: int, now_ms: int) -> None:
        self._pages, self._bytes = TokenBucket(pages_per_s, now_ms), TokenBucket(bytes_per_s, now_ms)
        self._connections = connections

    def wait_ms(self, now_ms: int) -> int:
        """How long no page may be asked for; 0 = one may."""
        return max(self._pages.wait_ms(now_ms), self._bytes.wait_ms(now_ms, 0.0))

    def affordable(self, now_ms: int) -> int:
        """How many pages may be asked for at once."""
        return 0 if self._bytes.missing(now_ms, 0.0) else self._pages.affordable(now_ms)

    def room(self, in_flight: int, free: int) -> int:
        """How many of so many free places may be used."""
        return max(min(free, self._connections - in_flight), 0) if self._connections else free

    def charge_page(self, now_ms: int) -> None:
        self._pages.take(now_ms)

    def charge_bytes(self, now_ms: int, wire_bytes: int) -> None:
        self._bytes.take(now_ms, wire_bytes)
