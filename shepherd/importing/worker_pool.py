"""Recorded answers worked on by a reapd of our own: the bytes of the web are touched in its confined workers alone.

Each connection is one worker with one answer at a time; so when a worker dies, the answer is known. It is sent to
another worker, to be worked on in a process of its own: a worker may have died of something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from shepherd.clock import steady_clock_ms
from shepherd.dispatch.reapers import Reaper, ReaperSource
from shepherd.errors import PeerLost
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.workshop")
SILENCE_MS: Final = 36_000_000  # nobody pings, and whoever reads the answers off a slow disk says nothing for a while


class WorkerConnection:
    """One worker."""

    def __init__(self, peer: wire.Peer) -> None:
        self._peer = peer
        self.leaving = False  # it is to be replaced

    async def ask(self, request: wire.Recorded) -> wire.FetchResult:
        await self._peer.send(request)
        async for message in self._peer.messages():
            if isinstance(message, wire.Leaving):
                self.leaving = True
            elif isinstance(message, wire.FetchResult):
                if message.token != request.token:
                    raise PeerLost("the worker answered something that it was not asked")
                return message
            elif not isinstance(message, wire.Ping | wire.Working):
                raise PeerLost(f"a worker does not send this {type(message).__name__.upper()}")
        raise PeerLost("the worker closed its connection")

    async def close(self) -> None:
        await self._peer.close("that was all")


class WorkerPool:
    """`places` workers of one reaper, each connected when it is first needed."""

    def __init__(self, source: ReaperSource, hello: wire.Hello, places: int) -> None:
        self._source, self._clock = source, steady_clock_ms()
        self._hello = replace(hello, silence_ms=SILENCE_MS)
        self._free: asyncio.Queue[WorkerConnection | None] = asyncio.Queue()
        for _ in range(places):
            self._free.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while not self._free.empty():
            connection = self._free.get_nowait()
            if connection is not None:
                await connection.close()
        self._source.stop()

    async def work_on(self, request: wire.Recorded) -> wire.FetchResult | None:
        """The result of a worker; None if the answer kills workers. PeerLost only where no worker can be started."""
        connection = await self._free.get()
        reusable: WorkerConnection | None = None
        try:
            for attempt in (request, replace(request, alone=True)):
                connection = connection or await self._connect()
                try:
                    result = await connection.ask(attempt)
                except PeerLost as error:
                    LOG.debug("%s: its worker is gone: %s", request.url, error)
                    await connection.close()
                    connection = None
                    continue
                reusable = connection
                return result
            return None
        finally:
            if reusable is not None and reusable.leaving:
                with contextlib.suppress(PeerLost):
                    await reusable.close()
                reusable = None
            self._free.put_nowait(reusable)

    async def _connect(self) -> WorkerConnection:
        peer = await self._source.connect()
        try:
            await Reaper.greet(0, peer, self._hello, self._clock)
        except BaseException:
            await peer.close()
            raise
        return WorkerConnection(peer)
