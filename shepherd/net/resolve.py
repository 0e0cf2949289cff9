"""From a site's name to the address that is contacted: the static table, then DNS, every address judged by the guard.

Invariant: an address that the guard refuses never leaves this module, and a name is looked up once until its answer expires,
however many ask for it at the same time. Read guard.py first.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shepherd.errors import ConfigError
from shepherd.formats.tables import Reason
from shepherd.net.guard import Guard
from shepherd.urls import qkey_of_address

if TYPE_CHECKING:
    import aiodns

MIN_TTL_S: Final = 60
MAX_TTL_S: Final = 86_400
LOOPBACK: Final = "127.0.0.1"
NEGATIVE_TTL_S: Final = 300
MAX_IN_FLIGHT: Final = 100  # with more queries at a time, answers were lost
MAX_CACHED: Final = 100_000  # names; about 40 MB when full
_ROUTE_PROBE: Final = ("2001:4860:4860::8888", 53)  # any global address; nothing is sent to it


@dataclass(frozen=True)
class Answer:
    """Where a site is. Without an address, `reason` says why and `qkey` is 0: only the dispatcher knows the site's footprint."""

    address: str  # "" if none
    port: int | None  # from the static table, else None
    qkey: int
    valid_s: int
    reason: int  # Reason.NONE, NO_ADDRESS or GUARD


@dataclass(frozen=True)
class _Found:
    """What a lookup gave: the addresses the guard lets through, best first, and the reason if there are none."""

    addresses: tuple[str, ...]
    reason: Reason
    expires_s: float


class Resolver:
    """Looks up sites for one worker. To be used inside a running event loop, and closed there."""

    def __init__(
        self,
        guard: Guard,
        static: Mapping[str, tuple[str, int]],
        *,
        nameservers: Sequence[str] = (),
        udp_port: int | None = None,
        timeout_s: float = 3.0,
        tries: int = 2,
        ipv6: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `nameservers` those of the system are asked. `ipv6` says whether there is a route; None finds out."""
        self._guard = guard
        self._static = static
        self._nameservers = tuple(nameservers)
        self._options = {"udp_port": udp_port, "tcp_port": udp_port, "timeout": timeout_s, "tries": tries}
        self._ipv6 = has_ipv6_route() if ipv6 is None else ipv6
        self._clock = clock
        self._dns: aiodns.DNSResolver | None = None
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._cache: dict[str, _Found] = {}
        self._pending: dict[str, asyncio.Task[_Found]] = {}

    async def resolve(self, site_name: str) -> Answer:
        """The address of `scheme://host[:port]`."""
        host = _host(site_name)
        address, port = self._static.get(host, (LOOPBACK if _is_localhost(host) else "", None))
        if not address and not _is_address(host):
            found = await self._lookup(host)
            return self._answer(found, None, max(1, round(found.expires_s - self._clock())))
        return self._answer(self._judge([address or host], MAX_TTL_S), port, MAX_TTL_S)

    async def still(self, site_name: str, address: str) -> bool:
        """Whether `address` is still among those of the site."""
        host = _host(site_name)
        if host in self._static:
            return self._static[host][0] == address and self._guard.refuses(address) is None
        if _is_localhost(host):
            return address == LOOPBACK and self._guard.refuses(address) is None
        if _is_address(host):
            return host == address and self._guard.refuses(address) is None
        return address in (await self._lookup(host)).addresses

    async def close(self) -> None:
        """Drop all queries; those who wait for one are cancelled."""
        tasks = list(self._pending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._dns is not None:
            await self._dns.close()

    def _answer(self, found: _Found, port: int | None, valid_s: int) -> Answer:
        if not found.addresses:
            return Answer("", port, 0, valid_s, found.reason)
        return Answer(found.addresses[0], port, qkey_of_address(found.addresses[0]), valid_s, Reason.NONE)

    async def _lookup(self, host: str) -> _Found:
        known = self._cache.get(host)
        if known is not None and known.expires_s > self._clock():
            return known
        task = self._pending.get(host)
        if task is None:
            task = self._pending[host] = asyncio.ensure_future(self._ask(host))
            task.add_done_callback(lambda done: self._remember(host, done))
        return await asyncio.shield(task)  # one who gives up must not take the answer from the others

    def _remember(self, host: str, task: asyncio.Task[_Found]) -> None:
        del self._pending[host]
        if task.cancelled() or task.exception() is not None:
            return
        self._cache.pop(host, None)
        if len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]  # the one asked longest ago
        self._cache[host] = task.result()

    async def _ask(self, host: str) -> _Found:
        addresses, ttl_s = await self._query(host, "A")
        found = self._judge(addresses, ttl_s)
        if found.addresses or not self._ipv6:
            return found
        addresses, ttl_s = await self._query(host, "AAAA")
        second = self._judge(addresses, ttl_s)
        return second if second.addresses or found.reason != Reason.GUARD else found

    async def _query(self, host: str, kind: str) -> tuple[list[str], int]:
        """Addresses of one family and how long they hold; none where the name has none or nobody answers."""
        import aiodns
        from pycares import AAAARecordData, ARecordData

        try:
            async with self._slots:
                result = await self._channel().query_dns(host, kind)
        except (aiodns.error.DNSError, UnicodeError):  # UnicodeError: a name that no DNS packet can carry
            return [], NEGATIVE_TTL_S
        # The answer holds the chain of CNAMEs as well: it is valid as long as its shortest link.
        addresses = [record.data.addr for record in result.answer if isinstance(record.data, ARecordData | AAAARecordData)]
        if not addresses:
            return [], NEGATIVE_TTL_S
        return addresses, min(MAX_TTL_S, max(MIN_TTL_S, min(record.ttl for record in result.answer)))

    def _channel(self) -> aiodns.DNSResolver:
        """Made at the first query: it belongs to the running loop and starts a thread, which no fork would survive."""
        import aiodns

        if self._dns is None:
            options = {name: value for name, value in self._options.items() if value is not None}
            self._dns = aiodns.DNSResolver(self._nameservers or None, asyncio.get_running_loop(), **options)
        return self._dns

    def _judge(self, addresses: Sequence[str], ttl_s: int) -> _Found:
        reachable = [parsed for parsed in map(ipaddress.ip_address, addresses) if parsed.version == 4 or self._ipv6]
        allowed = [parsed for parsed in reachable if self._guard.refuses(str(parsed)) is None]
        if not allowed:
            return _Found((), Reason.GUARD if reachable else Reason.NO_ADDRESS, self._clock() + NEGATIVE_TTL_S)
        allowed.sort(key=lambda parsed: (parsed.version, int(parsed)))
        return _Found(tuple(map(str, allowed)), Reason.NONE, self._clock() + ttl_s)


def has_ipv6_route() -> bool:
    """Whether this machine has a way to global IPv6 addresses. Connecting a datagram socket only looks at the routes."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(_ROUTE_PROBE)
    except OSError:
        return False
    return True


def read_static(path: Path) -> dict[str, tuple[str, int]]:
    """The static table: lines of `host address port`, `#` begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    table: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not _is_address(words[1]) or not words[2].isdecimal() or not 0 < int(words[2]) < 65_536:
            raise ConfigError(f"{path}: line {number}: must be `host address port`, not {line.strip()!r}")
        host = words[0].lower()
        if host in table:
            raise ConfigError(f"{path}: line {number}: {host} stands there twice; keep one of the lines")
        table[host] = (str(ipaddress.ip_address(words[1])), int(words[2]))
    return table


def _host(site_name: str) -> str:
    """The host of `scheme://host[:port]`, an IPv6 address without its brackets."""
    rest = site_name.partition("://")[2]
    if rest.startswith("["):
        return rest[1 : rest.index("]")]
    return rest.partition(":")[0]


def _is_localhost(host: str) -> bool:
    """RFC 6761: a name that is this machine's own and not to be looked up."""
    return host.removesuffix(".") == "localhost" or host.removesuffix(".").endswith(".localhost")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
