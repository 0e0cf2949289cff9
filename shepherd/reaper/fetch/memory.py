"""How many bytes of bodies one worker holds: those that arrive, and those that are not answered yet.

Each exchange has a Hold. While it is running it takes bytes as they come; once it has ended it keeps them until the answer is
sent. Where the limit is reached, running exchanges are paused, which makes their servers wait; before it is reached, at three
quarters, no new ones begin.

It cannot come to a standstill: what has ended needs nothing more and is answered sooner or later; when nothing that has ended is
left, one of those that are paused is favoured and may take what it needs, whatever the others hold. There is no other before it
has ended and been answered. So at most the limit and one body are held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

STEP_BYTES: Final = 64 * 1024  # what one exchange that goes on takes before it asks again


class Memory:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._running: set[Hold] = set()
        self._paused: dict[Hold, Callable[[], None]] = {}  # who was paused first stands first
        self._favoured: Hold | None = None
        self._ended_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.held = 0
        self.peak = 0

    @property
    def has_room(self) -> bool:
        """Whether another exchange may begin."""
        return not self.held or self.held < self._limit - self._limit // 4

    async def room(self) -> None:
        """Wait until another exchange may begin."""
        while not self.has_room:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._changed()  # it was this one's turn, so it is now the next one's
                raise

    def hold(self) -> Hold:
        return Hold(self)

    def take(self, hold: Hold, size: int) -> bool:
        """For a running exchange: whether it may hold so many bytes more; if so, it does."""
        held = self.held + size
        if held > self._limit and self._favoured is not hold:
            return False
        hold.size += size
        self.held = held
        if held > self.peak:
            self.peak = held
        return True

    def begin(self, hold: Hold) -> None:
        self._running.add(hold)

    def pause(self, hold: Hold, resume: Callable[[], None]) -> None:
        """`resume` is called once, when it is worth another try: it must not try within the call."""
        self._paused[hold] = resume
        self._changed()

    def end(self, hold: Hold) -> None:
        """It takes nothing more; what it has is kept."""
        if hold in self._running:
            self._running.remove(hold)
            self._paused.pop(hold, None)
            if self._favoured is hold:
                self._favoured = None
            self._ended_bytes += hold.size
            self._changed()

    def change(self, hold: Hold, size: int) -> None:
        grown = size - hold.size
        if not grown:
            return
        hold.size = size
        self.held += grown
        self.peak = max(self.peak, self.held)
        if hold not in self._running:
            self._ended_bytes += grown
        if grown < 0:
            self._changed()

    def _changed(self) -> None:
        """Let go on whom there is room for, or one if nobody else will make room."""
        steps = max(0, self._limit - self.held) // STEP_BYTES
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
    """The bytes of one exchange. To be released, whatever happens: it is a context."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0

    def begin(self) -> None:
        self._memory.begin(self)

    def take(self, size: int) -> bool:
        """Whether so many more bytes may be held; if so, they are."""
        return self._memory.take(self, size)

    def pause(self, resume: Callable[[], None]) -> None:
        self._memory.pause(self, resume)

    def end(self, size: int) -> None:
        """The exchange is over, and so many bytes are left of it."""
        self._memory.change(self, size)
        self._memory.end(self)

    def resize(self, size: int) -> None:
        """What is held now is something else, as the bucket that was made of a body."""
        self._memory.change(self, size)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(0)
