"""The dispatcher's side of its reapers: starts a local reapd, opens connections to it, and keeps what each was asked.

Invariant: a token is outstanding on at most one connection; an answer counts only on the connection that was asked.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shepherd.errors import PeerLost, PeerRefused
from shepherd.net import family, wire

START_S: Final = 20


class LocalReapd:
    """`reapd --listen unix:PATH` as our child: it ends when we do, even by kill -9. One that dies is started anew."""

    def __init__(self, directory: Path) -> None:
        """`directory` is for its sockets."""
        self._directory = directory
        self._started = 0
        self._start()

    def _start(self) -> None:
        self._started += 1
        self._path = self._directory / f"reapd.{self._started}"
        command = family.command("reapd", "--listen", f"unix:{self._path}", "--quiet")
        guard = family.dying_with_us()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=guard)
        self._served = False

    async def connect(self) -> wire.Peer:
        """A connection, as soon as it listens."""
        if self._served and self._process.poll() is not None:
            self._start()
        for _ in range(START_S * 50):
            if self._process.poll() is not None:
                raise PeerLost(f"reapd ended with status {self._process.returncode} before it listened at {self._path}")
            try:
                peer = await wire.connect(self._path)
                self._served = True
                return peer
            except PeerRefused:
                await asyncio.sleep(0.02)
        raise PeerLost(f"reapd did not listen at {self._path} within {START_S} s")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Reaper:
    """One connection: one worker process. It is never sent more than it gave us credits for; the rest waits here."""

    def __init__(self, number: int, peer: wire.Peer, credits: int) -> None:
        self.number, self._credits = number, credits
        self._peer = peer
        self._queue: asyncio.Queue[wire.Message] = asyncio.Queue()
        self._held_back: deque[tuple[int, list[wire.Message]]] = deque()
        self._unanswered: set[int] = set()

    @classmethod
    async def greet(cls, number: int, peer: wire.Peer, hello: wire.Hello) -> Reaper:
        await peer.send(hello)
        answer = await peer.receive()
        if isinstance(answer, wire.Bye):
            raise PeerRefused(f"the reaper refused us: {answer.why}")
        if not isinstance(answer, wire.Welcome) or answer.version != wire.VERSION:
            raise PeerRefused("the reaper did not answer HELLO with a WELCOME of our version")
        return cls(number, peer, answer.credits)

    @property
    def free(self) -> int:
        return self._credits - len(self._unanswered) - len(self._held_back)

    @property
    def outstanding(self) -> set[int]:
        """The tokens that it has been given, or will be."""
        return self._unanswered | {token for token, _messages in self._held_back}

    def ask(self, token: int, *messages: wire.Message) -> None:
        """Send a request that will be answered, and before it what the reaper must know."""
        self._held_back.append((token, list(messages)))
        self._send_on()

    def is_answer(self, token: int) -> bool:
        """Whether it was asked this; if so, it has now answered."""
        if token not in self._unanswered:
            return False
        self._unanswered.discard(token)
        self._send_on()
        return True

    def forget(self, token: int) -> None:
        """A request whose answer will not be waited for any longer; if it was not sent yet, it never will be."""
        self._unanswered.discard(token)
        self._held_back = deque(entry for entry in self._held_back if entry[0] != token)

    def _send_on(self) -> None:
        while self._held_back and len(self._unanswered) < self._credits:
            token, messages = self._held_back.popleft()
            self._unanswered.add(token)
            for message in messages:
                self._queue.put_nowait(message)

    async def serve(self, handle: Callable[[Reaper, wire.Message], None]) -> None:
        """Send what is queued and hand over what arrives, until the connection ends: then PeerLost."""
        sender = asyncio.create_task(self._send())
        try:
            async for message in self._peer.messages():
                handle(self, message)
            raise PeerLost(f"reaper {self.number} closed its connection")
        finally:
            sender.cancel()

    async def _send(self) -> None:
        while True:
            await self._peer.send(await self._queue.get())

    async def close(self) -> None:
        await self._peer.close("the reap is over")
