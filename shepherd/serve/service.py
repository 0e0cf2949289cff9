"""What all handlers share: the database, the clients and their limits, the threads; and `Ask`, one request as they see it.

The event loop only reads requests and writes small answers. Whatever touches the disk or numpy runs in a thread, by `Ask.work`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import PayloadEncodingError

from shepherd.addresses import network_of
from shepherd.config import Config, Serve
from shepherd.serve.answers import Refused
from shepherd.serve.drain import LEAVING, Drain
from shepherd.serve.limits import Allowance, ClientLimits
from shepherd.serve.metrics import Metrics
from shepherd.serve.status import StatusFigures
from shepherd.serve.tokens import Client, Tokens
from shepherd.store.state.database import Database

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B", bound=msgspec.Struct)
JSON_BYTES: Final = 1 << 16  # of a request
JSON_S: Final = 10.0
SPARE_THREADS: Final = 8


class Service:
    """One server of one database."""

    def __init__(self, database: Database, config: Config, tokens: Tokens) -> None:
        self.database, self.config, self.tokens = database, config, tokens
        self.limits = ClientLimits(config.serve)
        self.figures = StatusFigures(database, config)
        self.metrics = Metrics(self.figures, database.log_path)
        self.drain = Drain()
        self.explaining = 0  # URLs, at the moment
        self.seconds_of: dict[str, int] = {}  # how long each lease was asked for; unknown for those of an earlier run
        self.taking = threading.Lock()  # held while a lease is taken: so that their limits count those of other threads
        self._threads = ThreadPoolExecutor(config.serve.connections + SPARE_THREADS, "serve")
        self._sockets: set[socket.socket] = set()
        self._is_closed = False

    @property
    def settings(self) -> Serve:
        return self.config.serve

    @staticmethod
    def now() -> int:
        return int(time.time())

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    async def work(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a thread; Refused where there are none any more."""
        if self._is_closed:
            raise LEAVING
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    @contextlib.contextmanager
    def sending_on(self, connection: socket.socket) -> Iterator[None]:
        """While a thread sends on a socket: `close` cuts it off."""
        self._sockets.add(connection)
        try:
            yield
        finally:
            self._sockets.discard(connection)

    def close(self) -> None:
        """End what threads are sending; they find their sockets shut."""
        self._is_closed = True
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown(wait=False, cancel_futures=True)


SERVICE: Final = web.AppKey("service", Service)


@dataclass
class Ask:
    """One request of one client. `notes` goes into the log beside what every line has."""

    service: Service
    request: web.Request
    client: Client | None = None  # None = whoever it is: for what is open to all
    parameter_names: tuple[str, ...] = ()  # of the query, that the route has
    notes: dict[str, Any] = field(default_factory=dict)
    bytes_sent: int | None = None  # bytes that a thread has sent past the server

    @property
    def who(self) -> Client:
        assert self.client is not None, "a route without a role has no client"
        return self.client

    @property
    def is_head(self) -> bool:
        """Only the headers of the answer are wanted."""
        return self.request.method == "HEAD"

    @property
    def allowance(self) -> Allowance:
        if self.client is None:
            return self.service.limits.of_stranger(network_of(self.request.remote or ""))
        return self.service.limits.of(self.client.name)

    def count(self) -> None:
        """Count it against the limit of requests of whoever sends it; Refused if there are too many."""
        if wait_s := self.allowance.requests.try_take():
            raise Refused(429, "too many requests in a second (serve.requests_per_s)", {"Retry-After": f"{int(wait_s) + 1}"})
        if self.client is None and (wait_s := self.allowance.bytes.try_take(0)):  # those of clients wait while they are sent
            raise Refused(429, "too many bytes in a second (serve.bytes_per_s)", {"Retry-After": f"{int(wait_s) + 1}"})

    async def work(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.service.work(function, *args, **kwargs)

    def parameters(self) -> dict[str, str]:
        """The query; an unknown parameter, or one that is there twice, is refused: a slip must not widen a choice."""
        parameters: dict[str, str] = {}
        for name, value in self.request.query.items():
            if name not in self.parameter_names or name in parameters:
                allowed = ", ".join(self.parameter_names) or "none"
                raise Refused(400, f"parameter {name[:40]!r} is not known here or is there twice; allowed are {allowed}")
            parameters[name] = value
        return parameters

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """While the body of the request comes: a client that breaks it off is no failure of ours."""
        try:
            yield
        except (ConnectionError, ClientPayloadError, web.RequestPayloadError, PayloadEncodingError) as error:
            self.notes["cut"] = type(error).__name__  # its text may have what the client sent
            raise Refused(400, "the request broke off; nothing was taken, send it again") from None

    async def body(self, kind: type[B]) -> B:
        """What was sent, as JSON; Refused says what does not fit. Nothing is the same as an object without fields."""
        try:
            with self.receiving():
                async with asyncio.timeout(JSON_S):
                    data = await self.request.content.read(JSON_BYTES + 1)
                    while len(data) <= JSON_BYTES and not self.request.content.at_eof():
                        data += await self.request.content.read(JSON_BYTES + 1)
        except TimeoutError:
            raise Refused(408, f"the request did not come within {JSON_S:.0f} s") from None
        if len(data) > JSON_BYTES:
            raise Refused(413, f"a request of more than {JSON_BYTES} bytes")
        try:
            return msgspec.json.decode(data if data.strip() else b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"{str(error)[:200]}; /openapi.json says what is expected") from None
