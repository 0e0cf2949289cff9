"""How much one client may ask for: requests and bytes in a second, requests at a time. Threads use it, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shepherd.config import Serve
from shepherd.rate import TokenBucket

Clock = Callable[[], float]
MOST_STRANGERS: Final = 4_096


class Rate:
    """So many in a second, and so many at once after a pause."""

    def __init__(self, per_s: float, at_once: float, clock: Clock = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._bucket, self._turn = TokenBucket(per_s, clock() * 1000, at_once), threading.Lock()

    def take(self, count: float) -> float:
        """Take so many, and say how many seconds to wait until they are there."""
        with self._turn:
            now_ms = self._clock() * 1000
            self._bucket.take(now_ms, count)
            return self._wait_s(self._bucket.missing(now_ms, 0.0))

    def give_back(self, count: float) -> None:
        """Of what was taken and not used."""
        self.take(-count)

    def try_take(self, count: float = 1) -> float:
        """Take so many if they are there, and say 0; else how many seconds it would take."""
        with self._turn:
            now_ms = self._clock() * 1000
            missing = self._bucket.missing(now_ms, count)
            if not missing:
                self._bucket.take(now_ms, count)
            return self._wait_s(missing)

    def _wait_s(self, missing: float) -> float:
        return missing / self._per_s if missing else 0.0

    @property
    def portion(self) -> int:
        """As many as should be taken at a time, so that they come evenly; 0 = any number."""
        return max(int(self._per_s / 8), 1) if self._per_s else 0


@dataclass
class Allowance:
    """One client's."""

    requests: Rate
    bytes: Rate
    under_way: int = 0


@dataclass
class ClientLimits:
    settings: Serve
    _clients: dict[str, Allowance] = field(default_factory=dict)
    _strangers: dict[str, Allowance] = field(default_factory=dict)  # by network, who asked last at the end

    def of(self, name: str) -> Allowance:
        if name not in self._clients:
            self._clients[name] = self._new()
        return self._clients[name]

    def of_stranger(self, network: str) -> Allowance:
        """Whoever has no token that is known. Of too many, those are forgotten that have asked for nothing for longest."""
        allowance = self._strangers.pop(network, None) or self._new()
        self._strangers[network] = allowance
        if len(self._strangers) > MOST_STRANGERS:
            idle = next((name for name, stranger in self._strangers.items() if not stranger.under_way), network)
            del self._strangers[idle]
        return allowance

    def _new(self) -> Allowance:
        requests, bytes_per_s = self.settings.requests_per_s, float(self.settings.bytes_per_s)
        return Allowance(Rate(requests, max(2 * requests, 1)), Rate(bytes_per_s, bytes_per_s))
