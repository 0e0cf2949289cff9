"""Every way to make us ask an inner address, from the URL to the socket: none reaches the listener that waits there."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from shepherd import urls
from shepherd.config import FetchLimits
from shepherd.errors import BadUrl
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.reaper.fetch.fetcher import Fetcher, Request
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.resolver import Resolver
from tests.support import driver
from tests.support.dns import AAAA, Record, serve_dns
from tests.support.dns import A as A_RECORD
from tests.support.origin import Answer, Origin, ok, serve

# Hosts of URLs, as a page may spell them. The URL parser makes addresses of most; the others are looked up, or refused.
SPELLED = [
    "127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f.0.0.1", "0x7F000001", "0x7f.0x0.0x0.0x1", "2130706433",
    "017700000001", "0177.0.0.1", "0177.1", "00177.000.000.001", "127.0.0.1.", "127.000.000.001", "127.65535",
    "127.255.255.254", "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "①②⑦.⓪.⓪.①", "１２７.０.０.１", "127。0。0。1", "0", "0.0.0.0",
    "0x0", "00", "0.0", "0.0.0.1", "localhost", "LOCALHOST", "localhost.", "a.localhost", "a.b.localhost.", "ⓛocalhost",
    "loc%61lhost", "10.0.0.1", "10.1", "167772161", "0xa000001", "012.0.0.1", "172.16.0.1", "172.31.255.254",
    "192.168.0.1", "192.168.1", "3232235521", "100.64.0.1", "100.100.100.200", "169.254.169.254", "169.254.43518",
    "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xA9.0xFE.0xA9.0xFE", "169.254.170.2", "168.63.129.16",
    "192.0.0.192", "192.0.0.170", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "4294967295", "037777777777", "[::1]", "[::]",
    "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::0.0.0.1]", "[::127.0.0.1]", "[::7f00:1]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::FFFF:127.0.0.1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::]", "[2002:7f00:0001::1]",
    "[2002:a9fe:a9fe::]", "[2002:a00:1::]", "[2002:c0a8:1::]", "[2001:0:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[2001:0:0:0:0:0:5601:5601]", "[fe80::1]", "[fe80::a9fe:a9fe]",
    "[fec0::1]", "[fc00::1]", "[fd00::1]", "[fd00:ec2::254]", "[fd20:ce::254]", "[ff02::1]", "[ff0e::1]", "[100::1]",
    "[2001:db8::1]", "[2001:2::1]", "[2001:10::1]", "[3fff::1]", "[5f00::1]", "[4000::1]",
    "[2606:4700::5efe:127.0.0.1]", "[2606:4700::200:5efe:10.0.0.1]", "[::1%25lo]", "[fe80::1%25eth0]", "user@127.0.0.1",
    "127.0.0.1:80@127.0.0.1",
]  # fmt: skip
# Addresses that a stranger's DNS may give for a name of its own.
ANSWERED = [
    "127.0.0.1", "127.0.0.2", "127.255.255.255", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1",
    "100.64.0.1", "169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255",
    "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "fe80::1",
    "fec0::1", "fd00:ec2::254", "ff02::1",
]  # fmt: skip


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[str]]]:
    """Every loopback address of both families on one port; who connected."""
    reached: list[str] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("", 0)))
        port = listener.getsockname()[1]
        listeners = [listener]
        with contextlib.suppress(OSError):
            listeners.append(stack.enter_context(socket.create_server(("::", port), family=socket.AF_INET6)))

        def accept(one: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, peer = one.accept()
                    reached.append(str(peer))
                    connection.close()

        threads = [threading.Thread(target=accept, args=(one,), daemon=True) for one in listeners]
        for thread in threads:
            thread.start()
        yield port, reached
        for one in listeners:
            one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


async def attempt(url: str, resolver: Resolver, fetcher: Fetcher, address: str = "") -> Reason:
    """As a worker goes about it. If it comes to nothing, the fetch is made all the same, with what the URL or DNS says."""
    try:
        parsed = urls.parse(url)
    except BadUrl:
        return Reason.FILTER
    found = await resolver.resolve(parsed.site)
    port = int(parsed.site.rpartition(":")[2])
    assert not found.address, url
    host = address or parsed.site.partition("://")[2].rpartition(":")[0].strip("[]")
    with contextlib.suppress(ValueError):
        forced = await fetcher.fetch(Request(parsed.href, str(ipaddress.ip_address(host)), port, 5, 1000))
        assert (forced.reason, forced.contacted) == (Reason.GUARD, False), url
    return found.reason


def test_no_spelling_reaches_an_inner_address(record_property: Callable[[str, object], None]) -> None:
    zone: dict[str, list[Record]] = {
        f"n{number}.example": [(AAAA if ":" in address else A_RECORD, address, 60)] for number, address in enumerate(ANSWERED)
    }
    with listening() as (port, reached):

        async def run() -> list[tuple[str, Reason]]:
            async with serve_dns(zone) as (_dns, server):
                guard = Guard(())
                resolver = Resolver(guard, {}, nameservers=[server], timeout_s=0.5, tries=1, ipv6=True)
                fetcher = Fetcher(guard, "shepherd/test", FetchLimits())
                targets = [(host, "") for host in SPELLED] + list(zip(zone, ANSWERED, strict=True))
                told = [(host, await attempt(f"http://{host}:{port}/", resolver, fetcher, to)) for host, to in targets]
                await resolver.close()
                fetcher.close()
                return told

        told = uvloop.run(run())
        assert reached == []
    refused = {Reason.GUARD, Reason.FILTER}  # by the guard, or as no URL at all
    assert [pair for pair in told if pair[1] not in refused] == []
    assert sum(reason == Reason.GUARD for _, reason in told) >= 120
    record_property("score", ("test_ssrf: targets tried", (len(told), len(reached), 0)))


def test_allowed_address_reaches_the_listener() -> None:
    """Proves that the refusals of the other test are not for want of a listener."""
    with listening() as (port, reached):

        async def run() -> None:
            guard = Guard(("127.0.0.0/8", "0.0.0.0/8", "::1/128"))
            fetcher = Fetcher(guard, "shepherd/test", FetchLimits())
            for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
                await fetcher.fetch(Request(f"http://{address}:{port}/", address, port, 5, 1000))
            fetcher.close()

        uvloop.run(run())
        assert len(reached) == 3


def rebind(kind: Kind) -> tuple[list[tuple[Result, Reason]], Origin, Origin]:
    """A name that is at 127.0.0.1 when it is resolved, and at 127.0.0.2 ever after; what a worker says before and after."""
    page = ok(b"<p>hello</p>", "Content-Type: text/html")
    routes: dict[str, Answer] = {"/x": page, "/robots.txt": page}
    with serve(routes) as outer, serve(routes, address="127.0.0.2", port=outer.port) as inner:

        async def run() -> list[tuple[Result, Reason]]:
            async with serve_dns({"a.example": [(A_RECORD, "127.0.0.1", 0)]}) as (dns, server):
                changes: dict[str, Any] = {"static": {}, "settings": {"nameservers": [server]}, "allow": ["127.0.0.1/32"]}
                async with driver.connected(outer, **changes) as dispatcher:
                    await dispatcher.rules()
                    url = f"http://a.example:{outer.port}" + ("/x" if kind == Kind.PAGE else "/robots.txt")
                    told = [(await dispatcher.fetch("/x", url=url, kind=kind)).verdict]
                    dns.zone["a.example"] = [(A_RECORD, "127.0.0.2", 0)]
                    told.append((await dispatcher.fetch("/x", url=url, kind=kind)).verdict)  # the answer still holds
                async with driver.connected(outer, **changes) as dispatcher:
                    await dispatcher.rules()
                    moved = await dispatcher.fetch("/x", url=url, kind=kind)
                    assert not moved.contacted
                    told.append(moved.verdict)
                    forced = await dispatcher.fetch("/x", url=url, kind=kind, address="127.0.0.2")
                    assert not forced.contacted
                    told.append(forced.verdict)
                return told

        return driver.run(run()), outer, inner


@pytest.mark.parametrize("kind", [Kind.PAGE, Kind.ROBOTS])
def test_rebound_name_is_fetched_where_it_was_judged_or_not_at_all(kind: Kind) -> None:
    told, outer, inner = rebind(kind)
    stored = (Result.STORED, Reason.GATHERED)
    assert told == [stored, stored, (Result.SOFT, Reason.NO_ADDRESS), (Result.HARD, Reason.GUARD)]
    assert (len(outer.seen), inner.connections) == (2, 0)
