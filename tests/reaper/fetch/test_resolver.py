"""The resolver, against a little DNS server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shepherd.errors import ConfigError
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.reaper.fetch.resolver import MAX_IN_FLIGHT, MAX_NEGATIVE_S, Resolver, SiteAddress
from shepherd.urls import qkey_of_address
from shepherd.wire.hosts import read_hosts, read_static
from tests.support.dns import AAAA, CNAME, REFUSED, SERVFAIL, A, Dns, Record, serve_dns

ZONE: dict[str, list[Record]] = {  # name -> records of (type, data, ttl)
    "one.example": [(A, "93.184.216.34", 3600)],
    "many.example": [(A, "93.184.216.34", 3600), (A, "8.8.8.8", 600), (A, "9.9.9.9", 900)],
    "both.example": [(AAAA, "2606:4700::1111", 300), (A, "93.184.216.34", 300)],
    "six.example": [(AAAA, "2606:4700::2222", 300), (AAAA, "2606:4700::1111", 300)],
    "inner.example": [(A, "127.0.0.1", 300), (A, "10.0.0.1", 300)],
    "inner6.example": [(AAAA, "::1", 300)],
    "mixed.example": [(A, "10.0.0.1", 300), (A, "93.184.216.34", 300)],
    "outer6.example": [(A, "10.0.0.1", 300), (AAAA, "2606:4700::1111", 300)],
    "brief.example": [(A, "93.184.216.34", 0)],
    "eternal.example": [(A, "93.184.216.34", 2_000_000)],
    "alias.example": [(CNAME, "one.example", 120), (A, "93.184.216.34", 3600, "one.example")],
    "chain.example": [
        (A, "93.184.216.34", 3600, "c3.example"),
        (CNAME, "c2.example", 90, "C1.example"),
        (CNAME, "c1.example", 300),
        (CNAME, "c3.example", 400, "c2.example"),
    ],
    "loop.example": [(CNAME, "loop2.example", 300), (CNAME, "loop.example", 300, "loop2.example")],
    "dangling.example": [(CNAME, "one.example", 300)],
    "meddler.example": [(A, "93.184.216.34", 300), (A, "8.8.8.8", 300, "one.example")],
    "empty.example": [],
    # c-ares keeps answers by the real clock; without a TTL it keeps none, and only our own cache and its clock are seen.
    "moving.example": [(A, "8.8.8.8", 0), (A, "9.9.9.9", 0), (A, "93.184.216.34", 0)],
}


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def run(
    test: Callable[[Resolver, Dns, Clock], Awaitable[None]],
    *,
    allow: tuple[str, ...] = (),
    ipv6: bool = False,
    tries: int = 1,
    timeout_s: float = 0.25,
    static: dict[str, tuple[str, int]] | None = None,
    hosts: dict[str, tuple[str, ...]] | None = None,
) -> None:
    async def main() -> None:
        clock = Clock()
        async with serve_dns(ZONE) as (dns, server):
            dns.codes |= {"refused.example": REFUSED, "broken.example": SERVFAIL}
            resolver = Resolver(Guard(allow), static or {}, hosts=hosts, nameservers=[server], timeout_s=timeout_s,
                                tries=tries, ipv6=ipv6, clock=clock)  # fmt: skip
            try:
                await test(resolver, dns, clock)
            finally:
                await resolver.close()

    asyncio.run(main())


def answer_with(address: str, valid_s: int, port: int | None = None) -> SiteAddress:
    return SiteAddress(address, port, qkey_of_address(address), valid_s, Reason.NONE)


def none(reason: Reason, valid_s: int | None = None, port: int | None = None) -> SiteAddress:
    """A name without an address is for the dispatcher to come back to; what may mend itself is asked again after a minute."""
    return SiteAddress("", port, 0, (0 if reason == Reason.NO_ADDRESS else 60) if valid_s is None else valid_s, reason)


@pytest.mark.parametrize(
    ("name", "ipv6", "answer"),
    [
        ("http://one.example", False, answer_with("93.184.216.34", 3600)),
        ("https://one.example:8443", False, answer_with("93.184.216.34", 3600)),
        ("http://many.example", False, answer_with("8.8.8.8", 600)),
        ("http://both.example", True, answer_with("93.184.216.34", 300)),
        ("http://six.example", True, answer_with("2606:4700::1111", 300)),
        ("http://six.example", False, none(Reason.NO_ADDRESS)),
        ("http://inner.example", True, none(Reason.GUARD)),
        ("http://inner6.example", True, none(Reason.GUARD)),
        ("http://mixed.example", False, answer_with("93.184.216.34", 300)),
        ("http://outer6.example", True, answer_with("2606:4700::1111", 300)),
        ("http://outer6.example", False, none(Reason.GUARD)),
        ("http://brief.example", False, answer_with("93.184.216.34", 60)),
        ("http://eternal.example", False, answer_with("93.184.216.34", 86_400)),
        ("http://alias.example", False, answer_with("93.184.216.34", 120)),
        ("http://empty.example", True, none(Reason.NO_ADDRESS)),
        ("http://missing.example", True, none(Reason.NO_ADDRESS)),
        ("http://chain.example", False, answer_with("93.184.216.34", 90)),
        ("http://loop.example", False, none(Reason.NO_ADDRESS)),
        ("http://dangling.example", True, none(Reason.NO_ADDRESS)),
        ("http://meddler.example", False, answer_with("93.184.216.34", 300)),
        ("http://ONE.example.", False, answer_with("93.184.216.34", 3600)),
        ("http://silent.example", True, none(Reason.LOOKUP)),
        ("http://refused.example", True, none(Reason.LOOKUP)),
        ("http://broken.example", True, none(Reason.LOOKUP)),
        ("http://" + "x" * 64 + ".example", False, none(Reason.NO_ADDRESS)),
        ("http://" + "x." * 150 + "example", False, none(Reason.NO_ADDRESS)),
        ("http://8.8.8.8:81", False, answer_with("8.8.8.8", 86_400)),
        ("http://127.0.0.1", False, none(Reason.GUARD, 86_400)),
        ("http://[::1]:8080", True, none(Reason.GUARD, 86_400)),
        ("http://[2606:4700::1111]", True, answer_with("2606:4700::1111", 86_400)),
        ("http://[2606:4700::1111]", False, none(Reason.NO_ADDRESS)),
    ],
)
def test_answers(name: str, ipv6: bool, answer: SiteAddress) -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve(name) == answer

    run(test, ipv6=ipv6)


def test_name_is_not_queried_again_before_its_answer_expires() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        for _ in range(3):
            await resolver.resolve("http://moving.example")
        clock.now_s += 40
        assert (await resolver.resolve("http://moving.example")).valid_s == 20
        assert len(dns.asked) == 1
        clock.now_s += 20
        assert (await resolver.resolve("http://moving.example")).valid_s == 60
        assert len(dns.asked) == 2

    run(test)


def test_missing_name_is_queried_again_after_its_time_and_each_time_later() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        waits = [60, 120, 240, 480, 960, 1920, 3600, MAX_NEGATIVE_S]
        for number, wait_s in enumerate(waits):
            assert (await resolver.resolve("http://late.example")).reason == Reason.NO_ADDRESS
            assert dns.queries("late.example") == number + 1
            clock.now_s += wait_s - 1
            await resolver.resolve("http://late.example")
            assert dns.queries("late.example") == number + 1
            clock.now_s += 1
        dns.zone["late.example"] = [(A, "8.8.8.8", 0)]
        assert (await resolver.resolve("http://late.example")).address == "8.8.8.8"
        del dns.zone["late.example"]
        clock.now_s += 60
        assert (await resolver.resolve("http://late.example")).reason == Reason.NO_ADDRESS
        dns.zone["late.example"] = [(A, "8.8.8.8", 0)]
        clock.now_s += 60  # it was there in between, so it begins anew
        assert (await resolver.resolve("http://late.example")).address == "8.8.8.8"

    run(test)


def test_failing_server_is_queried_again_after_a_minute_then_later() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve("http://broken.example") == none(Reason.LOOKUP, 60)
        clock.now_s += 60
        assert await resolver.resolve("http://broken.example") == none(Reason.LOOKUP, 120)

    run(test)


def test_query_without_an_answer_is_repeated() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.drop = 1
        assert (await resolver.resolve("http://one.example")).address == "93.184.216.34"
        assert dns.queries("one.example") == 2

    run(test, tries=3)


def test_failed_ipv4_lookup_is_not_a_site_without_ipv4() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.zone["broken.example"] = [(AAAA, "2606:4700::1111", 300)]
        assert (await resolver.resolve("http://broken.example")).reason == Reason.LOOKUP
        assert dns.asked == [("broken.example", A)]

    run(test, ipv6=True)


def test_cache_is_bounded_and_forgets_what_was_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shepherd.reaper.fetch.resolver.MAX_CACHED", 10)

    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        names = [f"n{number}.example" for number in range(12)]
        dns.zone |= {name: [(A, "8.8.8.8", 0)] for name in names}
        for name in [*names, names[11], names[2], names[0]]:
            await resolver.resolve(f"http://{name}")
        assert [dns.queries(name) for name in names] == [2] + [1] * 11

    run(test)


def test_a_rebound_name_is_not_contacted_inside() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert (await resolver.resolve("http://moving.example")).address == "8.8.8.8"
        dns.zone["moving.example"] = [(A, "127.0.0.1", 0)]
        clock.now_s += 60
        assert (await resolver.resolve("http://moving.example")).reason == Reason.GUARD
        assert await resolver.still("http://moving.example", "127.0.0.1") == Reason.NO_ADDRESS
        assert await resolver.still("http://moving.example", "8.8.8.8") == Reason.NO_ADDRESS

    run(test)


def test_an_address_that_left_the_answer_has_moved() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        for address in ("8.8.8.8", "9.9.9.9", "93.184.216.34"):
            assert await resolver.still("https://moving.example", address) == Reason.NONE
        assert await resolver.still("https://moving.example", "1.1.1.1") == Reason.NO_ADDRESS
        dns.zone["moving.example"] = [(A, "9.9.9.9", 0)]
        clock.now_s += 60
        assert await resolver.still("https://moving.example", "8.8.8.8") == Reason.NO_ADDRESS
        assert await resolver.still("http://8.8.8.8", "8.8.8.8") == Reason.NONE
        assert await resolver.still("http://8.8.8.8", "8.8.4.4") == Reason.NO_ADDRESS
        assert await resolver.still("http://127.0.0.1", "127.0.0.1") == Reason.NO_ADDRESS

    run(test)


def test_the_static_table_comes_first_and_other_names_go_to_dns() -> None:
    static = {"one.example": ("127.0.0.7", 8080), "out.example": ("10.0.0.1", 80)}

    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve("http://one.example") == answer_with("127.0.0.7", 86_400, 8080)
        assert await resolver.resolve("http://out.example") == none(Reason.GUARD, 86_400, 80)
        assert dns.asked == []
        assert await resolver.resolve("http://many.example") == answer_with("8.8.8.8", 600)
        assert await resolver.still("http://one.example", "127.0.0.7") == Reason.NONE
        assert await resolver.still("http://one.example", "93.184.216.34") == Reason.NO_ADDRESS

    run(test, allow=("127.0.0.0/8",), static=static)


def test_name_that_does_not_exist_is_asked_for_once_and_one_without_ipv4_twice() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve("http://missing.example") == none(Reason.NO_ADDRESS)
        assert await resolver.resolve("http://empty.example") == none(Reason.NO_ADDRESS)
        assert (dns.queries("missing.example"), dns.queries("empty.example")) == (1, 2)

    run(test, ipv6=True)


def test_a_hosts_file_comes_before_dns_and_the_static_table_before_it() -> None:
    hosts = {"one.example": ("127.0.0.9", "127.0.0.8"), "two.example": ("10.0.0.1",), "six.example": ("::1",)}

    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve("http://one.example") == answer_with("127.0.0.8", 86_400)
        assert await resolver.resolve("http://one.example.") == answer_with("127.0.0.8", 86_400)
        assert await resolver.resolve("http://two.example") == none(Reason.GUARD, 86_400)
        assert (await resolver.resolve("http://six.example")).reason == Reason.NO_ADDRESS
        assert await resolver.still("http://one.example", "127.0.0.9") == Reason.NONE
        assert await resolver.still("http://one.example", "93.184.216.34") == Reason.NO_ADDRESS
        assert await resolver.resolve("http://both.example") == answer_with("127.0.0.7", 86_400, 80)
        assert dns.asked == []

    run(test, allow=("127.0.0.0/8",), static={"both.example": ("127.0.0.7", 80)}, hosts=hosts | {"both.example": ("127.0.0.6",)})


def test_whether_an_address_is_still_right_is_unknown_while_name_servers_fail() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.still("http://broken.example", "8.8.8.8") == Reason.LOOKUP

    run(test)


def test_simultaneous_lookups_of_a_name_share_a_query_and_survive_a_cancelled_one() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.delay_s = 0.02
        tasks = [asyncio.ensure_future(resolver.resolve("http://one.example")) for _ in range(50)]
        await asyncio.sleep(0.001)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [answer_with("93.184.216.34", 3600)] * 49
        assert len(dns.asked) == 1

    run(test)


def test_queries_in_flight_are_limited() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.delay_s = 0.01
        names = [f"n{number}.example" for number in range(10 * MAX_IN_FLIGHT)]
        dns.zone |= {name: [(A, "8.8.8.8", 60)] for name in names}
        answers = await asyncio.gather(*(resolver.resolve(f"http://{name}") for name in names))
        assert {answer.address for answer in answers} == {"8.8.8.8"}
        assert 1 < dns.most_open <= MAX_IN_FLIGHT
        assert len(dns.asked) == len(names)

    run(test, timeout_s=30)


def test_closing_cancels_those_who_wait() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        waiting = asyncio.ensure_future(resolver.resolve("http://silent.example"))
        await asyncio.sleep(0.01)
        await resolver.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(test)


def test_a_static_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# toy web\nA.example 127.0.0.1 8080  # first\n\nb.example ::1 80\n")
    assert read_static(path) == {"a.example": ("127.0.0.1", 8080), "b.example": ("::1", 80)}


@pytest.mark.parametrize(
    "line", ["a 127.0.0.1", "a 127.1 80", "a 127.0.0.1 0", "a 127.0.0.1 65536", "a 127.0.0.1 x", "b 127.0.0.1 80"]
)
def test_a_bad_line_of_the_static_table_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"b 127.0.0.2 80\n{line}\n")
    with pytest.raises(ConfigError, match="hosts: line 2"):
        read_static(path)


def test_a_hosts_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# inner\n10.0.0.1 A.example a  # first\n\n2001:DB8::1\ta.example.\n10.0.0.1 a\n")
    assert read_hosts(path) == {"a.example": ("10.0.0.1", "2001:db8::1"), "a": ("10.0.0.1",)}


@pytest.mark.parametrize("line", ["10.0.0.1", "a.example 10.0.0.1", "10.1 a.example"])
def test_a_bad_line_of_the_hosts_file_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"10.0.0.2 b\n{line}\n")
    with pytest.raises(ConfigError, match="hosts: line 2"):
        read_hosts(path)


def test_a_missing_static_table_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        read_static(tmp_path / "hosts")


@pytest.mark.parametrize("name", ["http://localhost:8080", "http://www.localhost", "https://localhost."])
def test_this_machine_is_not_looked_up_in_dns(name: str) -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        found = await resolver.resolve(name)
        assert (found.address, found.reason) == ("127.0.0.1", Reason.NONE)
        assert await resolver.still(name, "127.0.0.1") == Reason.NONE
        assert await resolver.still(name, "127.0.0.2") == Reason.NO_ADDRESS
        assert dns.asked == []

    run(test, allow=("127.0.0.0/8",))
