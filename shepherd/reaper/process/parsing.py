"""From the bytes that a server sent to the result: decoded, parsed and packed, where it can do no harm to others.

Small bodies are parsed here, between two turns of the event loop, with their token in the worker's slot. Large ones, and those at
which a worker has died before, are parsed in a child of their own: the loop continues meanwhile, and if the child dies only that
page has failed. They wait for each other, so the dispatcher gets a WORKING message while their results take a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final

from msgspec.structs import replace

from shepherd import robots
from shepherd.errors import PeerLost
from shepherd.formats import coding, journal
from shepherd.formats.tables import JournalFlag, Reason
from shepherd.reaper.document.page import bodiless_result, page_result
from shepherd.reaper.document.robots_rules import RobotsAnswer, robots_file
from shepherd.reaper.fetch.exchange import Body, Context, Exchange, has_body, unusable
from shepherd.reaper.process.helper import ChildDied, in_child
from shepherd.reaper.process.shared import WorkerSlot
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.reapd")
INLINE_BYTES: Final = 1 << 20  # a body larger than this is decoded and parsed in a child
COSTLY_S: Final = 1.0  # of CPU for a page, which takes a millisecond: its record says so
WORKING_INTERVAL_S: Final = 10.0  # how often
Send = Callable[[wire.Message], Coroutine[Any, Any, None]]  # to the dispatcher
INCOMPLETE: Final = "incomplete"  # a compressed body that the server ended too early


class Parser:
    def __init__(self, context: Context, decoded_bytes: int, parse_s: float, slot: WorkerSlot | None, send: Send) -> None:
        self._context, self._decoded_bytes, self._parse_s, self._slot, self._send = context, decoded_bytes, parse_s, slot, send
        self._large = asyncio.Semaphore(1)  # one large body at a time is held decoded: bombs must not add up

    async def page(self, exchange: Exchange) -> wire.FetchResult:
        """Parse a small page here; a page that turns out large starts again in a child, one at a time."""
        if not has_body(exchange.response):
            return bodiless_result(self._context, exchange)
        limit = min(self._decoded_bytes, INLINE_BYTES)
        if not exchange.fetch.alone and len(exchange.response.body) < limit:
            with self._slot_in_use(exchange):
                start_s = time.process_time()
                body = _decode(exchange, limit)
                if body is None or len(body.data) < limit:
                    return _with_cost(self._page_of(exchange, body), time.process_time() - start_s)
        reporting = asyncio.create_task(self._report_working(exchange.fetch.token))
        try:
            async with self._large:
                return await self._in_child(exchange)
        finally:
            reporting.cancel()

    async def _report_working(self, token: int) -> None:
        """Report a page that waits for its turn or is being parsed: its lease must not end meanwhile."""
        while True:
            await self._send(wire.Working(token, round(3 * WORKING_INTERVAL_S * 1000)))
            await asyncio.sleep(WORKING_INTERVAL_S)

    async def _in_child(self, exchange: Exchange) -> wire.FetchResult:
        try:
            payload = await in_child(lambda: self._payload(exchange), self._parse_s, wire.LIMIT_AFTER_WELCOME)
            result = wire.decode(payload)
        except (ChildDied, PeerLost) as error:
            LOG.warning("%s: kills its parser: %s", exchange.fetch.url, error)
            return unusable(exchange, Reason.PARSER)
        if not isinstance(result, wire.FetchResult) or result.token != exchange.fetch.token:
            LOG.warning("%s: its parser answered for another page", exchange.fetch.url)
            return unusable(exchange, Reason.PARSER)
        return result

    def _payload(self, exchange: Exchange) -> bytes:
        """In the child."""
        start_s = time.process_time()
        result = self._page_of(exchange, _decode(exchange, self._decoded_bytes))
        return wire.payload(_with_cost(result, time.process_time() - start_s))

    def _page_of(self, exchange: Exchange, body: Body | None) -> wire.FetchResult:
        return unusable(exchange, Reason.DECODING) if body is None else page_result(self._context, exchange, body)

    def robots(self, exchange: Exchange) -> tuple[RobotsAnswer, int]:
        """The rules in a robots.txt, and how many bytes they were read from."""
        with self._slot_in_use(exchange):
            body = _decode(exchange, robots.MAX_BYTES) if has_body(exchange.response) else None
            if body is not None and body.truncated == INCOMPLETE:
                body = None  # the missing part may hold a line that forbids
            return robots_file(self._context, exchange, body), len(body.data) if body else 0

    def _slot_in_use(self, exchange: Exchange) -> AbstractContextManager[None]:
        return self._slot.parsing(exchange.fetch.token, time.monotonic_ns()) if self._slot else contextlib.nullcontext()


def _with_cost(result: wire.FetchResult, cpu_s: float) -> wire.FetchResult:
    """The result, marked where the page has cost much."""
    if cpu_s < COSTLY_S:
        return result
    record = journal.unpack(result.record)
    return replace(result, record=record._replace(flags=record.flags | JournalFlag.COSTLY).pack())


def _decode(exchange: Exchange, limit: int) -> Body | None:
    """At most `limit` bytes of the body, decoded; None if that cannot be done."""
    raw, encoding = exchange.response.body, exchange.response.encoding
    cut = exchange.response.cut if exchange.response.truncated else ""
    if not encoding:
        return Body(raw, cut)
    try:
        data, over = coding.decode(raw, encoding, limit)
    except coding.DecodeError:
        return None
    if over and not cut:
        cut = "expansion" if len(data) == limit else INCOMPLETE
    return Body(data, cut) if data or not cut else None
