"""The dispatcher's connections to its reapers, kept up: who connects, who is up, and what follows when one is lost.

Each reaper has a fixed number of places, one connection each. A place that is lost is connected again in the background, with a
pause that doubles up to a bound, while the others go on; one whose worker leaves in good order gets a new connection at once, and
the old one is served until it has answered everything. Where none of the configured reapers can be reached, a local one takes
their part. What was asked on a lost connection is not ours to settle: its leases stay until their deadlines.

Invariant: a place has at most one connection that takes requests; `up` has the connections of all that have one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shepherd.dispatch.log_throttle import LogThrottle
from shepherd.dispatch.reapers import Reaper, ReaperSource
from shepherd.errors import PeerLost, PeerRefused
from shepherd.wire import messages as wire
from shepherd.wire.hosts import needs_dns

LOG = logging.getLogger("shepherd.dispatch")
GIVE_UP_S: Final = 60.0  # without any reaper, and the reap ends
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
NUMBERS: Final = 1 << 16  # a connection's number has two bytes in the journal


@dataclass(frozen=True)
class Events:
    """What the fleet calls its dispatcher for."""

    on_message: Callable[[Reaper, wire.Message], None]  # what a reaper says
    on_lost: Callable[[Reaper], None]  # it is gone, and what it was asked is not answered
    on_killed: Callable[[str, frozenset[int]], None]  # workers of this source have died, it says, at the pages of these tokens
    wake: Callable[[], object]  # a new one is up, or `check` has news


@dataclass(eq=False)
class ReaperPlace:
    """One connection that is wanted, and the one there is."""

    source: ReaperSource
    reaper: Reaper | None = None
    failures: int = 0  # in a row: attempts, and connections that never answered anything
    error: PeerLost | PeerRefused | None = None  # the last one

    def pause_s(self) -> float:
        return min(FIRST_PAUSE_S * 2.0 ** (self.failures - 1), LONGEST_PAUSE_S) if self.failures else 0.0


class Fleet:
    """`each` connections to each of the sources, or to the `local` one where there are none, or none that answers."""

    def __init__(
        self, sources: Sequence[ReaperSource], local: ReaperSource, each: int, hello: wire.Hello, clock_ms: Callable[[], int]
    ) -> None:
        self._sources, self._local, self._each, self._hello = list(sources), local, each, hello
        self._clock = clock_ms
        self._places: list[ReaperPlace] = []
        self._log_throttle = LogThrottle()
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self.up: list[Reaper] = []
        self._leaving: list[Reaper] = []
        self._changed = asyncio.Event()
        self._started = False
        self._down_since_s: float | None = None
        self._broken: BaseException | None = None

    async def start(self, events: Events) -> None:
        """Connect to all, and return as soon as one is up; an error if none can be had. If all refuse us, that is the error."""
        self._events = events
        self._down_since_s = asyncio.get_running_loop().time()
        for source in self._sources or [self._local]:
            self._want(source)
        while not self.up:
            self._changed.clear()
            await self._changed.wait()
            self.check()
            if all(place.failures for place in self._places):
                if self._has_local() or all(isinstance(place.error, PeerRefused) for place in self._places):
                    raise self._last_error()
                self._fall_back()

    def check(self) -> None:
        """Raise what ended one of our tasks, if it was not the connection; or PeerLost if there has been no reaper for long."""
        if self._broken is not None:
            raise self._broken
        since, now = self._down_since_s, asyncio.get_running_loop().time()
        if since is not None and now - since > GIVE_UP_S:
            raise PeerLost(f"no reaper could be had for {now - since:.0f} s, the last with: {self._last_error()}")

    async def close(self) -> None:
        """End all connections in good order."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reaper in (*self.up, *self._leaving):
            await reaper.close()
        for source in {*self._sources, self._local}:
            source.stop()

    def needs_dns(self, host: str) -> bool:
        """Whether a reaper must ask name servers for this host, by the tables that it has of us."""
        hosts = self._hello.settings.get("hosts")
        return needs_dns(host, self._hello.static, hosts if isinstance(hosts, dict) else ())

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
        for reaper in (*self.up, *self._leaving):
            reaper.forget(token)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def _want(self, source: ReaperSource) -> None:
        places = [ReaperPlace(source) for _ in range(self._each)]
        self._places += places
        for place in places:
            self._spawn(self._keep(place))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """What ends a task of ours, other than a lost connection, ends the reap: nobody else would hear of it."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._tell()

    def _has_local(self) -> bool:
        return any(place.source is self._local for place in self._places)

    def _fall_back(self) -> None:
        LOG.warning("none of the reapers can be reached: a local one takes their part until one can")
        self._want(self._local)

    async def _keep(self, place: ReaperPlace) -> None:
        """Keep one place connected, for ever."""
        while True:
            await asyncio.sleep(place.pause_s())
            try:
                reaper = await self._connect(place)
            except (PeerLost, PeerRefused) as error:
                self._failed(place, error)
                continue
            empty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._set(place, reaper)
            self._log_throttle.settled(place.source.name)
            self._events.on_killed(reaper.home, reaper.killed)
            self._spawn(self._attend(place, reaper, empty))
            await empty

    async def _connect(self, place: ReaperPlace) -> Reaper:
        peer = await place.source.connect()
        try:
            return await Reaper.greet(next(self._numbers) % NUMBERS, peer, self._hello, self._clock, place.source.name)
        except BaseException:
            await peer.close()
            raise

    def _failed(self, place: ReaperPlace, error: PeerLost | PeerRefused) -> None:
        place.failures, place.error = place.failures + 1, error
        if self._log_throttle.due(place.source.name, str(error), asyncio.get_running_loop().time()):
            LOG.warning("%s: %s; it is tried again and again", place.source.name, error)
        if not self.up and self._started and not self._has_local() and all(place.failures for place in self._places):
            self._fall_back()
        self._tell()

    async def _attend(self, place: ReaperPlace, reaper: Reaper, empty: asyncio.Future[None]) -> None:
        """Serve one connection to its end. The place is empty when the worker begins to leave, or is gone."""

        def leave() -> None:
            LOG.info("%s: worker %d is replaced: %s", place.source.name, reaper.number, reaper.leaving)
            self._leaving.append(reaper)
            self._vacate(place, reaper, empty)

        try:
            await reaper.serve(self._events.on_message, leave, self._events.on_killed)
        except PeerLost as error:
            self._vacate(place, reaper, empty)
            place.error = error
            LOG.warning("%s: worker %d was lost: %s", place.source.name, reaper.number, error)
            self._events.on_lost(reaper)
            await reaper.drop()
        if reaper in self._leaving:
            self._leaving.remove(reaper)
        self._tell()

    def _vacate(self, place: ReaperPlace, reaper: Reaper, empty: asyncio.Future[None]) -> None:
        if place.reaper is reaper:
            place.failures = 0 if reaper.answered else place.failures + 1
            self._set(place, None)
            empty.set_result(None)

    def _set(self, place: ReaperPlace, reaper: Reaper | None) -> None:
        place.reaper = reaper
        self.up = [place.reaper for place in self._places if place.reaper is not None]
        self._started = self._started or bool(self.up)
        self._down_since_s = None if self.up else asyncio.get_running_loop().time()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._events.wake()

    def _last_error(self) -> PeerLost | PeerRefused:
        """What was wrong last, with the name of the source."""
        for place in reversed(self._places):
            if place.error:
                return type(place.error)(f"{place.source.name}: {place.error}")
        return PeerLost("no reaper has answered yet")
