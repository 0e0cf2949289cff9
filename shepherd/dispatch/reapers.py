"""The dispatcher's side of one reaper: where its connections come from, and what was asked on each of them.

Invariant: a token is outstanding on at most one connection; an answer counts only on the connection that was asked.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from shepherd.errors import PeerLost, PeerRefused
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.dispatch")
GREETING_S: Final = 30.0
PINGS: Final = 3  # in the time after which silence counts
QUICK_MS: Final = 100  # in which a PING is sent back where nothing delays it
MOST_CLOCK_PINGS: Final = 6
MOST_HELD_BYTES: Final = 64 * 1024 * 1024  # of answers of one connection that nobody has worked on yet


class ReaperSource(Protocol):
    """Where connections to one reaper are had."""

    @property
    def name(self) -> str: ...

    async def connect(self) -> wire.Peer:
        """A new connection; PeerLost or PeerRefused if there is none to be had now."""

    def stop(self) -> None:
        """No more connections are wanted."""


class Reaper:
    """One connection: one worker process. It is never sent more than it gave us credits for; the rest waits here."""

    def __init__(
        self, number: int, peer: wire.Peer, credits: int, silence_s: float, killed: frozenset[int] = frozenset(), home: str = ""
    ) -> None:
        self.number, self._credits, self._silence_s = number, credits, silence_s
        self.home = home  # the name of the source it was had from
        self.killed = killed  # tokens of this reap at whose pages an earlier worker has died
        self.answered = 0
        self.leaving = ""  # why it takes no more requests
        self._peer = peer
        self._queue: asyncio.Queue[wire.Message] = asyncio.Queue()
        self._held_back: deque[tuple[int, list[wire.Message]]] = deque()
        self._unanswered: set[int] = set()
        self._unrequested = 0  # messages
        self._held_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @classmethod
    async def greet(cls, number: int, peer: wire.Peer, hello: wire.Hello, clock_ms: Callable[[], int], home: str = "") -> Reaper:
        """Say HELLO, and at its WELCOME show it our clock."""
        try:
            async with asyncio.timeout(GREETING_S):
                await peer.send(hello)
                answer = await peer.receive()
                welcome = isinstance(answer, wire.Welcome) and answer.version == wire.VERSION
                killed = await _show_clock(peer, clock_ms) if welcome else frozenset()
        except TimeoutError:
            raise PeerLost(f"the reaper did not greet us within {GREETING_S:.0f} s") from None
        except PeerLost as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise PeerRefused(f"the reaper does not accept our certificate: {error.__cause__}") from error
            raise
        if answer is None and not peer.certificate:
            raise PeerLost("the reaper closed the connection before it had greeted us")
        if answer is None:  # with TLS 1.3 that is how we hear, if at all, that our certificate was not accepted
            raise PeerRefused("the reaper closed the connection at our greeting; it may not accept our key, and its log says why")
        if isinstance(answer, wire.Bye):
            raise PeerRefused(f"the reaper refused us: {answer.why}")
        if not isinstance(answer, wire.Welcome) or not welcome:
            raise PeerRefused("the reaper did not answer HELLO with a WELCOME of our version")
        most = hello.settings.get("in_flight")
        credits = min(answer.credits, most) if isinstance(most, int) else answer.credits  # a boaster must not draw all to itself
        return cls(number, peer, credits, hello.silence_ms / 1000, frozenset(answer.killed) | killed, home)

    @property
    def free(self) -> int:
        """How many more requests it takes now."""
        if self.leaving:
            return 0
        return self._credits - len(self._unanswered) - len(self._held_back)

    @property
    def outstanding(self) -> set[int]:
        """The tokens that it has been given, or will be."""
        return self._unanswered | {token for token, _messages in self._held_back}

    def ask(self, token: int, *messages: wire.Message) -> None:
        """Send a request that will be answered, and before it what the reaper must know."""
        self._held_back.append((token, list(messages)))
        self._send_on()

    def has(self, token: int) -> bool:
        """Whether it was asked this, and has not answered."""
        return token in self._unanswered

    def is_answer(self, token: int) -> bool:
        """Whether it was asked this; if so, it has now answered."""
        if token not in self._unanswered:
            return False
        self._unanswered.discard(token)
        self.answered += 1
        self._send_on()
        return True

    def forget(self, token: int) -> None:
        """A request whose answer will not be waited for any longer; if it was not sent yet, it never will be."""
        self._unanswered.discard(token)
        self._held_back = deque(entry for entry in self._held_back if entry[0] != token)

    def report_unrequested(self, message: wire.Message) -> None:
        """A message that nobody asked for; a reaper that sends nothing else must not fill the log."""
        self._unrequested += 1
        if self._unrequested.bit_count() == 1:
            LOG.warning(
                "reaper %d sent a %s that was not requested, %d so far", self.number, type(message).__name__, self._unrequested
            )

    def hold(self, size: int) -> None:
        """An answer of so many bytes waits for the dispatcher; while too many do, nothing more is read from this reaper."""
        self._held_bytes += size
        if self._held_bytes > MOST_HELD_BYTES:
            self._has_room.clear()

    def release(self, size: int) -> None:
        """One that was held has been worked on."""
        self._held_bytes -= size
        if self._held_bytes <= MOST_HELD_BYTES:
            self._has_room.set()

    def _send_on(self) -> None:
        while self._held_back and len(self._unanswered) < self._credits:
            token, messages = self._held_back.popleft()
            self._unanswered.add(token)
            for message in messages:
                self._queue.put_nowait(message)

    async def serve(
        self,
        handle: Callable[[Reaper, wire.Message], None],
        leaving: Callable[[], None],
        killed: Callable[[str, frozenset[int]], None],
    ) -> None:
        """Send what is queued and hand over what arrives, until the connection ends.

        That is in good order, and this returns, if the worker was leaving and has answered all it was asked; else PeerLost.
        `leaving` is called when it begins to leave, `killed` with tokens at whose pages other workers of its reaper have died.
        """
        tasks = [asyncio.create_task(work) for work in (self._send(), self._ping(), self._peer.cut_if_silent(self._silence_s))]
        try:
            async for message in self._peer.messages():
                if isinstance(message, wire.Leaving):
                    self.leaving = message.why or "it did not say why"
                    leaving()
                elif not isinstance(message, wire.Ping):
                    handle(self, message)
                elif message.killed:
                    killed(self.home, frozenset(message.killed))
                if self.leaving and not self.outstanding:
                    await self._peer.close("thank you")
                    return
                await self._has_room.wait()
            raise PeerLost("it closed its connection")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            await self._peer.send(await self._queue.get())

    async def _ping(self) -> None:
        """It answers, so that both see signs of life, whatever else there is to do."""
        for number in itertools.count(1):
            await asyncio.sleep(self._silence_s / PINGS)
            self._queue.put_nowait(wire.Ping(number, [], 0))

    async def close(self) -> None:
        await self._peer.close("the reap is over")

    async def drop(self) -> None:
        """Close what is lost already."""
        await self._peer.close()


async def _show_clock(peer: wire.Peer, clock_ms: Callable[[], int]) -> frozenset[int]:
    """Send PINGs until the worker can tell our clock well; the tokens of killing pages that it sends back with them.

    It takes the clock to be ahead by as long as its last word and our PING after it were on their way. So it knows it well once
    two PINGs in a row came back quickly; on a long way that is never, and then the best of some will do.
    """
    killed: frozenset[int] = frozenset()
    was_quick = False
    for number in range(MOST_CLOCK_PINGS):
        begin_ms = clock_ms()
        await peer.send(wire.Ping(number, [], begin_ms))
        echo = await peer.receive()
        if not isinstance(echo, wire.Ping):
            raise PeerLost("the reaper did not send back our PING")
        killed |= frozenset(echo.killed)
        quick = clock_ms() - begin_ms <= QUICK_MS
        if quick and was_quick:
            break
        was_quick = quick
    return killed
