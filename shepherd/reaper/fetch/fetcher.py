"""One HTTP exchange, guarded and bounded: libcurl's multi interface on the running event loop.

Invariants: a transfer connects to the address and port of its request, or to the operator's proxy, or to nothing; it ends by its
deadline; it holds no more than its limits; whatever a server does, `fetch` returns a Response that says what happened.
Redirects are returned, never followed. The body is what the server sent: decoding is formats/coding.py's. The environment's
proxies, netrc and certificates play no part. Read transfer.py for what happens within one exchange.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import certifi
import pycurl  # type: ignore[import-untyped]

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.memory import STEP_BYTES, Hold, Memory
from shepherd.reaper.fetch.response import Request, Response
from shepherd.reaper.fetch.transfer import Transfer
from shepherd.wire.proxy import Proxy

__all__ = ("Fetcher", "Request", "Response")

SLOW_AFTER_S: Final = 10
MAX_HTTP1_SERVERS: Final = 10_000
_LONG_S: Final = 10 * 86_400  # no limit of its own on connecting: the deadline is of the whole exchange
_SUPPRESS_CONNECT_HEADERS: Final = 265  # has no name in pycurl: what a proxy says is no header of the answer
_TLS: Final = {
    "1.0": pycurl.SSLVERSION_TLSv1_0,
    "1.1": pycurl.SSLVERSION_TLSv1_1,
    "1.2": pycurl.SSLVERSION_TLSv1_2,
    "1.3": pycurl.SSLVERSION_TLSv1_3,
}


class Fetcher:
    """Runs at most `limits.in_flight` transfers at a time, on the event loop that runs when it is created."""

    def __init__(
        self,
        guard: Guard,
        agent: str,
        limits: FetchLimits,
        *,
        authorities: str = "",
        proxy: Proxy | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`authorities` are certificates in PEM, instead of those that come with Shepherd."""
        self._guard, self._agent, self._limits, self._proxy = guard, agent, limits, proxy
        self._memory = memory or Memory(limits.memory_bytes)
        self._authorities = _Authorities(authorities)
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._active: dict[Any, Transfer] = {}
        self._idle: list[Transfer] = []
        self._watched_events: dict[int, int] = {}
        self._http1_servers: set[tuple[str, int]] = set()  # address and port of servers that did not want HTTP/2
        self._timer: asyncio.Handle | None = None
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_NOTHING)
        self._multi.setopt(pycurl.M_MAXCONNECTS, limits.in_flight)

    async def fetch(self, request: Request, hold: Hold | None = None) -> Response:
        """Run one exchange. `hold` counts the bytes of the body for as long as the caller keeps it."""
        if hold is None:
            with self._memory.hold() as own_hold:
                return await self.fetch(request, own_hold)
        if self._proxy is not None and (fault := self._refuses(request, self._proxy)):
            return Response(Reason.GUARD, fault, address=request.address)
        timeout_s = request.timeout_s
        if self._slots.locked() or not self._memory.has_room:
            begin_s = self._loop.time()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._memory.room()
                    await self._slots.acquire()
            except TimeoutError:
                return Response(Reason.DEADLINE, "waited for its turn", address=request.address, total_s=timeout_s)
            timeout_s -= self._loop.time() - begin_s
        else:
            await self._slots.acquire()  # at once
        try:
            return await self._exchange(request, timeout_s, hold)
        finally:
            self._slots.release()

    async def _exchange(self, request: Request, timeout_s: float, hold: Hold) -> Response:
        transfer = self._idle.pop() if self._idle else self._new()
        curl = transfer.curl
        outcome = self._loop.create_future()
        try:
            server = request.address, request.port
            transfer.begin(request, timeout_s, hold, outcome, http1_only=server in self._http1_servers)
            self._active[curl] = transfer
            self._multi.add_handle(curl)
            response = transfer.response(*await outcome)
            if transfer.is_turned_away:
                self._remember_http1(server)
            return response
        finally:
            if self._active.pop(curl, None) is not None:
                self._multi.remove_handle(curl)
            transfer.forget()
            self._idle.append(transfer)

    def _remember_http1(self, server: tuple[str, int]) -> None:
        """Use HTTP/1.1 with this server from the next request on: a retry at once would be a contact that nobody granted."""
        if len(self._http1_servers) >= MAX_HTTP1_SERVERS:
            self._http1_servers.clear()
        self._http1_servers.add(server)

    def close(self) -> None:
        """Drop every transfer and every connection. The caller cancels whoever still waits for a transfer."""
        for curl in self._active:
            self._multi.remove_handle(curl)
        self._active.clear()
        self._multi.close()
        self._set_timer(-1)
        for descriptor in list(self._watched_events):
            self._watch(pycurl.POLL_REMOVE, descriptor)
        for transfer in self._idle:
            transfer.curl.close()
        self._idle.clear()
        self._authorities.close()

    def _refuses(self, request: Request, proxy: Proxy) -> str:
        """Why this must not go through the proxy. Its socket shows the proxy's address alone, so the target is judged here."""
        if self._guard.is_anonymous and not proxy.is_loopback:
            return "no contact address is set, and behind a proxy it is unknown what is this machine"
        return self._guard.refuses(request.address) or ""

    def _new(self) -> Transfer:
        """A new handle with the options that are the same for every exchange."""
        limits, proxy = self._limits, self._proxy
        curl = pycurl.Curl()
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
            (pycurl.HTTP09_ALLOWED, 0),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.HTTP_CONTENT_DECODING, 0),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            (pycurl.USERAGENT, self._agent),
            (pycurl.BUFFERSIZE, STEP_BYTES),
            (pycurl.CONNECTTIMEOUT, _LONG_S),
            (pycurl.LOW_SPEED_LIMIT, limits.min_bytes_per_s),
            (pycurl.LOW_SPEED_TIME, SLOW_AFTER_S),
            (pycurl.SSL_VERIFYPEER, int(limits.verify_tls)),
            (pycurl.SSL_VERIFYHOST, 2 * int(limits.verify_tls)),
            (pycurl.SSLVERSION, _TLS[limits.min_tls]),
            (pycurl.CAINFO, self._authorities.path),
            # An empty proxy means none at all; without this option libcurl would read the environment.
            (pycurl.PROXY, proxy.url if proxy else ""),
            (pycurl.NOPROXY, "" if proxy else "*"),
            (pycurl.HTTPPROXYTUNNEL, int(proxy is not None)),
            (pycurl.HEADEROPT, pycurl.HEADER_SEPARATE),
            (_SUPPRESS_CONNECT_HEADERS, 1),
        ):
            curl.setopt(option, value)
        if proxy and proxy.user:
            curl.setopt(pycurl.PROXYUSERNAME, proxy.user)
            curl.setopt(pycurl.PROXYPASSWORD, proxy.password)
        return Transfer(curl, self._guard, limits.header_bytes, proxy)

    # --- the event loop ---------------------------------------------------------------------------------------------

    def _watch(self, event: int, descriptor: int, *_: object) -> None:
        """Callback of libcurl: watch a socket for these events."""
        events = 0 if event == pycurl.POLL_REMOVE else event
        events_before = self._watched_events.pop(descriptor, 0)
        if events:
            self._watched_events[descriptor] = events
        if events & ~events_before & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
        elif events_before & ~events & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if events & ~events_before & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)
        elif events_before & ~events & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)

    def _set_timer(self, timeout_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ms >= 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, descriptor: int, events: int) -> None:
        _, running = self._multi.socket_action(descriptor, events)
        if running >= len(self._active):
            return
        queued = 1
        while queued:
            queued, good, bad = self._multi.info_read()
            for curl in good:
                self._finish(curl, pycurl.E_OK, "")
            for curl, code, detail in bad:
                self._finish(curl, code, detail)

    def _finish(self, curl: Any, code: int, detail: str) -> None:
        outcome = self._active.pop(curl).outcome
        self._multi.remove_handle(curl)
        if outcome is not None and not outcome.done():
            outcome.set_result((code, detail))


class _Authorities:
    """The file of certificates that libcurl trusts. libcurl caches only files, so a text becomes a file in memory."""

    def __init__(self, pem: str) -> None:
        self._descriptor = -1
        self.path = certifi.where()
        if pem:
            self._descriptor = os.memfd_create("authorities")
            with open(self._descriptor, "w", encoding="utf-8", closefd=False) as file:
                file.write(pem)
            self.path = f"/proc/self/fd/{self._descriptor}"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
