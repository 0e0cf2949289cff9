"""One reap from beginning to end: a local reapd, its workers, the dispatcher, the harvest and the signals that end it early."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import uvloop

from shepherd.clock import read_clock, steady_clock_ms
from shepherd.config import Config
from shepherd.dispatch import reaper_sources as sources
from shepherd.dispatch.disk_budget import DiskBudget
from shepherd.dispatch.dispatcher import Dispatcher
from shepherd.dispatch.fleet import Fleet
from shepherd.dispatch.plan_source import PlanSource
from shepherd.dispatch.refreshes import Refreshes
from shepherd.dispatch.statistics import Figures
from shepherd.errors import NoSpace, NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.politeness import shared_contacts as shared
from shepherd.politeness.delays import default_delay_ms
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.politeness.shared_contacts import SharedContacts
from shepherd.store.disk import fsio, names
from shepherd.store.state import clock_note, harvest
from shepherd.store.state import contact_notes as contactnotes
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from shepherd.wire import messages as wire
from shepherd.wire import settings
from shepherd.wire.hosts import read_static

LOG = logging.getLogger("shepherd.reap")
HARVEST: Final = "reap"
GRACE_MS: Final = 5_000  # a lease outlives its request's deadline, so that a slow answer is still an answer
LOG_S: Final = 60


class Watch(Protocol):
    """Who shows how far a reap is."""

    def resumed(self, settled: int) -> object:
        """An interrupted run of this reap had settled so many of the plan."""

    def settled(self, more: int) -> object:
        """So many more of the plan are settled."""

    def show(self, figures: Figures) -> object:
        """Every second."""


@dataclass(frozen=True)
class Summary:
    why: str
    full: str  # what was full, if that ended it
    items_left: int  # planned, but not reached
    stored_bytes: int
    links: int
    kept_links: int  # that were not contributed before in this reap
    refreshes: int  # that operators asked for while it ran
    tally: dict[str, Any]
    servers: Iterator[dict[str, Any]]  # all that were contacted, to be read once

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.tally["results"].items()) or "no answers"
        links = f"{self.links} links, {self.kept_links} of them for the first time"
        return f"{self.why}: {counts}; {self.items_left} left; {links}; {self.stored_bytes} bytes stored"

    @property
    def figures(self) -> Figures:
        """How far it was at its end."""
        errors = sum(self.tally["errors"].values())
        return Figures(self.tally["pages"], self.tally["wire_bytes"], errors, 0, self.tally["seconds"])

    def report(self) -> dict[str, Any]:
        """What the log keeps of a reap."""
        hits = 1000 * (self.links - self.kept_links) // self.links if self.links else 0
        return {
            "why": self.why,
            **self.tally,
            "left": self.items_left,
            "stored_bytes": self.stored_bytes,
            "links": self.links,
            "kept_links": self.kept_links,
            "cache_hit_permille": hits,
            "refreshes": self.refreshes,
        }


def harvest_path(state: State) -> Path:
    """Where the harvest of this directory's reap is or will be."""
    if state.name.phase != "reap":
        raise NothingToDo(f"nothing is planned (the newest state is {state.name}); run shep-plan")
    path = state.path / names.HARVESTS / HARVEST
    if harvest.inspect(path).ended:
        raise NothingToDo(f"{path}: this reap has ended; run shep-cork")
    fsio.make_directory(path.parent)
    return path


def reap(state: State, path: Path, config: Config, seconds: float, watch: Watch) -> Summary:
    """Gather for at most so long; when this returns, the harvest has ended in good order."""
    room = DiskBudget(state, config.reap)
    if full := room.full(0):
        raise NoSpace(f"{full}; nothing was fetched")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_reap(state, path, config, seconds, room, watch))


async def _reap(state: State, path: Path, config: Config, seconds: float, room: DiskBudget, watch: Watch) -> Summary:
    if not config.identity.contact:
        LOG.warning("no contact address is set, so only loopback is asked: set contact in [identity] of shepherd.toml")
    filters, logs = load_filter(config.filter_path), state.path.parents[1] / names.LOGS
    greeting = hello(state, config, filters)
    lease_ms = round(config.fetch.timeout_s * 1000) + GRACE_MS
    groups = MemoryGroups(lease_ms=lease_ms, delay_ms=default_delay_ms(config.politeness))
    reading, clock, written = read_clock(), steady_clock_ms(), Harvest(path, config.store.segment_bytes)
    table: SharedContacts | None = None
    try:
        table = shared_contacts(config)
        fleet = Fleet(sources.configured(config), sources.local(config.reap), config.reap.workers, greeting, clock)
        plan = PlanSource(state.plan(), watch.settled, watch.resumed)
        refreshes = Refreshes(state, plan, filters)
        dispatcher = Dispatcher(state, written, groups, config, filters, fleet, clock, [plan, refreshes], table)
        dispatcher.heed(contactnotes.beside(state))
        if set_by_ms := reading.set_by_ms(clock_note.read_note(logs)):
            LOG.warning(
                "the clock was set by %+.1f s since the last reap: every server waits its full delay first", set_by_ms / 1000
            )
            dispatcher.forget_times()
        clock_note.write_note(logs, reading)
        _listen(dispatcher)
        attending = asyncio.create_task(_attend(dispatcher, written, room, watch, clock))
        attending.add_done_callback(lambda _: dispatcher.stop("the disk is not watched any more"))
        try:
            why = await dispatcher.run(seconds)
        finally:
            attending.cancel()
        dispatcher.end()
        if attending.done() and not attending.cancelled():
            attending.result()  # it never ends by itself: this raises
    finally:
        written.close()
        if table is not None:
            table.close()
    links, full = dispatcher.contributions, room.full(written.stored_bytes)
    tally, counts = (
        dispatcher.tally,
        (dispatcher.items_left, written.stored_bytes, links.link_count, links.new_link_count, refreshes.count),
    )
    return Summary(why, full if why == full else "", *counts, tally.report(clock()), tally.servers())


async def _attend(dispatcher: Dispatcher, written: Harvest, room: DiskBudget, watch: Watch, clock: Callable[[], int]) -> None:
    """Every second: show how far it is, and end it before the disk is full. Every minute: a line for the log."""
    for second in itertools.count(1):
        await asyncio.sleep(1)
        figures = dispatcher.tally.figures(clock())
        watch.show(figures)
        if second % LOG_S == 0:
            LOG.info("reap: %s", figures)
        if full := room.full(written.stored_bytes):
            dispatcher.stop(full)


def shared_contacts(config: Config) -> SharedContacts | None:
    """What the databases of this machine know of each other's contacts."""
    return shared.of_machine(config.shared_path, secrets.randbits(62) | 1, lambda: time.monotonic_ns() // 1_000_000)


def hello(state: State, config: Config, filters: Filter) -> wire.Hello:
    """How a dispatcher greets its reapers."""
    static = read_static(config.static_path) if config.static_path else {}
    return wire.Hello(
        version=wire.VERSION,
        session=secrets.randbits(64),
        silence_ms=round(config.reap.silence_s * 1000),
        key=state.control.key,
        state=state.number,
        agent=config.user_agent,
        robots_agent=config.identity.name,
        settings=settings.to_wire(config),
        filter=filters.text,
        filter_version=filters.version,
        static={host: list(place) for host, place in static.items()},
        allow=list(config.network.allow),
        anonymous=not config.identity.contact,
    )


def _listen(dispatcher: Dispatcher) -> None:
    """The first signal ends in good order, the second at once."""
    loop = asyncio.get_running_loop()

    def asked_to_stop() -> None:
        dispatcher.stop("asked to stop")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop)
