"""The dispatcher as another program drives it: no plan, a source of URLs, real reapers and servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import uvloop

from shepherd.addresses import UnixAddress
from shepherd.clock import steady_clock_ms
from shepherd.config import Config, Network, Politeness, Reap
from shepherd.dispatch import dispatcher as dispatch
from shepherd.dispatch import reap
from shepherd.dispatch import reaper_sources as sources
from shepherd.dispatch.dispatcher import Dispatcher
from shepherd.dispatch.fleet import Fleet
from shepherd.dispatch.items import Item
from shepherd.dispatch.reapers import ReaperSource
from shepherd.dispatch.source import SourceCounts, SourceDesk, WorkSource, page_of
from shepherd.errors import BadUrl, PeerLost
from shepherd.filters import parse_filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Records, Result
from shepherd.politeness.groups.engine import FetchEnd, Groups, QueueCounts
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from shepherd.wire import messages as wire
from tests.support.groups import FarGroups
from tests.support.origin import Answer, Origin, ok, serve
from tests.support.waiting import PATIENCE_S

HTML = "Content-Type: text/html"
HOSTS = ("a.example", "b.example", "c.example")
DELAY_S = 0.3


def page(text: str) -> bytes:
    return ok(f"<html><title>{text}</title><a href=/{text}>x</a></html>".encode(), HTML)


def slow(connection: socket.socket) -> None:
    time.sleep(1.5)
    connection.sendall(page("slow"))


BUSY = ok(b"", status="429 Too Many Requests")
ROUTES: dict[str, Answer] = {
    **{f"{host}/{n}": page(str(n)) for host in HOSTS for n in range(5)},
    "a.example/busy": ok(b"", "Retry-After: 2", status="503 Service Unavailable"),
    "b.example/slow": slow,
    **{f"c.example/storm{n}": BUSY for n in range(8)},
}


class Queue(WorkSource):
    """What another program writes: URLs that it is given while the dispatcher runs, and how each of them ended."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self.outcomes: list[tuple[int, str, int]] = []  # ticket, URL, status
        self.is_open = False

    def open(self, desk: SourceDesk) -> None:
        self._desk, self.is_open = desk, True

    def put(self, url: str, ticket: int = 0, priority: int = 0) -> None:
        self._items.append(page_of(url, self._desk.prints, priority=priority, ticket=ticket))
        self._desk.wake()

    def take(self, most: int, now_ms: int) -> list[Item]:
        return [self._items.popleft() for _ in range(min(most, len(self._items)))]

    def settled(self, item: Item, record: Entry) -> None:
        self.outcomes.append((item.ticket, item.url, record.status))


@dataclass
class Driven:
    dispatcher: Dispatcher
    source: Queue
    other: Queue
    harvest: Harvest
    memory: MemoryGroups
    origins: list[Origin]
    task: asyncio.Task[str]

    def journalled(self) -> Records:
        """What is on disk now: the last checkpoint has all of it."""
        return self.harvest.journalled()

    async def settled(self, count: int) -> Records:
        """Wait until so many pages are settled and durable."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            await self.dispatcher.checkpoint_soon()
            pages = self.journalled()
            pages = np.asarray(pages[(pages["kind"] == Kind.PAGE) & (pages["flags"] & JournalFlag.HOP == 0)])
            if len(pages) >= count or self.task.done():
                return pages
            await asyncio.sleep(0.05)
        raise AssertionError("nothing came")


@pytest.fixture
def origins() -> Iterator[list[Origin]]:
    """One server for each host, at addresses of their own."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serve(ROUTES, address=f"127.0.5.{n + 1}")) for n in range(len(HOSTS))]


def near(memory: MemoryGroups) -> Groups:
    return memory


def far(memory: MemoryGroups) -> Groups:
    """Every call suspends, so that answers arrive while it is under way."""
    return FarGroups(memory, seed=1)


distance: Callable[[MemoryGroups], Groups] = near


@pytest.fixture(autouse=True, params=[near, far])
def _distance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds wherever the groups are."""
    monkeypatch.setitem(globals(), "distance", request.param)


@contextlib.asynccontextmanager
async def driven(
    home: Path,
    origins: list[Origin],
    filter_text: str = "",
    limits: Reap | None = None,
    beside: ReaperSource | None = None,
    lease_ms: int = 65_000,
) -> AsyncIterator[Driven]:
    """`beside` is a reaper beside the local one."""
    table = "".join(f"{host} 127.0.5.{n + 1} {origins[n].port}\n" for n, host in enumerate(HOSTS))
    (home / "static").write_text(table)
    config = Config(
        politeness=Politeness(delay_s=DELAY_S),
        reap=limits or Reap(),
        network=Network(allow=("127.0.0.0/8",), static="static"),
        directory=home,
    )
    filters, clock = parse_filter(filter_text), steady_clock_ms()
    state = Database.create(home / "db", bytes(range(16)), clock() // 1000).closed()
    harvest = Harvest(home / "harvest", 1 << 20)
    memory = MemoryGroups(lease_ms=lease_ms, delay_ms=round(DELAY_S * 1000))
    groups = distance(memory)
    local = sources.local(config.reap)
    fleet = Fleet([local, beside] if beside else [], local, 1, reap.hello(state, config, filters), clock)
    source, other = Queue(), Queue()
    dispatcher = Dispatcher(state, harvest, groups, config, filters, fleet, clock, [source, other])
    task = asyncio.create_task(dispatcher.run(60, stay=True))
    while not source.is_open:
        await asyncio.sleep(0.01)
    try:
        yield Driven(dispatcher, source, other, harvest, memory, origins, task)
        dispatcher.stop("asked to stop")
        assert await task == "asked to stop"
        dispatcher.end()
        assert await groups.count() == QueueCounts(0, 0)
    finally:
        task.cancel()
        harvest.close()


def spans(origins: list[Origin], *hosts: str) -> list[tuple[str, float, float]]:
    found = [span for origin in origins for span in origin.spans if span[0].partition("/")[0] in hosts]
    return sorted(found, key=lambda span: span[1])


def gaps(found: list[tuple[str, float, float]]) -> list[float]:
    return [after[1] - before[2] for before, after in pairwise(found)]


def test_urls_of_a_source_are_durable_when_it_says_so(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            with pytest.raises(BadUrl):
                one.source.put("ftp://a.example/")
            one.source.put("http://a.example/0", ticket=7)
            assert (await one.settled(1))["status"].tolist() == [200]
            assert one.source.outcomes == [(7, "http://a.example/0", 200)]
            one.source.put("http://a.example/1", ticket=8)
            one.other.put("http://b.example/none", ticket=7)
            pages = await one.settled(3)
            assert sorted(pages["status"].tolist()) == [200, 200, 404]
            assert one.source.outcomes[1:] == [(8, "http://a.example/1", 200)]
            assert one.other.outcomes == [(7, "http://b.example/none", 404)]
            assert one.dispatcher.counts(one.source) == SourceCounts(2, 2)
            assert one.dispatcher.counts(one.other) == SourceCounts(1, 1)
            assert [await one.memory.count_source(n) for n in range(3)] == [QueueCounts(0, 0)] * 3
            assert one.dispatcher.contributions.link_count == 2

    uvloop.run(drive())
    assert [span[0] for span in spans(origins, "a.example")] == ["a.example/robots.txt", "a.example/0", "a.example/1"]


def test_hosts_of_one_group_are_asked_as_one_server(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins, "group farm host a.example b.example\n") as one:
            for host in HOSTS[:2]:
                for number in range(3):
                    one.source.put(f"http://{host}/{number}")
            await one.settled(6)

    uvloop.run(drive())
    found = spans(origins, *HOSTS[:2])
    assert len(found) == 8
    assert min(gaps(found)) >= DELAY_S


def test_hosts_of_one_address_range_are_asked_as_one_server(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(
            tmp_path, origins, "group farm address 127.0.5.0/31 127.0.5.2\nset min_delay 0.5 host b.example\n"
        ) as one:
            for host in HOSTS[:2]:
                for number in range(2):
                    one.source.put(f"http://{host}/{number}")
            await one.settled(4)

    uvloop.run(drive())
    found = spans(origins, *HOSTS[:2])
    known = next(n for n, span in enumerate(found) if span[0].startswith("b."))
    assert min(gaps(found)) >= DELAY_S
    assert min(gaps(found[known:])) >= 0.5, "the delay of one is that of all"


def test_retry_after_of_one_host_delays_its_group(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins, "group farm host a.example b.example\n") as one:
            one.source.put("http://b.example/0")
            one.source.put("http://c.example/0")
            await one.settled(2)
            one.source.put("http://a.example/busy", priority=9)
            while not any(span[0] == "a.example/busy" for span in spans(origins, "a.example")):
                await asyncio.sleep(0.02)
            one.source.put("http://b.example/1")
            one.source.put("http://c.example/1")
            await one.settled(5)

    uvloop.run(drive())
    found = spans(origins, *HOSTS)
    busy = next(span for span in found if span[0] == "a.example/busy")
    after = {span[0]: span[1] - busy[2] for span in found if span[1] > busy[2]}
    assert after["b.example/1"] >= 2 and after["c.example/1"] < 2


def test_site_that_asks_for_patience_again_and_again_is_given_up(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> Records:
        async with driven(tmp_path, origins, f"set min_delay 0.01 host {HOSTS[2]}\n") as one:
            for number in range(8):
                one.source.put(f"http://c.example/storm{number}")
            return await one.settled(8)

    pages = uvloop.run(drive())
    asked = [span[0] for span in spans(origins, "c.example") if "storm" in span[0]]
    assert len(asked) == 3
    assert sorted(pages["result"].tolist()) == [Result.SOFT] * 3 + [Result.SITE] * 5
    assert set(pages["reason"].tolist()) == {Reason.SERVER_ERROR}


def test_limits_of_the_whole_reap_are_kept(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins, "set min_delay 0 glob http*\n", Reap(pages_per_s=4, connections=1)) as one:
            for host in HOSTS:
                for number in range(3):
                    one.source.put(f"http://{host}/{number}")
            await one.settled(9)

    uvloop.run(drive())
    found = spans(origins, *HOSTS)
    assert len(found) == 12
    assert min(gaps(found)) >= 0, "one connection at a time"
    assert found[-1][1] - found[0][1] >= (12 - 4) / 4 - 0.1


def test_late_answer_is_dropped_and_its_page_asked_for_once_more(tmp_path: Path, origins: list[Origin]) -> None:
    """The lease ends before the answer comes: that is a failed fetch, and the answer changes nothing."""

    async def drive() -> Records:
        async with driven(tmp_path, origins, lease_ms=1_000) as one:
            one.source.put("http://b.example/slow")
            return await one.settled(1)

    pages = uvloop.run(drive())
    assert pages[["result", "reason"]].tolist() == [(Result.SOFT, Reason.REAPER_LOST)]
    asked = spans(origins, "b.example")
    assert [span[0] for span in asked] == ["b.example/robots.txt", "b.example/slow", "b.example/slow"]
    assert asked[2][1] - asked[1][1] >= 1 + DELAY_S, "not before the lease was over and the delay had passed"


def test_nothing_is_lost_nor_asked_twice_nor_too_soon(tmp_path: Path, origins: list[Origin]) -> None:
    urls = [f"http://{host}/{path}" for host in HOSTS for path in (*range(5), "missing")]

    async def drive() -> Records:
        async with driven(tmp_path, origins) as one:
            for url in urls:
                one.source.put(url)
                await asyncio.sleep(0.01)
            return await one.settled(len(urls))

    pages = uvloop.run(drive())
    assert sorted(pages["status"].tolist()) == [200] * 15 + [404] * 3
    for host in HOSTS:
        asked = spans(origins, host)
        assert sorted(span[0] for span in asked) == sorted(f"{host}/{path}" for path in (*range(5), "missing", "robots.txt"))
        assert min(gaps(asked)) >= DELAY_S


async def cry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A reaper that takes no requests, and says of all that others were given that its workers have died at them."""
    await wire.read_message(reader, wire.LIMIT_BEFORE_WELCOME)
    writer.write(wire.encode(wire.Welcome(wire.VERSION, 1, 0, [])))
    goodbye = asyncio.create_task(reader.read())
    while not goodbye.done():
        writer.write(wire.encode(wire.Ping(0, list(range(1, 100)), 0)))
        await asyncio.wait([goodbye], timeout=0.1)
    writer.close()


def test_reaper_cannot_fail_the_request_of_another(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> Records:
        over = asyncio.Event()

        async def liar(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await cry(reader, writer)
            over.set()

        server = await asyncio.start_unix_server(liar, tmp_path / "liar")
        async with driven(tmp_path, origins, beside=sources.UnixSource(UnixAddress(tmp_path / "liar"))) as one:
            one.source.put("http://b.example/slow")
            pages = await one.settled(1)
        await over.wait()
        server.close()
        return pages

    pages = uvloop.run(drive())
    assert pages["status"].tolist() == [200]
    found = spans(origins, "b.example")
    assert [span[0] for span in found] == ["b.example/robots.txt", "b.example/slow"]


def test_reaper_extends_only_its_own_lease_and_up_to_a_limit(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            one.source.put("http://b.example/slow")
            while "b.example/slow" not in origins[1].urls():
                await asyncio.sleep(0.01)
            [(token, asked)], [reaper] = one.dispatcher._exchanges._open.items(), one.dispatcher._fleet.up
            before_ms, latest_ms = one.memory._leases[token].lease.expires_ms, asked.sent_ms + 60_000 + dispatch.MOST_WORK_MS
            for unknown in (0, token + 1):
                one.dispatcher._on_message(reaper, wire.Working(unknown, 1_000_000))
            await one.dispatcher.checkpoint_soon()  # by then it has been handled
            assert one.memory._leases[token].lease.expires_ms == before_ms
            one.dispatcher._on_message(reaper, wire.Working(token, 0xFFFFFFFF))
            await one.dispatcher.checkpoint_soon()
            assert before_ms < one.memory._leases[token].lease.expires_ms == latest_ms
            assert (await one.settled(1))["status"].tolist() == [200]

    uvloop.run(drive())


async def checkpoint(one: Driven) -> None:
    """Fails where it would be waited for in vain."""
    await asyncio.wait_for(one.dispatcher.checkpoint_soon(), PATIENCE_S)


def test_checkpoint_after_the_end_is_at_once(tmp_path: Path, origins: list[Origin]) -> None:
    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            pass
        await checkpoint(one)

    uvloop.run(drive())


def test_checkpoint_of_a_run_that_has_failed_is_cancelled(
    tmp_path: Path, origins: list[Origin], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def release_many(ends: Sequence[FetchEnd], now_ms: int) -> list[bool]:
        raise PeerLost("the engine is lost")

    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            monkeypatch.setattr(one.memory, "release_many", release_many)
            one.source.put("http://a.example/0")
            await asyncio.wait([one.task], timeout=PATIENCE_S)
            with pytest.raises(asyncio.CancelledError):
                await checkpoint(one)

    with pytest.raises(PeerLost):
        uvloop.run(drive())


def test_checkpoint_is_cancelled_when_the_end_fails(
    tmp_path: Path, origins: list[Origin], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(time_ms: int) -> None:
        raise OSError("no space")

    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            one.dispatcher.stop("asked to stop")
            await one.task
            with monkeypatch.context() as patch:
                patch.setattr(one.harvest, "end", end)
                before = asyncio.ensure_future(checkpoint(one))
                await asyncio.sleep(0)
                with pytest.raises(OSError, match="no space"):
                    one.dispatcher.end()
                for waiting in (before, checkpoint(one)):
                    with pytest.raises(asyncio.CancelledError):
                        await waiting

    uvloop.run(drive())


def test_row_of_an_unknown_site_goes_back_to_its_source(
    tmp_path: Path, origins: list[Origin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no URL of its own, from which the site could be entered."""
    returned: list[Item] = []

    def take_back(item: Item) -> bool:
        returned.append(item)
        return True

    async def drive() -> None:
        async with driven(tmp_path, origins) as one:
            monkeypatch.setattr(one.source, "takes_back", take_back)
            one.source._items.append(Item(Kind.PAGE, 1, 2, 3, 3, 3))
            one.source.put("http://a.example/0")
            await asyncio.wait([asyncio.ensure_future(one.settled(1)), one.task], return_when=asyncio.FIRST_COMPLETED)
            assert [item.site for item in returned] == [3]
            assert [url for _ticket, url, _status in one.source.outcomes] == ["http://a.example/0"]

    uvloop.run(drive())
