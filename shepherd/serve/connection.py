"""One connection: closed if no request with a token comes in time, and refused where there is no seat.

Invariant: an answer leaves only if the application has made it (app.py), or it is one of the fixed ones here. aiohttp would log
what is no request of HTTP, and answer it with the very bytes that came, which may be a token.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
from typing import Any, Final

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError, PayloadEncodingError

from shepherd.serve.answers import Refused, adorn_now, refusal
from shepherd.serve.listener import FULL
from shepherd.serve.log import EventThrottle, log_bug
from shepherd.serve.seats import Seat, Seats
from shepherd.serve.service import Ask, Service

IDLE_S: Final = 60.0  # between two requests
ANSWERED: Final = "answered"  # in a request: its answer is the application's
BROKEN: Final = Refused(400, "this is not a request of HTTP/1.1 as this server reads it; it ends the connection")
_OF_CLIENT: Final = (
    HttpProcessingError,
    PayloadEncodingError,
    ClientPayloadError,
    web.RequestPayloadError,
    ConnectionError,
    UnicodeError,  # aiohttp puts an unknown Expect into an answer of its own, which not every header can be
)


class HttpConnection(web.RequestHandler):
    """aiohttp's, which would wait for a first request, and for the end of any, as long as a stranger likes."""

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        seats: Seats,
        stranger_s: float,
        broken_requests: EventThrottle,
        **settings: Any,
    ) -> None:
        super().__init__(server, loop=loop, **settings)
        self._service, self._broken_requests = service, broken_requests
        self._seats, self._seat = seats, Seat(-1, "", self._give_up)
        self._stranger_s = stranger_s  # for a request to come whole, and for the answer to one without a token
        self._patience: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._own_transport: asyncio.WriteTransport | None = (
            None  # aiohttp lets go of its own when it is to close, and not yet closed
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._own_transport = transport
        super().connection_made(transport)
        seat = self._seats.find(transport.get_extra_info("socket").fileno())
        if seat is None:  # taken away in this very moment
            self._give_up()
            return
        self._seat = seat
        self._seat.close = self._give_up
        self._wait_for_token()

    def on_request(self, client: str | None) -> None:
        """A request has come: of a client, which from now on has time, or of a stranger."""
        self._seats.on_request(self._seat, client)
        self._service.drain.enter(self)
        self._stop_waiting()
        if client is None:
            self._wait_for_token()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        self._service.drain.leave(self)
        super().connection_lost(exc)

    def _wait_for_token(self) -> None:
        self._patience = self._loop.call_later(self._stranger_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        transport = self._own_transport
        if transport is None:
            return
        if transport.get_write_buffer_size():  # the system would keep megabytes for a reader that takes nothing
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _watch_reader(self, buffered_before: float = math.inf) -> None:
        """Drop a reader that takes nothing of an answer in two looks, a stall from each other."""
        transport = self._own_transport
        buffered = transport.get_write_buffer_size() if transport else 0
        if buffered and buffered >= buffered_before:
            self._give_up()
            return
        self._stall = self._loop.call_later(self._service.settings.stall_s, self._watch_reader, buffered or math.inf)

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # --- what no handler sees

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what cannot be read as a request."""
        if request.writer.output_size > 0:
            raise ConnectionError("half an answer is out already")
        if not isinstance(exc, _OF_CLIENT):
            log_bug(exc)
        return self._broken(request, type(exc).__name__)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Whatever is to be sent goes through here."""
        if ANSWERED not in request:
            resp = self._broken(request, type(resp).__name__)
        self._watch_reader()
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._stop_watching()
            self._seats.on_answer(self._seat)
            self._service.drain.leave(self)

    def _broken(self, request: web.BaseRequest, kind: str) -> web.StreamResponse:
        """It counts as any request of this address does. `kind` is a name of aiohttp's for what is wrong."""
        assert isinstance(request, web.Request)
        ask = Ask(self._service, request)
        try:
            ask.count()
            response = refusal(BROKEN)
        except Refused as refused:
            response = refusal(refused)
        adorn_now(response)
        response.force_close()
        text = f"{request.remote} sends what is no request ({kind})"
        self._broken_requests.log("broken_request", text, logging.WARNING, peer=request.remote, kind=kind, status=response.status)
        self._service.metrics.answered("none", response.status, response.content_length or 0, 0.0)
        request[ANSWERED] = True
        return response

    def log_exception(self, *_words: Any, exc_info: Any = None, **_more: Any) -> None:
        """What aiohttp would log with its text: mostly a body that breaks where nobody reads it any more."""
        if not isinstance(exc_info, _OF_CLIENT):
            log_bug(exc_info)


class Full(asyncio.Protocol):
    """Instead of a connection for which there is no seat."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(FULL)
        transport.close()
