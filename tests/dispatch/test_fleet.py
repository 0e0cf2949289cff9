"""The dispatcher's connections to real reapd processes: lost, replaced, refused, silent."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shepherd.addresses import UnixAddress
from shepherd.clock import steady_clock_ms
from shepherd.dispatch import fleet
from shepherd.dispatch.fleet import LONGEST_PAUSE_S, Events, Fleet, ReaperPlace
from shepherd.dispatch.reaper_sources import LocalReapd, UnixSource
from shepherd.dispatch.reapers import MOST_CLOCK_PINGS, Reaper, ReaperSource
from shepherd.errors import NoSpace, PeerLost, PeerRefused
from shepherd.wire import messages as wire
from tests.support.driver import SITE, greeting, run
from tests.support.origin import Origin
from tests.support.reaping import answering_reapd
from tests.support.relay import Relay, relaying
from tests.support.waiting import PATIENCE_S

ORIGIN = Origin(1, {})


@contextlib.contextmanager
def reapd(path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that listens at the path, whatever an earlier one has left there."""
    path.unlink(missing_ok=True)
    with answering_reapd(path, *options) as process:
        yield process


def source(path: Path) -> UnixSource:
    return UnixSource(UnixAddress(path))


class NoLocal:
    """A local reapd that cannot be had."""

    name = "none"

    async def connect(self) -> wire.Peer:
        raise PeerLost("there is no local reaper in this test")

    def stop(self) -> None:
        pass


@dataclass
class Crew:
    """A fleet and its events; every request is a look-up, which contacts no server."""

    fleet: Fleet
    heard: list[int] = field(default_factory=list)
    lost: list[Reaper] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def events(self) -> Events:
        return Events(self._handle, self.lost.append, lambda _home, tokens: self.killed.update(tokens), self.wake.set)

    def _handle(self, reaper: Reaper, message: wire.Message) -> None:
        assert isinstance(message, wire.Resolved) and reaper.is_answer(message.token)
        self.heard.append(message.token)
        self.numbers.add(reaper.number)
        self.wake.set()

    def ask(self, reaper: Reaper, token: int) -> None:
        reaper.ask(token, wire.Resolve(token, SITE, "http://a.example"))

    async def until(self, done: Any, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                self.fleet.check()
                self.wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), 0.05)


@contextlib.asynccontextmanager
async def crew(
    sources: list[UnixSource], each: int = 1, local: ReaperSource | None = None, silence_s: float = 30.0
) -> AsyncIterator[Crew]:
    hello = structs.replace(greeting(ORIGIN), silence_ms=round(silence_s * 1000))
    fleet = Fleet(sources, local or NoLocal(), each, hello, steady_clock_ms())
    made = Crew(fleet)
    try:
        await fleet.start(made.events())
        yield made
    finally:
        await fleet.close()


def test_lost_reaper_is_connected_again_while_the_other_continues(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    async def work() -> None:
        with contextlib.ExitStack() as stack:
            doomed = stack.enter_context(reapd(a))
            stack.enter_context(reapd(b))
            async with crew([source(a), source(b)]) as one:
                await one.until(lambda: len(one.fleet.up) == 2)
                doomed.kill()
                await one.until(lambda: len(one.fleet.up) == 1)
                [left] = one.fleet.up
                for token in range(1, 50):
                    one.ask(left, token)
                await one.until(lambda: len(one.heard) == 49)
                doomed.wait()
                stack.enter_context(reapd(a))
                await one.until(lambda: len(one.fleet.up) == 2)
                assert len(one.lost) == 1
                assert one.fleet.for_server(0) is not one.fleet.for_server(1)  # each server has its place again

    run(work())


def test_worker_that_is_recycled_loses_and_delays_nothing(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        with reapd(path, "--recycle", "20", "--workers", "1"):
            async with crew([source(path)]) as one:
                token = 0
                while token < 300:
                    await one.until(lambda: one.fleet.free > 0)
                    token += 1
                    one.ask(one.fleet.freest(), token)
                    if token % 7 == 0:
                        await asyncio.sleep(0.01)
                await one.until(lambda: len(one.heard) == 300)
                assert sorted(one.heard) == list(range(1, 301))
                assert one.lost == []
                assert len(one.numbers) > 2  # of connections: at least two workers were replaced

    run(work())


def test_local_reaper_replaces_unreachable_ones_until_one_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        async with crew([source(path)], local=LocalReapd("--workers=1")) as one:
            assert len(one.fleet.up) == 1
            one.ask(one.fleet.freest(), 1)
            await one.until(lambda: one.heard == [1])
            with reapd(path):
                await one.until(lambda: len(one.fleet.up) == 2, 40)

    run(work())


def test_reaper_lost_for_good_in_mid_reap_is_replaced_by_a_local_one(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        with contextlib.ExitStack() as stack:
            process = stack.enter_context(reapd(path))
            async with crew([source(path)], local=LocalReapd("--workers=1")) as one:
                first = one.fleet.freest()
                process.kill()
                await one.until(lambda: bool(one.fleet.up) and one.fleet.up != [first])
                assert one.lost == [first]

    run(work())


def test_local_reaper_that_is_killed_before_it_takes_a_connection_ends_the_reap() -> None:
    async def main() -> None:
        local = LocalReapd("--user", "root")
        connecting = asyncio.create_task(local.connect())
        try:
            while local.pid is None:
                await asyncio.sleep(0)
            os.kill(local.pid, signal.SIGKILL)
            peer = await connecting
            await peer.close()
        finally:
            local.stop()

    run(main())


def test_refusal_by_all_reapers_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        with reapd(path):
            hello = structs.replace(greeting(ORIGIN), version=99)
            fleet = Fleet([source(path)], LocalReapd(), 1, hello, steady_clock_ms())
            with pytest.raises(PeerRefused, match="version 99"):
                await fleet.start(Crew(fleet).events())
            await fleet.close()

    run(work())


def test_no_reaper_at_all_is_a_lost_peer(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(PeerLost, match="no local reaper"):
            async with crew([source(tmp_path / "none")]):
                pass

    run(work())


@pytest.mark.parametrize("direction", ["to", "back", "both"])
def test_partition_is_noticed_and_healed(tmp_path: Path, direction: str) -> None:
    """Nothing is reset: bytes simply no longer come through, one way or both."""
    front, behind = tmp_path / "front", tmp_path / "behind"

    async def work() -> None:
        with reapd(behind, "--workers", "4"), relaying(front, Relay(behind)) as relay:
            async with crew([source(front)], silence_s=1.0) as one:
                first = one.fleet.freest()
                for gate in {"to": [relay.to], "back": [relay.back], "both": [relay.to, relay.back]}[direction]:
                    gate.clear()
                one.ask(first, 1)
                await one.until(lambda: one.lost == [first])
                assert first.outstanding == {1}
                relay.to.set()
                relay.back.set()
                await one.until(lambda: one.fleet.up != [])
                one.ask(one.fleet.freest(), 2)
                await one.until(lambda: 2 in one.heard)
                assert one.heard == [2]  # the late answer belongs to a connection that is gone

    run(work())


def test_reaper_that_only_idles_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        with reapd(path):
            async with crew([source(path)], silence_s=2.0) as one:
                await asyncio.sleep(5)  # time for two silences
                assert one.lost == []

    run(work())


def test_stopped_worker_is_lost_and_another_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    async def work() -> None:
        with reapd(path, "--workers", "2"):
            async with crew([source(path)], silence_s=1.0) as one:
                await one.until(lambda: len(children(path)) == 1)  # whoever only looked whether it listens is gone
                pids = [int(child) for child in children(path)]
                first = one.fleet.freest()
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                await one.until(lambda: one.lost == [first])
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                await one.until(lambda: one.fleet.up != [])

    run(work())


def children(path: Path) -> list[str]:
    """The workers of the reapd that listens at a path."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and f"unix:{path}".encode() in (entry / "cmdline").read_bytes():
                found = (entry / "task" / entry.name / "children").read_text().split()
                if found:
                    return found
    return []


def test_reap_without_any_reaper_for_long_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reapd"
    monkeypatch.setattr(fleet, "GIVE_UP_S", 1.0)

    async def work() -> None:
        with contextlib.ExitStack() as stack:
            process = stack.enter_context(reapd(path))
            async with crew([source(path)]) as one:
                process.kill()
                with pytest.raises(PeerLost, match="no reaper could be had for"):
                    await one.until(lambda: False)

    run(work())


def test_failure_of_the_dispatcher_itself_is_no_lost_reaper(tmp_path: Path) -> None:
    path = tmp_path / "reapd"

    def full(reaper: Reaper, message: wire.Message) -> None:
        raise NoSpace("the disk is full")

    async def work() -> None:
        with reapd(path):
            made = Fleet([source(path)], NoLocal(), 1, greeting(ORIGIN), steady_clock_ms())
            told = Crew(made)
            await made.start(dataclasses.replace(told.events(), on_message=full))
            told.ask(made.freest(), 1)
            with pytest.raises(NoSpace):
                await told.until(lambda: False)
            assert told.lost == []
            await made.close()

    run(work())


def test_local_reaper_that_cannot_be_started_is_an_error() -> None:
    class NoProcesses(NoLocal):
        async def connect(self) -> wire.Peer:
            raise BlockingIOError("no more processes")

    async def work() -> None:
        made = Fleet([], NoProcesses(), 1, greeting(ORIGIN), steady_clock_ms())
        try:
            with pytest.raises(BlockingIOError):
                await asyncio.wait_for(made.start(Crew(made).events()), PATIENCE_S)
        finally:
            await made.close()

    run(work())


def test_pause_before_the_next_attempt_doubles_up_to_a_bound() -> None:
    pauses = [ReaperPlace(NoLocal(), failures=failures).pause_s() for failures in range(12)]
    assert pauses[:5] == [0.0, 0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert sorted(pauses) == pauses


def test_reaper_that_claims_many_credits_gets_no_more_than_others() -> None:
    async def one() -> int:
        ours, theirs = socket.socketpair()
        dispatcher, boaster = await wire.adopt(ours), await wire.adopt(theirs)
        await boaster.send(wire.Welcome(wire.VERSION, 1, (1 << 32) - 1, []))
        for _ in range(MOST_CLOCK_PINGS):
            await boaster.send(wire.Ping(0, [], 0))
        hello = greeting(ORIGIN, settings={"in_flight": 7})
        reaper = await Reaper.greet(0, dispatcher, hello, steady_clock_ms())
        await dispatcher.close()
        await boaster.close()
        return reaper.free

    assert run(one()) == 7
