"""From what a server sent to the answer: decoded, parsed and packed, where it can do no harm to others.

Small bodies are worked on here, between two turns of the event loop, with the token noted on the board. Large ones, and those at
which a worker has died before, are worked on in a child of their own: the loop goes on meanwhile, and if the child dies the page
has failed alone. They wait for each other, so the dispatcher is told that their answers will take a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final

from shepherd import robots
from shepherd.errors import PeerLost
from shepherd.formats import coding
from shepherd.formats.tables import Reason
from shepherd.reaper.document import page as answer
from shepherd.reaper.document.robots_rules import RobotsAnswer, robots_file
from shepherd.reaper.fetch.exchange import Body, Context, Exchange, broken, has_body
from shepherd.reaper.process.helper import ChildDied, in_child
from shepherd.reaper.process.shared import Seat
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.reapd")
INLINE_BYTES: Final = 1 << 20  # a body larger than this is decoded and parsed in a child
TELL_S: Final = 10.0  # how often
Say = Callable[[wire.Message], Coroutine[Any, Any, None]]  # to the dispatcher
INCOMPLETE: Final = "incomplete"  # a compressed body that the server ended too early


class Parser:
    def __init__(self, context: Context, decoded_bytes: int, parse_s: float, seat: Seat | None, say: Say) -> None:
        self._context, self._decoded_bytes, self._parse_s, self._seat, self._say = context, decoded_bytes, parse_s, seat, say
        self._large = asyncio.Semaphore(1)  # one large body at a time is held decoded: bombs must not add up

    async def page(self, exchange: Exchange) -> wire.Result:
        """What is small is worked on here; what turns out large is begun again in a child, one at a time."""
        if not has_body(exchange.response):
            return answer.bodiless(self._context, exchange)
        limit = min(self._decoded_bytes, INLINE_BYTES)
        if not exchange.fetch.alone and len(exchange.response.body) < limit:
            with self._noted(exchange):
                body = _decoded(exchange, limit)
                if body is None or len(body.data) < limit:
                    return self._page_of(exchange, body)
        telling = asyncio.create_task(self._tell(exchange.fetch.token))
        try:
            async with self._large:
                return await self._apart(exchange)
        finally:
            telling.cancel()

    async def _tell(self, token: int) -> None:
        """Of a page that waits for its turn, or is worked on: its lease must not end meanwhile."""
        while True:
            await self._say(wire.Working(token, round(3 * TELL_S * 1000)))
            await asyncio.sleep(TELL_S)

    async def _apart(self, exchange: Exchange) -> wire.Result:
        try:
            payload = await in_child(lambda: self._whole(exchange), self._parse_s, wire.LIMIT_AFTER_WELCOME)
            result = wire.decode(payload)
        except (ChildDied, PeerLost) as error:
            LOG.warning("%s: kills its parser: %s", exchange.fetch.url, error)
            return broken(exchange, Reason.PARSER)
        if not isinstance(result, wire.Result) or result.token != exchange.fetch.token:
            LOG.warning("%s: its parser answered for another page", exchange.fetch.url)
            return broken(exchange, Reason.PARSER)
        return result

    def _whole(self, exchange: Exchange) -> bytes:
        """In the child."""
        return wire.payload(self._page_of(exchange, _decoded(exchange, self._decoded_bytes)))

    def _page_of(self, exchange: Exchange, body: Body | None) -> wire.Result:
        return broken(exchange, Reason.DECODING) if body is None else answer.page(self._context, exchange, body)

    def robots(self, exchange: Exchange) -> tuple[RobotsAnswer, int]:
        """The rules in a robots.txt, and how many bytes they were read from."""
        with self._noted(exchange):
            body = _decoded(exchange, robots.MAX_BYTES) if has_body(exchange.response) else None
            if body is not None and body.truncated == INCOMPLETE:
                body = None  # the line that forbids may be the one that is missing
            return robots_file(self._context, exchange, body), len(body.data) if body else 0

    def _noted(self, exchange: Exchange) -> AbstractContextManager[None]:
        return self._seat.at(exchange.fetch.token, time.monotonic_ns()) if self._seat else contextlib.nullcontext()


def _decoded(exchange: Exchange, limit: int) -> Body | None:
    """At most `limit` bytes of the body, decoded; None if that cannot be done."""
    sent, encoding = exchange.response.body, exchange.response.encoding
    cut = exchange.response.cut if exchange.response.truncated else ""
    if not encoding:
        return Body(sent, cut)
    try:
        data, over = coding.decode(sent, encoding, limit)
    except coding.DecodeError:
        return None
    if over and not cut:
        cut = "expansion" if len(data) == limit else INCOMPLETE
    return Body(data, cut) if data or not cut else None
