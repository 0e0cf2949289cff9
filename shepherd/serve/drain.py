"""How a server ends: what is under way may finish, what comes is sent away, and streams end where they can be continued.

Nothing is lost by it: a reader continues behind the last document that it has, a mirror behind its last byte, and whoever is
refused hears when to come again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from shepherd.serve.answers import Refused

LOOK_S: Final = 0.02
LEAVING: Final = Refused(503, "the server is about to end; ask again soon, it may be back", {"Retry-After": "2"})


class Drain:
    """The requests that are under way, by their connections, and whether the server is about to end."""

    def __init__(self) -> None:
        self._is_on = False
        self._under_way: set[object] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def is_on(self) -> bool:
        return self._is_on

    def enter(self, connection: object) -> None:
        self._under_way.add(connection)

    def leave(self, connection: object) -> None:
        """Its answer is sent, or nobody is there to get it."""
        self._under_way.discard(connection)

    async def run(self, limit_s: float) -> None:
        """Until nothing is under way, or so many seconds are over."""
        self._is_on, end_s = True, time.monotonic() + limit_s
        while self._under_way and time.monotonic() < end_s:
            await asyncio.sleep(LOOK_S)
