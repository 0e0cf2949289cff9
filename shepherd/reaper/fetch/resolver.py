"""From a site to the address that is contacted: the operator's tables, then DNS, every address judged by the guard.

Invariants: an address that the guard refuses never leaves this module; a name is looked up once until its answer expires, however
many ask for it at the same time; a name without an address is not the same as name servers that
do not answer. Read guard.py first.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.urls import qkey_of_address
from shepherd.wire.hosts import host_of, is_address, is_localhost

if TYPE_CHECKING:
    import aiodns
    import pycares

MIN_TTL_S: Final = 60
MAX_TTL_S: Final = 86_400
LOOPBACK: Final = "127.0.0.1"
MIN_NEGATIVE_S: Final = 60  # the first time that a name has no address; doubled each further time
MAX_NEGATIVE_S: Final = 3_600
MAX_IN_FLIGHT: Final = 100  # with more queries at a time, answers were lost
MAX_CACHED: Final = 100_000  # names; about 40 MB when full
_ROUTE_PROBE: Final = ("2001:4860:4860::8888", 53)  # any global address; nothing is sent to it


@dataclass(frozen=True)
class SiteAddress:
    """Where a site is. Without an address, `reason` says why and `qkey` is 0: only the dispatcher knows the site's footprint."""

    address: str  # "" if none
    port: int | None  # from the static table, else None
    qkey: int
    valid_s: int  # 0 = the name has no address, and the dispatcher decides when to ask again
    reason: Reason  # NONE, NO_ADDRESS, LOOKUP or GUARD


@dataclass(frozen=True)
class _Lookup:
    """The outcome of a lookup: the addresses that the guard allows, best first, and the reason if there are none."""

    addresses: tuple[str, ...]
    reason: Reason
    ttl_s: int = MAX_TTL_S
    is_unknown: bool = False  # there is no such name, for no kind of address


@dataclass(frozen=True)
class _Cached:
    lookup: _Lookup
    expires_s: float
    negative_s: int  # how long to believe this time that it has no address; 0 = it has one


class Resolver:
    """Looks up sites for one worker. Use it inside a running event loop, and close it there."""

    def __init__(
        self,
        guard: Guard,
        static: Mapping[str, tuple[str, int]],
        *,
        hosts: Mapping[str, Sequence[str]] | None = None,
        nameservers: Sequence[str] = (),
        timeout_s: float = 3.0,
        tries: int = 2,
        ipv6: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `nameservers` those of the system are asked. `ipv6` says whether there is a route; None finds out."""
        self._guard, self._static, self._hosts = guard, static, hosts or {}
        self._nameservers = tuple(nameservers)
        self._timeout_s, self._tries = timeout_s, tries
        self._ipv6 = has_ipv6_route() if ipv6 is None else ipv6
        self._clock = clock
        self._dns: aiodns.DNSResolver | None = None
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._cache: dict[str, _Cached] = {}
        self._pending: dict[str, asyncio.Task[_Cached]] = {}

    async def resolve(self, site_name: str) -> SiteAddress:
        """The address of `scheme://host[:port]`."""
        host = host_of(site_name)
        port = self._static[host][1] if host in self._static else None
        lookup = self._without_dns(host)
        if lookup is None:
            cached = await self._lookup(host)
            lookup, valid_s = cached.lookup, max(1, round(cached.expires_s - self._clock()))
        else:
            valid_s = MAX_TTL_S
        if lookup.reason == Reason.NO_ADDRESS:
            valid_s = 0
        if not lookup.addresses:
            return SiteAddress("", port, 0, valid_s, lookup.reason)
        return SiteAddress(lookup.addresses[0], port, qkey_of_address(lookup.addresses[0]), valid_s, Reason.NONE)

    async def still(self, site_name: str, address: str) -> Reason:
        """Reason.NONE if `address` is still among those of the site, else why it is not: NO_ADDRESS if it has moved."""
        host = host_of(site_name)
        lookup = self._without_dns(host) or (await self._lookup(host)).lookup
        if address in lookup.addresses:
            return Reason.NONE
        return Reason.LOOKUP if lookup.reason == Reason.LOOKUP else Reason.NO_ADDRESS

    async def close(self) -> None:
        """Drop all queries; those who wait for one are cancelled."""
        tasks = list(self._pending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._dns is not None:
            await self._dns.close()

    def _without_dns(self, host: str) -> _Lookup | None:
        """The lookup of what needs no DNS: a host of the operator's tables, this machine, or an address; else None."""
        if host in self._static:
            return self._judge([self._static[host][0]], MAX_TTL_S)
        if (places := self._hosts.get(host.removesuffix("."))) is not None:
            return self._judge(places, MAX_TTL_S)
        if is_localhost(host):
            return self._judge([LOOPBACK], MAX_TTL_S)
        return self._judge([host], MAX_TTL_S) if is_address(host) else None

    # --- the cache --------------------------------------------------------------------------------------------------

    async def _lookup(self, host: str) -> _Cached:
        cached = self._cache.get(host)
        if cached is not None and cached.expires_s > self._clock():
            return cached
        task = self._pending.get(host)
        if task is None:
            task = self._pending[host] = asyncio.ensure_future(self._look_up(host, cached))
            task.add_done_callback(lambda finished: self._remember(host, finished))
        return await asyncio.shield(task)  # one who gives up must not take the answer from the others

    async def _look_up(self, host: str, before: _Cached | None) -> _Cached:
        lookup = await self._ask(host)
        negative_s = 0
        if not lookup.addresses:
            negative_s = min(2 * before.negative_s, MAX_NEGATIVE_S) if before and before.negative_s else MIN_NEGATIVE_S
        return _Cached(lookup, self._clock() + (negative_s or lookup.ttl_s), negative_s)

    def _remember(self, host: str, task: asyncio.Task[_Cached]) -> None:
        del self._pending[host]
        if task.cancelled() or task.exception() is not None:
            return
        self._cache.pop(host, None)
        if len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]  # the oldest answer
        self._cache[host] = task.result()

    # --- DNS --------------------------------------------------------------------------------------------------------

    async def _ask(self, host: str) -> _Lookup:
        """IPv4 first; IPv6 only where it is certain that there is no IPv4 address to be contacted.

        A failed lookup does not mean "no IPv4": the site would change its queue key, and be contacted in two groups at a time.
        """
        first = await self._query(host, "A")
        if first.addresses or first.is_unknown or not self._ipv6 or first.reason == Reason.LOOKUP:
            return first
        second = await self._query(host, "AAAA")
        return first if first.reason == Reason.GUARD and not second.addresses else second

    async def _query(self, host: str, kind: str) -> _Lookup:
        """Addresses of one family, judged."""
        import aiodns
        from pycares import errno

        try:
            async with self._slots:
                result = await self._channel().query_dns(host, kind)
        except aiodns.error.DNSError as error:
            code = error.args[0]
            nowhere = code in (errno.ARES_ENOTFOUND, errno.ARES_ENODATA, errno.ARES_EBADNAME)
            return _Lookup((), Reason.NO_ADDRESS if nowhere else Reason.LOOKUP, is_unknown=code == errno.ARES_ENOTFOUND)
        except UnicodeError:  # a name that no DNS packet can carry
            return _Lookup((), Reason.NO_ADDRESS)
        addresses, ttl_s = _follow(result.answer, host)
        return self._judge(addresses, min(MAX_TTL_S, max(MIN_TTL_S, ttl_s)))

    def _channel(self) -> aiodns.DNSResolver:
        """Made at the first query: it belongs to the running loop and starts a thread, which no fork would survive."""
        import aiodns

        if self._dns is None:
            loop = asyncio.get_running_loop()
            self._dns = aiodns.DNSResolver(self._nameservers or None, loop, timeout=self._timeout_s, tries=self._tries)
        return self._dns

    def _judge(self, addresses: Sequence[str], ttl_s: int) -> _Lookup:
        reachable = [parsed for parsed in map(ipaddress.ip_address, addresses) if parsed.version == 4 or self._ipv6]
        allowed = [parsed for parsed in reachable if self._guard.refuses(str(parsed)) is None]
        if not allowed:
            return _Lookup((), Reason.GUARD if reachable else Reason.NO_ADDRESS)
        allowed.sort(key=lambda parsed: (parsed.version, int(parsed)))
        return _Lookup(tuple(map(str, allowed)), Reason.NONE, ttl_s)


def _follow(records: Sequence[pycares.DNSRecord], host: str) -> tuple[list[str], int]:
    """The addresses at the end of the chain of CNAMEs that begins at `host`; they hold as long as its shortest link.

    Records of other names are ignored: whoever answers for one name must not speak for another.
    """
    from pycares import CNAMERecordData

    records_by_name: dict[str, list[pycares.DNSRecord]] = {}
    for record in records:
        records_by_name.setdefault(_fold(record.name), []).append(record)
    name, ttl_s = _fold(host), MAX_TTL_S
    while own_records := records_by_name.pop(name, None):  # removed, so that a loop of aliases ends
        ttl_s = min(ttl_s, *(record.ttl for record in own_records))
        aliases = [record.data.cname for record in own_records if isinstance(record.data, CNAMERecordData)]
        if not aliases:
            return [record.data.addr for record in own_records if hasattr(record.data, "addr")], ttl_s
        name = _fold(aliases[0])
    return [], ttl_s


def has_ipv6_route() -> bool:
    """Whether this machine has a route to global IPv6 addresses. Connecting a datagram socket sends nothing."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(_ROUTE_PROBE)
    except OSError:
        return False
    return True


def _fold(name: str) -> str:
    return name.lower().removesuffix(".")
