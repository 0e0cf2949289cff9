"""The bytes of bodies in a worker's memory: bounded whatever arrives, and never at a standstill."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason, Result
from shepherd.reaper.fetch.fetcher import Fetcher
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.memory import Hold, Memory
from tests.reaper.fetch.fetching import LOOPBACK, request
from tests.support import driver
from tests.support.origin import Answer, hang, ok, serve
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits

MIB = 1 << 20


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(1, 40), st.integers(1, 10)), min_size=1, max_size=30))
def test_all_bodies_arrive_however_many_and_the_limit_is_exceeded_by_one_at_most(
    limit: int, bodies: list[tuple[int, int]]
) -> None:
    """Bodies of so many bytes, in pieces of that size, taken round robin; what has ended is answered one at a time."""
    memory = Memory(limit)
    running: dict[Hold, tuple[int, int]] = {}
    paused: set[Hold] = set()
    ended: list[Hold] = []
    waiting = list(bodies)
    for _ in range(sum(size for size, _ in bodies) * 4 + 100):
        if waiting and memory.has_room:
            hold = memory.hold()
            hold.begin()
            running[hold] = waiting.pop()
        for hold, (left, piece) in list(running.items()):
            if hold in paused:
                continue
            taken = min(left, piece)
            if not hold.take(taken):
                paused.add(hold)
                hold.pause(lambda hold=hold: paused.discard(hold))  # type: ignore[misc]
            elif left > taken:
                running[hold] = left - taken, piece
            else:
                hold.end(hold.size_bytes)
                del running[hold]
                ended.append(hold)
        assert memory.used_bytes == sum(hold.size_bytes for hold in [*running, *ended])
        if ended:
            ended.pop(0).end(0)
        if not (running or ended or waiting):
            break
    assert not (running or ended or waiting), "at a standstill"
    assert memory.used_bytes == 0
    assert memory.peak_bytes <= limit + max(size for size, _ in bodies)


def test_turn_of_a_cancelled_waiter_goes_to_the_next() -> None:
    async def run() -> None:
        memory = Memory(MIB)
        hold = memory.hold()
        hold.begin()
        assert hold.take(MIB)
        first, second = asyncio.ensure_future(memory.room()), asyncio.ensure_future(memory.room())
        await asyncio.sleep(0)
        hold.end(0)
        first.cancel()  # its turn had just come
        await asyncio.wait_for(second, PATIENCE_S)
        await asyncio.gather(first, return_exceptions=True)

    uvloop.run(run())


def large(size: int, pause_s: float = 0.0) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(0, size, 256 * 1024):
            connection.sendall(b"a" * (256 * 1024))
            time.sleep(pause_s)

    return answer


def test_many_large_bodies_share_the_memory_and_all_arrive() -> None:
    with serve({"/x": large(4 * MIB, 0.002)}) as origin:

        async def run() -> tuple[list[int], int]:
            memory = Memory(16 * MIB)
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits(in_flight=40), memory=memory)
            asked = request(origin.port, timeout_s=30, body_bytes=8 * MIB)

            async def one() -> int:
                with memory.hold() as hold:
                    response = await fetcher.fetch(asked, hold)
                    await asyncio.sleep(0.02)  # it is held while it is worked on
                    return len(response.body) if response.reason == Reason.NONE else -int(response.reason)

            sizes = await asyncio.gather(*(one() for _ in range(40)))
            fetcher.close()
            assert memory.used_bytes == 0
            return sizes, memory.peak_bytes

        sizes, peak = uvloop.run(run())
        assert sizes == [4 * MIB] * 40
        assert 8 * MIB < peak <= 20 * MIB
        print(f"40 bodies of 4 MiB, 16 MiB allowed: at most {peak / MIB:.1f} MiB held")


def test_nothing_new_begins_while_the_memory_is_full_and_a_deadline_ends_the_wait() -> None:
    def half(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + b"a" * (2 * MIB))
        hang(connection)

    with serve({"/x": half, "/y": ok(b"abc")}) as origin:

        async def run() -> list[tuple[Reason, bool]]:
            memory = Memory(2 * MIB)
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits(), memory=memory)
            stuck = asyncio.ensure_future(fetcher.fetch(request(origin.port, timeout_s=3, body_bytes=8 * MIB)))
            while memory.has_room and not stuck.done():
                await asyncio.sleep(0.01)
            late = fetcher.fetch(request(origin.port, "/y", timeout_s=0.3))
            patient = fetcher.fetch(request(origin.port, "/y", timeout_s=600))
            responses = await asyncio.gather(late, stuck, patient)
            fetcher.close()
            return [(response.reason, response.contacted) for response in responses]

        assert uvloop.run(run()) == [(Reason.DEADLINE, False), (Reason.DEADLINE, True), (Reason.NONE, True)]
        assert sorted(origin.paths()) == ["/x", "/y"]


def test_paused_body_is_not_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shepherd.reaper.fetch.fetcher.SLOW_AFTER_S", 1)
    with serve({"/x": large(2 * MIB)}) as origin:

        async def run() -> Reason:
            memory = Memory(2 * MIB)
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits(min_bytes_per_s=100_000), memory=memory)
            with memory.hold() as other:  # a page that takes long to be answered
                other.begin()
                assert other.take(MIB)
                other.end(MIB)
                fetching = asyncio.ensure_future(fetcher.fetch(request(origin.port, body_bytes=4 * MIB)))
                await asyncio.sleep(2.5)
                assert not fetching.done() and memory.used_bytes <= 2 * MIB
            response = await fetching
            fetcher.close()
            return response.reason

        assert uvloop.run(run()) == Reason.NONE


def test_worker_releases_the_memory_of_an_answer() -> None:
    routes: dict[str, Answer] = {"/x": large(3 * MIB), "/y": ok(b"abc")}
    with serve(routes) as origin:

        async def run() -> list[Result]:
            async with driver.connected(origin, settings={"memory_bytes": MIB, "in_flight": 8}) as dispatcher:
                await dispatcher.rules()
                return [(await dispatcher.fetch(path)).verdict[0] for path in ("/x", "/y", "/x", "/x", "/y")]

        assert driver.run(run()) == [Result.STORED] * 5


PROGRAM = """
import asyncio, json, sys, uvloop
from shepherd.config import FetchLimits
from shepherd.reaper.fetch.fetcher import Fetcher, Request
from shepherd.reaper.fetch.guard import Guard

def rss():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))

async def main(port, count, limit):
    before = peak = rss()
    fetcher = Fetcher(Guard(("127.0.0.0/8",)), "test", FetchLimits(in_flight=count, memory_bytes=limit))
    request = Request("http://a.example/x", "127.0.0.1", port, 40, 16 << 20)
    async def one():
        nonlocal peak
        response = await fetcher.fetch(request)
        peak = max(peak, rss())
        return len(response.body)
    sizes = await asyncio.gather(*(one() for _ in range(count)))
    print(json.dumps({"sizes": sizes, "grown": peak - before}))

uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


def test_the_process_stays_small_while_many_large_bodies_come_slowly() -> None:
    count, size, limit = 60, 4 * MIB, 32 * MIB
    with serve({"/x": large(size, 0.01)}) as origin:
        argv = [sys.executable, "-c", PROGRAM, str(origin.port), str(count), str(limit)]
        done = subprocess.run(
            argv, cwd=Path(__file__).resolve().parents[3], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
    told = json.loads(done.stdout)
    assert told["sizes"] == [size] * count
    assert told["grown"] < 2 * limit < count * size / 2
    print(f"{count} bodies of {size // MIB} MiB, {limit // MIB} MiB allowed: grown by {told['grown'] / MIB:.0f} MiB")
