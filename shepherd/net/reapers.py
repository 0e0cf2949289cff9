"""The dispatcher's side of one reaper: a local reapd and connections to it, and what was asked on each connection.

Invariant: a token is outstanding on at most one connection; an answer counts only on the connection that was asked.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from typing import Final

from shepherd.errors import PeerLost, PeerRefused
from shepherd.net import family, wire

START_S: Final = 20


class LocalReapd:
    """A reapd as our child: it ends when we do, even by kill -9. One that dies is started anew.

    Connections are pairs of sockets, of which it is handed one end: they have no name in any directory.
    """

    name = "the local reaper"

    def __init__(self) -> None:
        self._taking = asyncio.Lock()  # answers to what we hand over come one after the other
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                family.command("reapd", "--listen", f"fd:{theirs.fileno()}", "--quiet"),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                preexec_fn=family.dying_with_us(),
            )
        return self._process

    async def connect(self) -> wire.Peer:
        """A connection, as soon as it takes one."""
        async with self._taking:
            process = self._process or self._start()
            if process.poll() is not None:
                self._control.close()
                process = self._start()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    await self._hand_over(theirs, process)
            except BaseException:
                ours.close()
                raise
            ours.setblocking(False)
            return await wire.adopt(ours)

    async def _hand_over(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        try:
            socket.send_fds(self._control, [b"+"], [connection.fileno()])
            taken = await asyncio.wait_for(loop.sock_recv(self._control, 1), START_S)
        except TimeoutError:
            raise PeerLost(f"reapd took no connection within {START_S} s") from None
        except OSError:  # it has ended, and with it the other end of the socket
            taken = b""
        if not taken:
            raise PeerLost(f"reapd ended with status {process.wait(START_S)} before it took a connection")

    def stop(self) -> None:
        if self._process is None:
            return
        self._control.close()
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
        self.answered = 0
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
        self.answered += 1
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

    async def drop(self) -> None:
        """Close what is lost already."""
        await self._peer.close()
