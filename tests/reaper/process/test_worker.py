"""One worker between a dispatcher and the world: what it must not contact, rules, and the connection."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import threading
import time
from typing import Any

import pytest
from msgspec import structs

from shepherd import urls
from shepherd.errors import PeerLost
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.reaper.document.robots_rules import RulesCache
from shepherd.reaper.process import worker
from shepherd.reaper.process.limits import WorkerLimits
from shepherd.wire import messages as wire
from tests.support.driver import HTML, LINKS, SITE, Dispatcher, Outcome, connected, greeting, run
from tests.support.origin import Answer, Origin, hang, ok, reset, serve
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits


def refused(
    rules: tuple[str, int] | None = ("", 200), hello: dict[str, Any] | None = None, **changes: Any
) -> tuple[Result, Reason]:
    """The verdict on a page that must not be contacted."""
    with serve({"/x": ok(LINKS, HTML)}) as origin:

        async def one() -> Outcome:
            async with connected(origin, **hello or {}) as dispatcher:
                if rules is not None:
                    await dispatcher.rules(*rules)
                return await dispatcher.fetch("/x", **changes)

        outcome = run(one())
        assert origin.connections == 0
        assert not outcome.contacted
        assert (outcome.raw.bucket, outcome.raw.links, outcome.record["status"]) == (b"", b"", 0)
        return outcome.verdict


def test_a_page_that_the_rules_deny_is_not_contacted() -> None:
    assert refused(("User-agent: *\nDisallow: /x", 200)) == (Result.DENIED, Reason.ROBOTS_DENIED)


def test_a_page_without_known_rules_is_not_contacted() -> None:
    assert refused(None) == (Result.SOFT, Reason.ROBOTS_UNREACHABLE)


def test_a_page_whose_rules_are_unreachable_is_not_contacted() -> None:
    assert refused(("", 503)) == (Result.SOFT, Reason.ROBOTS_UNREACHABLE)


def test_an_address_that_the_guard_refuses_is_not_contacted() -> None:
    assert refused(hello={"allow": []}) == (Result.HARD, Reason.GUARD)
    assert refused(address="169.254.169.254") == (Result.HARD, Reason.GUARD)
    assert refused(address="localhost") == (Result.HARD, Reason.GUARD)


def test_an_address_that_is_no_longer_the_sites_is_not_contacted() -> None:
    assert refused(address="127.0.0.2") == (Result.SOFT, Reason.NO_ADDRESS)


def asked_by_another_clock(ahead_ms: int, wait_s: float, *start_by_s: int) -> list[Outcome]:
    """Fetches of a dispatcher whose clock our own is so far ahead of. Its first PING takes `wait_s` to arrive; from when that
    was sent on, it gives each request so long to begin."""
    with serve({"/x": ok(LINKS, HTML)}) as origin:

        async def all_of_them() -> list[Outcome]:
            async with connected(origin) as dispatcher:
                now_ms = time.time_ns() // 1_000_000 - ahead_ms
                await asyncio.sleep(wait_s)
                await dispatcher.peer.send(wire.Ping(0, [], now_ms))
                assert await dispatcher.peer.receive() == wire.Ping(0, [], 0)
                await dispatcher.rules()
                limits = [{"start_by_ms": now_ms + 1000 * s, "deadline_ms": now_ms + 60_000} for s in start_by_s]
                return [await dispatcher.fetch("/x", **limit) for limit in limits]

        return run(all_of_them())


@pytest.mark.parametrize("ahead_s", [-3600, -20, 0, 12, 29, 40, 3600])
def test_reaper_with_another_clock_refuses_only_what_is_late(ahead_s: int) -> None:
    soon, late = asked_by_another_clock(1000 * ahead_s, 0.0, 9, -1)
    assert soon.verdict[0] == Result.STORED
    assert late.verdict == (Result.SOFT, Reason.DEADLINE) and not late.contacted


@pytest.mark.parametrize("ahead_s", [-3600, 0, 3600])
def test_request_behind_a_delayed_clock_is_late(ahead_s: int) -> None:
    late, soon = asked_by_another_clock(1000 * ahead_s, 2.5, 1, 30)
    assert late.verdict == (Result.SOFT, Reason.DEADLINE) and not late.contacted
    assert soon.verdict[0] == Result.STORED


def test_delayed_greeting_does_not_make_later_requests_late() -> None:
    with serve({"/x": ok(LINKS, HTML)}) as origin:

        async def one() -> Outcome:
            async with connected(origin) as dispatcher:
                await asyncio.sleep(3)  # as if WELCOME were under way
                for number in range(2):
                    await dispatcher.peer.send(wire.Ping(number, [], time.time_ns() // 1_000_000))
                    assert await dispatcher.peer.receive() == wire.Ping(number, [], 0)
                await dispatcher.rules()
                return await dispatcher.fetch("/x", start_by_ms=time.time_ns() // 1_000_000 + 2_500)

        assert run(one()).verdict[0] == Result.STORED


def test_a_request_that_came_too_late_is_not_contacted() -> None:
    assert refused(start_by_ms=1) == (Result.SOFT, Reason.DEADLINE)
    assert refused(deadline_ms=1) == (Result.SOFT, Reason.DEADLINE)


def robots_then_page(reply: Answer, settings: dict[str, Any] | None = None) -> tuple[Outcome, Outcome, list[str]]:
    """A robots.txt fetched by the reaper, then a page judged by it, and the paths that the server saw."""
    with serve({"/robots.txt": reply, "/x": ok(LINKS, HTML)}) as origin:

        async def both() -> tuple[Outcome, Outcome]:
            async with connected(origin, settings=settings or {}) as dispatcher:
                first = await dispatcher.fetch("/robots.txt", kind=Kind.ROBOTS)
                return first, await dispatcher.fetch("/x")

        return *run(both()), origin.paths()


def test_fetched_rules_are_stored_returned_and_obeyed() -> None:
    text = b"User-agent: *\nDisallow: /x\nCrawl-delay: 2.5\n"
    robots, page, paths = robots_then_page(ok(text, "Content-Type: Text/Plain; charset=utf-8"))
    assert robots.bucket.attributes["T"] == b"text/plain"
    assert robots.verdict == (Result.STORED, Reason.GATHERED)
    assert (robots.record["kind"], robots.record["crawl_delay_ms"]) == (Kind.ROBOTS, 2500)
    assert (robots.raw.rules, robots.raw.rules_status, robots.bucket.body()) == (text, 200, text)
    assert page.verdict == (Result.DENIED, Reason.ROBOTS_DENIED)
    assert paths == ["/robots.txt"]


def test_an_absent_robots_file_allows_everything() -> None:
    robots, page, _ = robots_then_page(ok(b"no", status="404 Not Found"))
    assert robots.verdict == (Result.HARD, Reason.CLIENT_ERROR)
    assert (robots.raw.rules, robots.raw.rules_status, robots.raw.bucket) == (b"", 404, b"")
    assert page.verdict == (Result.STORED, Reason.GATHERED)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (ok(b"no", status="503 Unavailable"), (Result.SOFT, Reason.SERVER_ERROR)),
        (ok(b"no", status="429 Slow down"), (Result.SOFT, Reason.SERVER_ERROR)),
        (reset, (Result.CONNECTION, Reason.CONNECTION)),
        (ok(b"not gzip", "Content-Encoding: gzip"), (Result.HARD, Reason.DECODING)),
        (ok(gzip.compress(b"User-agent: *\n" * 99, mtime=0)[:-12], "Content-Encoding: gzip"), (Result.HARD, Reason.DECODING)),
    ],
)
def test_an_unreachable_robots_file_forbids_everything(reply: Answer, verdict: tuple[Result, Reason]) -> None:
    robots, page, paths = robots_then_page(reply)
    assert robots.verdict == verdict
    assert robots.raw.rules_status == 0
    assert page.verdict == (Result.SOFT, Reason.ROBOTS_UNREACHABLE)
    assert paths == ["/robots.txt"]


def test_a_redirected_robots_file_settles_nothing() -> None:
    robots, page, _ = robots_then_page(ok(b"", "Location: http://b.example/photo.jpg", status="301 Moved"))
    assert robots.verdict == (Result.REDIRECT, Reason.REDIRECT)
    assert (robots.raw.location, robots.raw.links) == ("http://b.example/photo.jpg", b"")
    assert robots.bucket.attributes["E"] == b"http://b.example/photo.jpg"
    assert page.verdict == (Result.SOFT, Reason.ROBOTS_UNREACHABLE)


def test_a_robots_file_that_redirects_to_nonsense_counts_as_absent() -> None:
    robots, page, _ = robots_then_page(ok(b"", "Location: http://", status="301 Moved"))
    assert (robots.verdict, robots.raw.rules_status) == ((Result.HARD, Reason.MALFORMED), 404)
    assert page.verdict == (Result.STORED, Reason.GATHERED)


def test_the_rules_of_a_hop_decide_for_the_site_that_was_asked_about() -> None:
    with serve({"/elsewhere": ok(b"User-agent: *\nDisallow: /x"), "/x": ok(b"")}) as origin:

        async def both() -> Outcome:
            async with connected(origin) as dispatcher:
                await dispatcher.fetch("/elsewhere", kind=Kind.ROBOTS, rules=SITE, site=5, norm=5)
                return await dispatcher.fetch("/x")

        assert run(both()).verdict == (Result.DENIED, Reason.ROBOTS_DENIED)


def test_a_huge_robots_file_is_cut_at_500_kib() -> None:
    text = b"User-agent: *\nDisallow: /x\n" + b"# filler\n" * 100_000
    for reply in (ok(text), ok(gzip.compress(text), "Content-Encoding: gzip")):
        robots, page, _ = robots_then_page(reply)
        assert JournalFlag.TRUNCATED in robots.flags
        assert robots.raw.rules == robots.bucket.body() == text[: 500 * 1024]
        assert page.verdict == (Result.DENIED, Reason.ROBOTS_DENIED)


def test_the_cache_of_rules_forgets_the_oldest_and_stays_within_its_bytes() -> None:
    from shepherd.robots import rules_for

    rules = rules_for(404, b"", "shepherd")
    cache = RulesCache(limit_bytes=3000)
    for site in range(3):
        cache.put(site, rules, 700)
    assert cache.get(0) is rules
    cache.put(3, rules, 700)
    assert [cache.get(site) is rules for site in range(4)] == [True, False, True, True]
    cache.put(3, None, 0)
    assert cache.get(3) is None


def test_a_name_is_resolved_without_a_contact() -> None:
    with serve({}) as origin:

        async def one() -> wire.Message | None:
            async with connected(origin) as dispatcher:
                await dispatcher.peer.send(wire.Resolve(5, SITE, "http://a.example"))
                return await dispatcher.peer.receive()

        found = run(one())
        assert isinstance(found, wire.Resolved)
        assert (found.token, found.address, found.reason) == (5, "127.0.0.1", 0)
        assert found.qkey == urls.qkey_of_address("127.0.0.1")
        assert origin.connections == 0


def goodbye(hello: wire.Message, *more: wire.Message) -> str:
    """What the worker says before it hangs up."""

    async def one() -> str:
        ours, theirs = socket.socketpair()
        serving = asyncio.create_task(worker.serve(theirs))
        peer = await wire.adopt(ours)
        for message in (hello, *more):
            await peer.send(message)
        while not isinstance(said := await peer.receive(), wire.Bye):
            assert said is not None
        assert await peer.receive() is None
        await serving
        await peer.close()
        return said.why

    return run(one())


def test_dispatcher_that_breaks_the_protocol_is_dropped_with_the_reason() -> None:
    hello = greeting(Origin(1, {}))
    assert f"version {wire.VERSION + 1}" in goodbye(structs.replace(hello, version=wire.VERSION + 1))
    assert "begins with HELLO" in goodbye(wire.Robots(1, 200, b""))
    assert "key" in goodbye(structs.replace(hello, key=b"short"))
    assert "not the version it says" in goodbye(structs.replace(hello, filter_version=1))
    assert "cannot be read" in goodbye(structs.replace(hello, filter="nonsense here\n"))
    assert "in_flight" in goodbye(structs.replace(hello, settings={"in_flight": 0}))
    assert "timeout_s" in goodbye(structs.replace(hello, settings={"timeout_s": "long"}))
    assert "compress" in goodbye(structs.replace(hello, settings={"compress": "rar"}))
    assert "static table" in goodbye(structs.replace(hello, static={"a.example": ["127.0.0.1"]}))
    assert "address range" in goodbye(structs.replace(hello, allow=["everything"]))
    assert "does not send" in goodbye(hello, wire.Welcome(2, 1, 1, []))


def test_more_requests_than_credits_end_the_connection() -> None:
    with serve({"/x": hang}) as origin:

        async def one() -> wire.Message | None:
            async with connected(origin, settings={"in_flight": 2}) as dispatcher:
                await dispatcher.rules()
                for _ in range(3):
                    await dispatcher.ask("/x")
                return await dispatcher.peer.receive()

        said = run(one())
        assert isinstance(said, wire.Bye) and "credits" in said.why


def test_a_dispatcher_that_reads_late_and_uses_all_its_credits_is_served() -> None:
    large = random.Random(2).randbytes(300_000)
    with serve({"/x": ok(large, "Content-Type: application/pdf")}) as origin:

        async def one() -> int:
            async with connected(origin, settings={"in_flight": 8}) as dispatcher:
                await dispatcher.rules()
                for _ in range(8):
                    await dispatcher.ask("/x")
                answered = 0
                while answered < 60:
                    assert isinstance(await dispatcher.peer.receive(), wire.FetchResult)
                    answered += 1
                    await dispatcher.ask("/x")
                return answered

        assert run(one()) == 60


def test_a_dropped_connection_drops_the_transfers() -> None:
    asked, left = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> None:
        asked.set()
        hang(connection)
        left.set()

    with serve({"/x": wait}) as origin:

        async def one() -> None:
            async with connected(origin) as dispatcher:
                await dispatcher.rules()
                await dispatcher.ask("/x")
                await asyncio.to_thread(asked.wait, PATIENCE_S)

        run(one())
        assert left.wait(PATIENCE_S)


class Forgetful(wire.Peer):
    """A connection on which the first answer cannot be put together."""

    failed = False

    async def send(self, message: wire.Message) -> None:
        if isinstance(message, wire.FetchResult) and not self.failed:
            self.failed = True
            raise MemoryError
        await super().send(message)


def test_answer_that_could_not_be_sent_returns_its_credit_once() -> None:
    with serve({"/x": hang}) as origin:

        async def one() -> None:
            ours, theirs = socket.socketpair()
            dispatcher, plain = Dispatcher(await wire.adopt(ours)), await wire.adopt(theirs)
            peer, hello = Forgetful(plain._reader, plain._writer), greeting(origin, settings={"in_flight": 1})
            served = asyncio.create_task(worker.Worker(peer, hello, WorkerLimits(), None).run())
            await dispatcher.ask("/x")  # its rules are not known, so it is answered at once
            while not peer.failed:
                await asyncio.sleep(0.01)
            await dispatcher.rules()
            for _ in range(2):
                await dispatcher.ask("/x")
            with pytest.raises(PeerLost, match="more than its 1 credits"):
                await served
            await peer.close()
            await dispatcher.peer.close()

        run(asyncio.wait_for(one(), PATIENCE_S))
