"""How many bytes of bodies one worker holds: those that arrive, and those that are not answered yet.

Each exchange has a Hold. While it is running it takes bytes as they come; once it has ended it keeps them until the answer is
sent. Where the limit is reached, running exchanges are paused, which makes their servers wait; before it is reached, at three
quarters, no new ones begin.

There is no deadlock: an exchange that has ended needs nothing more and is answered sooner or later. When none of those is left,
one paused exchange is favoured and may take what it needs, whatever the others hold. No other is favoured before it has ended
and been answered. So at most the limit and one body are held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

STEP_BYTES: Final = 64 * 1024  # what one resumed exchange takes before it has to ask again


class Memory:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._running: set[Hold] = set()
        self._paused: dict[Hold, Callable[[], None]] = {}  # in the order in which they were paused
        self._favoured: Hold | None = None
        self._ended_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.used_bytes = 0
        self.peak_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether another exchange may begin."""
        return not self.used_bytes or self.used_bytes < self._limit_bytes - self._limit_bytes // 4

    async def room(self) -> None:
        """Wait until another exchange may begin."""
        while not self.has_room:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._resume_waiting()  # it was this one's turn, so it is now the next one's
                raise

    def hold(self) -> Hold:
        return Hold(self)

    def take(self, hold: Hold, size_bytes: int) -> bool:
        """Let a running exchange hold so many more bytes, if there is room; returns whether there was."""
        used_bytes = self.used_bytes + size_bytes
        if used_bytes > self._limit_bytes and self._favoured is not hold:
            return False
        hold.size_bytes += size_bytes
        self.used_bytes = used_bytes
        if used_bytes > self.peak_bytes:
            self.peak_bytes = used_bytes
        return True

    def begin(self, hold: Hold) -> None:
        self._running.add(hold)

    def pause(self, hold: Hold, resume: Callable[[], None]) -> None:
        """`resume` is called once, when it is worth another try: it must not try within the call."""
        self._paused[hold] = resume
        self._resume_waiting()

    def end(self, hold: Hold) -> None:
        """The exchange takes nothing more; it keeps what it holds."""
        if hold in self._running:
            self._running.remove(hold)
            self._paused.pop(hold, None)
            if self._favoured is hold:
                self._favoured = None
            self._ended_bytes += hold.size_bytes
            self._resume_waiting()

    def change(self, hold: Hold, size_bytes: int) -> None:
        growth_bytes = size_bytes - hold.size_bytes
        if not growth_bytes:
            return
        hold.size_bytes = size_bytes
        self.used_bytes += growth_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        if hold not in self._running:
            self._ended_bytes += growth_bytes
        if growth_bytes < 0:
            self._resume_waiting()

    def _resume_waiting(self) -> None:
        """Resume the exchanges that there is room for, or one if no other will make room."""
        steps = max(0, self._limit_bytes - self.used_bytes) // STEP_BYTES
        if self._paused and not steps and self._favoured is None and not self._ended_bytes:
            self._favoured = next(iter(self._paused))
            steps = 1
        for hold in list(self._paused)[:steps]:
            self._paused.pop(hold)()
        while self._waiting and self.has_room:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


class Hold:
    """The bytes of one exchange. A context manager, so that they are released whatever happens."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size_bytes = 0

    def begin(self) -> None:
        self._memory.begin(self)

    def take(self, size_bytes: int) -> bool:
        """Hold so many more bytes, if there is room; returns whether there was."""
        return self._memory.take(self, size_bytes)

    def pause(self, resume: Callable[[], None]) -> None:
        self._memory.pause(self, resume)

    def end(self, size_bytes: int) -> None:
        """The exchange is over and keeps so many bytes."""
        self._memory.change(self, size_bytes)
        self._memory.end(self)

    def resize(self, size_bytes: int) -> None:
        """Hold another number of bytes from now on, as those of the bucket instead of its body."""
        self._memory.change(self, size_bytes)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(0)
