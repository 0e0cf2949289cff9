"""The dispatcher's connections to its reapers, kept up: who connects, who is up, and what becomes of a lost one.

Each reaper has a fixed number of places, one connection each. A place that is lost is connected again in the background, with a
pause that doubles up to a bound, while the others go on. What was asked on a lost connection is not ours to settle: its leases
stay until their deadlines.

Invariant: a place has at most one connection that takes requests; `up` has the connections of all that have one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from shepherd.errors import PeerLost, PeerRefused
from shepherd.net import wire
from shepherd.net.reapers import Reaper

LOG = logging.getLogger("shepherd.dispatch")
GIVE_UP_S: Final = 60.0  # without any reaper, and the reap ends
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
NUMBERS: Final = 1 << 16  # a connection's number has two bytes in the journal

Handle: TypeAlias = Callable[[Reaper, wire.Message], None]


class Source(Protocol):
    """Where connections to one reaper are had."""

    @property
    def name(self) -> str: ...

    async def connect(self) -> wire.Peer:
        """A new connection; PeerLost or PeerRefused if there is none to be had now."""

    def stop(self) -> None:
        """No more connections are wanted."""


@dataclass(eq=False)
class Place:
    """One connection that is wanted, and the one there is."""

    source: Source
    reaper: Reaper | None = None
    failures: int = 0  # in a row: attempts, and connections that never answered anything
    error: PeerLost | PeerRefused | None = None  # the last one

    def pause_s(self) -> float:
        return min(FIRST_PAUSE_S * 2.0 ** (self.failures - 1), LONGEST_PAUSE_S) if self.failures else 0.0


class Fleet:
    """`each` connections to each of the sources."""

    def __init__(self, sources: Sequence[Source], each: int, hello: wire.Hello) -> None:
        self._sources, self._hello = list(sources), hello
        self._places = [Place(source) for source in sources for _ in range(each)]
        self._numbers = itertools.count()
        self._keepers: list[asyncio.Task[None]] = []
        self.up: list[Reaper] = []
        self._changed = asyncio.Event()
        self._down_since_s: float | None = None
        self._broken: BaseException | None = None

    async def start(self, handle: Handle, lost: Callable[[Reaper], None], wake: Callable[[], None]) -> None:
        """Connect to all, and return as soon as one is up.

        `handle` gets what reapers say, `lost` a reaper that is gone; `wake` is called when a new one is up or `check` has news.
        """
        self._handle, self._lost, self._wake = handle, lost, wake
        self._down_since_s = asyncio.get_running_loop().time()
        self._keepers = [asyncio.create_task(self._keep(place)) for place in self._places]
        while not self.up:
            self.check()
            if all(place.error for place in self._places):
                raise self._last_error()
            self._changed.clear()
            await self._changed.wait()

    def check(self) -> None:
        """Raise what ended a reaper's task, if it was not the connection; or PeerLost if there has been no reaper for long."""
        if self._broken is not None:
            raise self._broken
        since, now = self._down_since_s, asyncio.get_running_loop().time()
        if since is not None and now - since > GIVE_UP_S:
            raise PeerLost(f"no reaper could be had for {now - since:.0f} s, the last with: {self._last_error()}")

    async def close(self) -> None:
        """End all connections in good order."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for reaper in self.up:
            await reaper.close()
        for source in self._sources:
            source.stop()

    # --- who is up --------------------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """How many requests could be given out now."""
        return sum([max(reaper.free, 0) for reaper in self.up])

    def freest(self) -> Reaper:
        """One must be up."""
        return max(self.up, key=lambda reaper: reaper.free)

    def for_server(self, qkey: int) -> Reaper:
        """A queue key sticks to its place, while that is up and has room; one must be up."""
        reaper = self._places[qkey % len(self._places)].reaper
        return reaper if reaper is not None and reaper.free > 0 else self.freest()

    def forget(self, token: int) -> None:
        """A request whose answer is no longer waited for."""
        for reaper in self.up:
            reaper.forget(token)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    async def _keep(self, place: Place) -> None:
        """Keep one place connected, for ever."""
        try:
            while True:
                await asyncio.sleep(place.pause_s())
                try:
                    await self._serve(place)
                except (PeerLost, PeerRefused) as error:
                    place.error = error
                    LOG.warning("%s: a reaper was lost: %s", place.source.name, error)
                self._tell()
        except Exception as error:  # the dispatcher's own: a full disk, or a bug
            self._broken = error
            self._tell()

    async def _serve(self, place: Place) -> None:
        place.failures += 1
        peer = await place.source.connect()
        try:
            reaper = await Reaper.greet(next(self._numbers) % NUMBERS, peer, self._hello)
        except BaseException:
            with contextlib.suppress(asyncio.CancelledError):
                await peer.close()
            raise
        self._set(place, reaper)
        try:
            await reaper.serve(self._handle)
        except asyncio.CancelledError:  # we are closing, and say so to it
            raise
        except BaseException:
            place.failures = 0 if reaper.answered else place.failures
            self._set(place, None)
            self._lost(reaper)
            await reaper.drop()
            raise

    def _set(self, place: Place, reaper: Reaper | None) -> None:
        place.reaper = reaper
        self.up = [place.reaper for place in self._places if place.reaper is not None]
        self._down_since_s = None if self.up else asyncio.get_running_loop().time()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._wake()

    def _last_error(self) -> PeerLost | PeerRefused:
        return next((place.error for place in reversed(self._places) if place.error), PeerLost("no reaper has answered yet"))
