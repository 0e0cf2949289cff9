"""Who waits for a checkpoint of the dispatcher. Once no other can come nobody waits: all is durable, or it failed."""

from __future__ import annotations

import asyncio

Waiter = asyncio.Future[None]


class Waiters:
    def __init__(self) -> None:
        self._waiting: list[Waiter] = []
        self._has_ended = self._has_failed = False

    def add(self) -> Waiter:
        """Done by a checkpoint from here on; cancelled when none can come."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._has_failed:
            self.fail()
        elif self._has_ended:
            self.end()
        return waiter

    def now(self) -> list[Waiter]:
        """All that wait."""
        return list(self._waiting)

    def release(self, waiters: list[Waiter]) -> None:
        """What these wait for is durable."""
        for waiter in waiters:
            self._waiting.remove(waiter)
            if not waiter.done():
                waiter.set_result(None)

    def end(self) -> None:
        """All is durable, and nothing will be answered any more."""
        self._has_ended = True
        self.release(self.now())

    def fail(self) -> None:
        """There will be no checkpoint any more."""
        self._has_failed = True
        while self._waiting:
            self._waiting.pop().cancel()
