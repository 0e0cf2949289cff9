"""One reap from beginning to end: a local reapd, its workers, the dispatcher, the harvest and the signals that end it early."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from shepherd.config import Config
from shepherd.errors import NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.groups.memory import MemoryGroups
from shepherd.net import settings, sources, wire
from shepherd.net.clock import steady_clock_ms
from shepherd.net.dispatch import Dispatcher
from shepherd.net.fleet import Fleet
from shepherd.net.hosts import read_static
from shepherd.store import fsio, harvest, names
from shepherd.store.harvest import Harvest
from shepherd.store.state import State

LOG = logging.getLogger("shepherd.reap")
HARVEST: Final = "reap"
GRACE_MS: Final = 5_000  # a lease outlives its request's deadline, so that a slow answer is still an answer
Watch = Callable[[int], object]


@dataclass(frozen=True)
class Summary:
    why: str
    results: dict[str, int]
    left: int  # planned, but not reached
    stored_bytes: int
    links: int
    kept_links: int  # that were not contributed before in this reap

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.results.items())) or "no answers"
        links = f"{self.links} links, {self.kept_links} of them for the first time"
        return f"{self.why}: {counts}; {self.left} left; {links}; {self.stored_bytes} bytes stored"


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
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_reap(state, path, config, seconds, watch))


async def _reap(state: State, path: Path, config: Config, seconds: float, watch: Watch) -> Summary:
    if not config.identity.contact:
        LOG.warning("no contact address is set, so only loopback is asked: set contact in [identity] of shepherd.toml")
    filters = load_filter(config.filter_path)
    greeting = _hello(state, config, filters)
    lease_ms = round(config.fetch.timeout_s * 1000) + GRACE_MS
    groups = MemoryGroups(lease_ms=lease_ms, delay_ms=round(config.politeness.delay_s * 1000))
    written = Harvest(path, config.store.segment_bytes)
    try:
        fleet = Fleet(sources.configured(config), sources.local(config.reap), config.reap.workers, greeting)
        dispatcher = Dispatcher(state, written, groups, config, filters, fleet, steady_clock_ms(), watch)
        _listen(dispatcher)
        why = await dispatcher.run(seconds)
        dispatcher.end()
    finally:
        written.close()
    links = dispatcher.ledger.contributions
    results = dict(dispatcher.ledger.results)
    return Summary(why, results, dispatcher.left, written.stored_bytes, links.seen, links.kept)


def _hello(state: State, config: Config, filters: Filter) -> wire.Hello:
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
