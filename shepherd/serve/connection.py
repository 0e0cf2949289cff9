"""One connection: closed if no request comes in time, and refused where there are too many."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from shepherd.serve.listener import FULL

IDLE_S: Final = 60.0  # between two requests


class HttpConnection(web.RequestHandler):
    """aiohttp's, which would wait for a first request as long as a client likes."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, first_s: float, **settings: Any) -> None:
        super().__init__(server, loop=loop, **settings)
        self._first_s = first_s  # for the first request to come whole
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._patience = self._loop.call_later(self._first_s, self._give_up)

    def on_request(self) -> None:
        """A request has come."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self.on_request()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Full(asyncio.Protocol):
    """Instead of a connection that would be one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(FULL)
        transport.close()
