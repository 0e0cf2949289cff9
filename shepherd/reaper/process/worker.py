"""One worker of the reaper: serves one connection of a dispatcher, from HELLO to BYE (docs/protocol.md).

Invariant: nothing is contacted that the rules or the guard refuse, that came too late, or whose connection is gone. Every FETCH
and RESOLVE is answered once, unless the connection ends first; then all that was begun is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from shepherd import robots, urls
from shepherd.clock import AgreedClock, end_of, steady_clock_ms
from shepherd.errors import BadUrl, PeerLost, PeerRefused
from shepherd.formats.tables import Kind, Reason, Result, qkey_unresolved
from shepherd.reaper.document import recording
from shepherd.reaper.document.robots_rules import RulesCache
from shepherd.reaper.fetch.exchange import Exchange, without_exchange
from shepherd.reaper.fetch.fetcher import Fetcher, Request
from shepherd.reaper.fetch.memory import Hold, Memory
from shepherd.reaper.fetch.resolver import Resolver
from shepherd.reaper.process import confine, greeting
from shepherd.reaper.process.limits import WorkerLimits
from shepherd.reaper.process.parsing import Parser
from shepherd.reaper.process.shared import SlotStage, WorkerSlot
from shepherd.wire import messages as wire
from shepherd.wire import tls
from shepherd.wire.settings import from_wire

LOG = logging.getLogger("shepherd.reapd")
HELLO_S: Final = 10.0
CLOCK_WARNING_MS: Final = 2_000  # a larger difference between clocks is logged
SPARE_CPU_S: Final = 5.0  # beside the longest at one page: the watchdog, which knows the page's time, comes first
ROLL_S: Final = 1.0  # how often the limit of CPU time is moved ahead
WORKER_PATIENCE: Final = 2  # times the silence that a dispatcher accepts: it pings, so it notices first
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
DEFAULT: Final = WorkerLimits()


async def serve(
    connection: socket.socket,
    limits: WorkerLimits = DEFAULT,
    slot: WorkerSlot | None = None,
    tls_context: ssl.SSLContext | None = None,
) -> None:
    """Serve one connection until either end closes it."""
    try:
        peer = await wire.adopt(connection, tls_context)
    except OSError as error:
        if slot is not None:
            slot.give_up(f"no agreement on TLS: {error}")  # for the parent to log: strangers are many
        return
    why = ""
    try:
        if tls_context is not None:
            LOG.info("dispatcher %r is here", tls.peer_name(peer.certificate, tls.Role.DISPATCHER))
            if slot is not None:
                slot.set(stage=SlotStage.WITH_KEY)
        async with asyncio.timeout(HELLO_S):
            hello = await peer.receive()
        if isinstance(hello, wire.Hello):
            await Worker(peer, hello, limits, slot).run()
        elif hello is not None:
            raise PeerLost("a dispatcher begins with HELLO")
    except TimeoutError:
        why = f"no HELLO within {HELLO_S:.0f} s"
    except (PeerLost, PeerRefused) as error:
        why = str(error)
    if why:
        LOG.warning("connection dropped: %s", why)
    await peer.close(why)


class Worker:
    """The state of one connection: rules, resolver, fetcher, and the requests without an answer yet."""

    def __init__(self, peer: wire.Peer, hello: wire.Hello, limits: WorkerLimits, slot: WorkerSlot | None) -> None:
        if hello.version != wire.VERSION:
            raise PeerLost(f"the dispatcher speaks version {hello.version} of the protocol, this reaper version {wire.VERSION}")
        self._peer, self._worker_limits, self._slot = peer, limits, slot
        self._deaths_reported = 0  # that the dispatcher knows of
        settings = from_wire(hello.settings)
        self._fetch_limits = settings.limits
        self._static = greeting.static_of(hello)
        self._context = greeting.context_of(hello, self._fetch_limits, settings.compress)
        self._guard = greeting.guard_of(hello, settings, limits.rules)
        if slot is not None:
            if not slot.serve(hello.session, limits.workers):
                raise PeerLost(f"all {limits.workers} workers of this reaper are busy")
            LOG.info("worker %d serves a new connection", os.getpid())
            confine.limit_files(self._fetch_limits.in_flight)
        self._memory = Memory(self._fetch_limits.memory_bytes)
        self._resolver = Resolver(self._guard, self._static, hosts=settings.hosts, nameservers=settings.nameservers)
        self._fetcher = Fetcher(
            self._guard,
            hello.agent,
            self._fetch_limits,
            authorities=settings.authorities or limits.authorities,
            proxy=settings.proxy,
            memory=self._memory,
        )
        self._parser = Parser(self._context, self._fetch_limits.decoded_bytes, limits.parse_s, slot, self._send)
        self._clock = AgreedClock(steady_clock_ms())
        self._silence_s = hello.silence_ms / 1000
        self._rules = RulesCache()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered: set[asyncio.Task[None]] = set()
        self._answer_count = 0
        self._is_leaving = False

    async def run(self) -> None:
        watch_task = asyncio.create_task(self._peer.cut_if_silent(WORKER_PATIENCE * self._silence_s))
        roll_task = asyncio.create_task(self._roll_cpu_limit())
        try:
            self._clock.ask()
            await self._peer.send(wire.Welcome(wire.VERSION, os.getpid(), self._fetch_limits.in_flight, self._new_killers()))
            async for message in self._peer.messages():
                self._handle(message)
        finally:
            tasks = [watch_task, roll_task, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fetcher.close()
            await self._resolver.close()

    async def _roll_cpu_limit(self) -> None:
        """Keep the limit ahead while the event loop turns; a worker that is stuck reaches it, even if nobody watches."""
        while self._slot is not None:  # else the process is not ours to limit
            confine.allow_cpu(self._worker_limits.parse_s + SPARE_CPU_S)
            await asyncio.sleep(ROLL_S)

    def _handle(self, message: wire.Message) -> None:
        if isinstance(message, wire.Robots):
            body = message.body[: robots.MAX_BYTES]
            self._rules.put(message.site, robots.rules_for(message.status, body, self._context.options.agent), len(body))
        elif isinstance(message, wire.Resolve):
            self._begin(self._resolve(message))
        elif isinstance(message, wire.Fetch) and message.kind in (Kind.PAGE, Kind.ROBOTS):
            self._begin(self._fetch(message))
        elif isinstance(message, wire.Recorded) and message.kind in (Kind.PAGE, Kind.ROBOTS):
            self._begin(self._work_on(message))
        elif isinstance(message, wire.Ping):
            if message.now_ms:
                self._agree_on_clock(message)
            self._spawn(self._send(wire.Ping(message.number, self._new_killers(), 0)))
        else:
            raise PeerLost(f"a dispatcher does not send this {type(message).__name__.upper()}")

    def _agree_on_clock(self, ping: wire.Ping) -> None:
        """Follow the dispatcher's clock, which its PINGs show: the deadlines it sends are by that clock."""
        ahead_ms = self._clock.on_answer(ping.now_ms)
        if not ping.number and abs(ahead_ms) > CLOCK_WARNING_MS:
            LOG.warning("our clock is %.1f s %s the dispatcher's", abs(ahead_ms) / 1000, "ahead of" if ahead_ms > 0 else "behind")
        self._clock.ask()  # by sending it back

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._unanswered) >= self._fetch_limits.in_flight:
            work.close()
            raise PeerLost(f"the dispatcher has more than its {self._fetch_limits.in_flight} credits outstanding")
        self._unanswered.add(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._unanswered.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a request was not answered", exc_info=error)  # its lease expires

    async def _answer(self, message: wire.Resolved | wire.FetchResult) -> None:
        # Counted before it is sent: the dispatcher may have it, and ask again, while we still wait for room to send more.
        if (task := asyncio.current_task()) is not None:
            self._unanswered.discard(task)
        self._answer_count += 1
        await self._send(message)
        if self._answer_count == self._worker_limits.recycle:
            await self._leave(f"it has answered {self._answer_count} requests")

    async def _send(self, message: wire.Message) -> None:
        with contextlib.suppress(PeerLost):  # the receiving loop notices too, and ends everything
            await self._peer.send(message)

    def _new_killers(self) -> list[int]:
        """The tokens of this reap at whose pages other workers have died since the last report."""
        if self._slot is None:
            return []
        tokens, self._deaths_reported = self._slot.killers(self._deaths_reported)
        return tokens

    async def _leave(self, why: str) -> None:
        """Ask to be replaced. Requests that arrive until the dispatcher knows are answered all the same."""
        if not self._is_leaving:
            self._is_leaving = True
            if self._slot is not None:
                self._slot.leave()
            await self._send(wire.Leaving(why))

    async def _resolve(self, request: wire.Resolve) -> None:
        site_address = await self._resolver.resolve(request.name)
        qkey = site_address.qkey if site_address.address else qkey_unresolved(request.site)
        await self._answer(wire.Resolved(request.token, qkey, site_address.address, site_address.valid_s, site_address.reason))

    async def _fetch(self, fetch: wire.Fetch) -> None:
        await self._answer_once(fetch, lambda hold: self._result(fetch, hold))

    async def _work_on(self, recorded: wire.Recorded) -> None:
        """Parse a recorded answer; no server is contacted, and no rules are learnt from it."""
        fetch = recording.request_of(recorded)

        async def result(hold: Hold) -> wire.FetchResult:
            hold.resize(len(recorded.http))
            exchange = recording.exchange_of(recorded, fetch, self._fetch_limits)
            return await self._parser.page(exchange) if recorded.kind == Kind.PAGE else self._parser.robots(exchange)[0].result

        await self._answer_once(fetch, result)

    async def _answer_once(self, fetch: wire.Fetch, work: Callable[[Hold], Awaitable[wire.FetchResult]]) -> None:
        with self._memory.hold() as hold:
            try:
                result = await work(hold)
            except MemoryError:  # only this page fails; what it leaves behind in this process ends with the process
                LOG.warning("%s: needs more memory than a worker has", fetch.url)
                result = without_exchange(fetch, Result.HARD, Reason.PARSER, self._clock(), contacted=True)
                await self._leave("it has run out of memory")
            except Exception:  # a page that breaks our code fails alone, and is answered
                LOG.exception("%s: could not be fetched or worked on", fetch.url)
                result = without_exchange(fetch, Result.HARD, Reason.MALFORMED, self._clock(), contacted=True)
            hold.resize(len(result.bucket) + len(result.links))
            await self._answer(result)

    async def _result(self, fetch: wire.Fetch, hold: Hold) -> wire.FetchResult:
        limit_s = min(self._fetch_limits.timeout_s, (fetch.deadline_ms - self._clock()) / 1000)
        deadline = asyncio.get_running_loop().time() + limit_s  # of everything, looking up the name included
        try:
            async with asyncio.timeout_at(deadline):
                refusal = await self._refusal(fetch)
        except TimeoutError:
            refusal = Result.SOFT, Reason.LOOKUP if limit_s > 0 else Reason.DEADLINE
        start_ms = self._clock()
        if refusal is None and _is_late(fetch, start_ms):
            refusal = Result.SOFT, Reason.DEADLINE
        if refusal is not None:
            return without_exchange(fetch, *refusal, start_ms)
        page = fetch.kind == Kind.PAGE
        response = await self._fetcher.fetch(
            Request(
                url=fetch.url,
                address=fetch.address,
                port=self._port(fetch.url),
                timeout_s=deadline - asyncio.get_running_loop().time(),
                body_bytes=self._fetch_limits.body_bytes if page else robots.MAX_BYTES,
                # A robots file is always read whole: its rules must be at hand, whatever this worker has forgotten.
                etag=fetch.etag if page else "",
                modified=fetch.modified if page else "",
                reuse=fetch.reuse,
            ),
            hold,
        )
        exchange = Exchange(fetch, response, start_ms, end_of(self._clock()))
        return await self._parser.page(exchange) if page else self._robots(exchange)

    async def _refusal(self, fetch: wire.Fetch) -> tuple[Result, Reason] | None:
        """Why the server must not be contacted for this, or None; looking up its name again may take a while."""
        try:
            url = urls.parse(fetch.url)
            ipaddress.ip_address(fetch.address)
        except BadUrl:
            return Result.HARD, Reason.MALFORMED
        except ValueError:
            return Result.HARD, Reason.GUARD
        if fetch.kind == Kind.PAGE:
            rules = self._rules.get(fetch.rules)
            if rules is None:
                return Result.SOFT, Reason.ROBOTS_UNREACHABLE
            if not rules.allows(url.path):
                return Result.DENIED, Reason.ROBOTS_DENIED
        if self._guard.refuses(fetch.address) is not None:
            return Result.HARD, Reason.GUARD
        reason = await self._resolver.still(url.site, fetch.address)
        return None if reason == Reason.NONE else (Result.SOFT, reason)

    def _port(self, url: str) -> int:
        """The port to connect to: the static table's for this host, else the URL's."""
        scheme, host, port = _split(urls.parse(url).site)
        return self._static[host][1] if host in self._static else port or DEFAULT_PORTS[scheme]

    def _robots(self, exchange: Exchange) -> wire.FetchResult:
        answer, size = self._parser.robots(exchange)
        if answer.settles:
            self._rules.put(exchange.fetch.rules, answer.rules, size)
        return answer.result


def _is_late(fetch: wire.Fetch, now_ms: int) -> bool:
    return now_ms > fetch.start_by_ms or now_ms >= fetch.deadline_ms


def _split(site: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of scheme://host[:port], an IPv6 address without its brackets."""
    scheme, _, rest = site.partition("://")
    host, colon, port = rest.rpartition(":")
    if colon and port.isdigit():
        return scheme, host.strip("[]"), int(port)
    return scheme, rest.strip("[]"), None
