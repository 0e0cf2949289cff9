"""What the dispatcher tells the groups, in which order, and what may happen while it waits for them.

Real reapers and servers, as in test_dispatcher; of the engine every call is logged, and what happens during one is the test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from shepherd.config import Reap
from shepherd.dispatch.dispatcher import Dispatcher
from shepherd.dispatch.reapers import Reaper
from shepherd.formats.tables import Kind, Reason, Records
from shepherd.politeness.groups.engine import FetchEnd, FetchLease, Setting
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.wire import messages as wire
from tests.dispatch import test_dispatcher as driving
from tests.dispatch.test_dispatcher import Driven, driven
from tests.support.groups import LogEntry, WatchedGroups
from tests.support.origin import Origin

origins = driving.origins
GUARDED = "http://10.1.2.3/"  # at an address that may not be asked


def watched_groups(memory: MemoryGroups) -> WatchedGroups:
    return WatchedGroups(memory, seed=1)


@pytest.fixture(autouse=True)
def _distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "distance", watched_groups)


def engine_of(one: Driven) -> WatchedGroups:
    engine = one.dispatcher._groups
    assert isinstance(engine, WatchedGroups)
    return engine


async def until(one: Driven, condition: Callable[[], object]) -> None:
    """Or raise what has ended the dispatcher."""
    while not condition():
        if one.task.done():
            raise AssertionError(f"it has ended: {await one.task}")
        await asyncio.sleep(0.001)


def test_delay_of_a_group_is_set_before_its_items_are_added(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> list[LogEntry]:
        async with driven(tmp_path, origins) as one:
            one.source.put("http://a.example/0")
            await one.settled(1)
        return engine_of(one).log

    log = uvloop.run(drive())
    added = next(place for place, entry in enumerate(log) if entry.call == "add")
    changes = [entry.content for entry in log[:added] if entry.call == "change"]
    assert log[added].content.group in {change.key for change in changes if change.setting == Setting.DELAY}


def test_back_off_of_a_server_is_set_before_its_fetch_ends(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> list[LogEntry]:
        async with driven(tmp_path, origins) as one:
            one.source.put("http://c.example/storm0")
            await one.settled(1)
        return engine_of(one).log

    log = uvloop.run(drive())
    backs_off = [entry.call == "change" and entry.content.setting == Setting.BACK_OFF for entry in log]
    ends = [place for place, entry in enumerate(log) if entry.call == "release"]
    assert backs_off.index(True) < ends[-1]


def test_who_asks_while_answers_are_handled_waits_until_all_that_has_come_is_durable(
    tmp_path: Path, origins: list[Origin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a look-up comes while leases are released: it is handled in the next turn. Each turn has a checkpoint."""
    arrive, held_back = Dispatcher._on_message, list[tuple[Reaper, wire.Message]]()

    def hold_back(dispatcher: Dispatcher, reaper: Reaper, message: wire.Message) -> None:
        if isinstance(message, wire.Resolved) and message.reason == Reason.GUARD:
            held_back.append((reaper, message))
        else:
            arrive(dispatcher, reaper, message)

    monkeypatch.setattr(Dispatcher, "_on_message", hold_back)

    async def drive() -> Records:
        async with driven(tmp_path, origins, limits=Reap(checkpoint_s=0)) as one:
            asking: list[asyncio.Task[Records]] = []

            async def ask() -> None:
                async def durable() -> Records:
                    await one.dispatcher.checkpoint_soon()
                    return one.journalled()

                for reaper, message in held_back:
                    arrive(one.dispatcher, reaper, message)
                asking.append(asyncio.create_task(durable()))
                await asyncio.sleep(0)  # so that it begins

            one.source.put(GUARDED)
            await until(one, lambda: held_back)
            engine_of(one).on_release = ask
            one.source.put("http://a.example/0")
            await until(one, lambda: asking)
            records = await asking[0]
            await one.settled(2)
        return records

    records = uvloop.run(drive())
    assert Reason.GUARD in records["reason"][records["kind"] == Kind.PAGE].tolist()


def test_lease_that_comes_after_a_stop_is_not_used(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> tuple[list[FetchEnd], list[FetchLease], list[list[int]]]:
        async with driven(tmp_path, origins) as one:
            engine = engine_of(one)

            async def stop() -> None:
                one.dispatcher.stop("asked to stop")

            engine.on_take = stop
            one.source.put("http://a.example/0")
            await one.task
            leases = engine.logged("take")
            queued = await engine.drop_sites([lease.site for lease in leases])
        return engine.logged("release"), leases, queued

    ends, leases, queued = uvloop.run(drive())
    assert origins[0].urls() == []
    assert ends == [FetchEnd(lease.token, contacted=False) for lease in leases]
    assert queued == [[lease.item] for lease in leases], "it is for a later reap"


def test_lease_that_comes_when_no_reaper_is_left_is_kept_for_the_next(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> list[FetchEnd]:
        async with driven(tmp_path, origins) as one:
            engine, fleet = engine_of(one), one.dispatcher._fleet

            async def lose() -> None:
                await fleet.up[0].drop()
                while fleet.up:
                    await asyncio.sleep(0)

            engine.on_take = lose
            one.source.put("http://a.example/0")
            await until(one, lambda: one.source.outcomes)
        return engine.logged("release")

    ends = uvloop.run(drive())
    assert not ends[0].contacted
    assert origins[0].urls() == ["a.example/robots.txt", "a.example/0"]


def test_request_whose_answer_came_too_late_is_made_again_when_its_lease_is_over(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            engine = engine_of(one)

            async def be_late() -> None:
                engine.late |= {engine.log[-1].content.token}

            engine.on_take = be_late
            one.source.put("http://a.example/0")
            await until(one, lambda: engine.logged("expire"))
            await one.dispatcher.checkpoint_soon()  # by then the turn that let it expire is over
            if len(engine.logged("add")) >= 2:  # else nothing would ever come
                await one.settled(1)

    uvloop.run(drive())
    assert origins[0].urls() == ["a.example/robots.txt", "a.example/robots.txt", "a.example/0"]
