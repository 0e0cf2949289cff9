"""A dispatcher behind a slow link: answers wait in the worker, within its bytes, and servers wait, not memory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Result
from shepherd.wire import messages as wire
from tests.support.driver import Dispatcher, Outcome, greeting, run
from tests.support.origin import ok, serve
from tests.support.reaping import reapd
from tests.support.relay import Relay, relaying

pytestmark = pytest.mark.waits

PAGES = 160
PAGE = random.Random(6).randbytes(1 << 20)  # cannot be compressed
HELD = 32 << 20
RATE = 32 << 20  # bytes a second: what the server sends at once takes seconds to pass


def anonymous_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_answers_to_a_slow_dispatcher_do_not_pile_up(tmp_path: Path) -> None:
    front, behind = tmp_path / "front", tmp_path / "behind"

    async def work() -> tuple[int, int, list[Outcome]]:
        peer = await UnixSource(UnixAddress(front)).connect()
        await peer.send(greeting(origin, settings={"timeout_s": 60, "in_flight": PAGES, "memory_bytes": HELD}))
        welcome = await peer.receive()
        assert isinstance(welcome, wire.Welcome)
        before = peak = anonymous_bytes(welcome.pid)
        dispatcher = Dispatcher(peer)
        await dispatcher.rules()
        for _ in range(PAGES):
            await dispatcher.ask("/x")
        taking = asyncio.create_task(take(peer))
        while not taking.done():
            peak = max(peak, anonymous_bytes(welcome.pid))
            await asyncio.sleep(0.02)
        await peer.close("done")
        return before, peak, await taking

    async def take(peer: wire.Peer) -> list[Outcome]:
        found: list[Outcome] = []
        while len(found) < PAGES:
            message = await peer.receive()
            if not isinstance(message, wire.Working):
                assert isinstance(message, wire.FetchResult)
                found.append(Outcome.of(message))
        return found

    with (
        serve({"/x": ok(PAGE, "Content-Type: application/pdf")}) as origin,
        reapd(behind),
        relaying(front, Relay(behind, rate=RATE)),
    ):
        before, peak, outcomes = run(work())
    assert {outcome.verdict[0] for outcome in outcomes} == {Result.STORED}
    assert PAGES * len(PAGE) > 4 * HELD  # else nothing could have piled up
    assert peak - before < 3 * HELD, (before, peak)  # a body, its bucket and its message at a time, of what is held
