"""The resolver, against a little DNS server on loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shepherd.errors import ConfigError
from shepherd.formats.tables import Reason
from shepherd.net.guard import Guard
from shepherd.net.resolve import MAX_IN_FLIGHT, Answer, Resolver, read_static
from shepherd.urls import qkey_of_address

A, CNAME, AAAA = 1, 5, 28

ZONE: dict[str, list[tuple[int, str, int]]] = {  # name -> records of (type, data, ttl)
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
    "alias.example": [(CNAME, "one.example", 120), (A, "93.184.216.34", 3600)],
    "empty.example": [],
    # c-ares keeps answers by the real clock; without a TTL it keeps none, and only our own cache and its clock are seen.
    "moving.example": [(A, "8.8.8.8", 0), (A, "9.9.9.9", 0), (A, "93.184.216.34", 0)],
}


class Dns(asyncio.DatagramProtocol):
    """Answers from `zone`; any other name does not exist, but `silent.example` gets no answer and `refused.example` an error."""

    def __init__(self) -> None:
        self.zone = dict(ZONE)
        self.asked: list[tuple[str, int]] = []
        self.open = self.most_open = 0
        self.delay_s = 0.0

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = self._name(data)
        (kind,) = struct.unpack_from(">H", data, end)
        self.asked.append((name, kind))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        if name != "silent.example":
            asyncio.get_running_loop().call_later(self.delay_s, self._reply, data[:2], data[12 : end + 4], name, kind, addr)

    def _reply(self, ident: bytes, question: bytes, name: str, kind: int, addr: tuple[str, int]) -> None:
        self.open -= 1
        code = 5 if name == "refused.example" else 0 if name in self.zone else 3
        records = [record for record in self.zone.get(name, []) if record[0] in (kind, CNAME)]
        answer = b"".join(self._record(record) for record in records)
        self.transport.sendto(ident + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0) + question + answer, addr)

    @staticmethod
    def _name(data: bytes) -> tuple[str, int]:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        return ".".join(labels).lower(), at + 1

    @staticmethod
    def _record(record: tuple[int, str, int]) -> bytes:
        kind, text, ttl = record
        if kind == CNAME:
            data = b"".join(bytes((len(label),)) + label.encode() for label in text.split(".")) + b"\0"
        else:
            data = ipaddress.ip_address(text).packed
        return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def run(test: Callable[[Resolver, Dns, Clock], Awaitable[None]], *, allow: tuple[str, ...] = (), ipv6: bool = False,
        static: dict[str, tuple[str, int]] | None = None) -> None:  # fmt: skip
    async def main() -> None:
        clock = Clock()
        transport, dns = await asyncio.get_running_loop().create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
        port = transport.get_extra_info("sockname")[1]
        resolver = Resolver(Guard(allow), static or {}, nameservers=["127.0.0.1"], udp_port=port, timeout_s=0.2, tries=1,
                            ipv6=ipv6, clock=clock)  # fmt: skip
        try:
            await test(resolver, dns, clock)
        finally:
            await resolver.close()
            transport.close()

    asyncio.run(main())


def found(address: str, valid_s: int, port: int | None = None) -> Answer:
    return Answer(address, port, qkey_of_address(address), valid_s, Reason.NONE)


def none(reason: Reason, valid_s: int = 300, port: int | None = None) -> Answer:
    return Answer("", port, 0, valid_s, reason)


@pytest.mark.parametrize(
    ("name", "ipv6", "answer"),
    [
        ("http://one.example", False, found("93.184.216.34", 3600)),
        ("https://one.example:8443", False, found("93.184.216.34", 3600)),
        ("http://many.example", False, found("8.8.8.8", 600)),
        ("http://both.example", True, found("93.184.216.34", 300)),
        ("http://six.example", True, found("2606:4700::1111", 300)),
        ("http://six.example", False, none(Reason.NO_ADDRESS)),
        ("http://inner.example", True, none(Reason.GUARD)),
        ("http://inner6.example", True, none(Reason.GUARD)),
        ("http://mixed.example", False, found("93.184.216.34", 300)),
        ("http://outer6.example", True, found("2606:4700::1111", 300)),
        ("http://outer6.example", False, none(Reason.GUARD)),
        ("http://brief.example", False, found("93.184.216.34", 60)),
        ("http://eternal.example", False, found("93.184.216.34", 86_400)),
        ("http://alias.example", False, found("93.184.216.34", 120)),
        ("http://empty.example", True, none(Reason.NO_ADDRESS)),
        ("http://missing.example", True, none(Reason.NO_ADDRESS)),
        ("http://silent.example", False, none(Reason.NO_ADDRESS)),
        ("http://refused.example", False, none(Reason.NO_ADDRESS)),
        ("http://" + "x" * 64 + ".example", False, none(Reason.NO_ADDRESS)),
        ("http://" + "x." * 150 + "example", False, none(Reason.NO_ADDRESS)),
        ("http://8.8.8.8:81", False, found("8.8.8.8", 86_400)),
        ("http://127.0.0.1", False, none(Reason.GUARD, 86_400)),
        ("http://[::1]:8080", True, none(Reason.GUARD, 86_400)),
        ("http://[2606:4700::1111]", True, found("2606:4700::1111", 86_400)),
        ("http://[2606:4700::1111]", False, none(Reason.NO_ADDRESS, 86_400)),
    ],
)
def test_answers(name: str, ipv6: bool, answer: Answer) -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve(name) == answer

    run(test, ipv6=ipv6)


def test_a_name_is_not_asked_again_before_its_answer_expires() -> None:
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


def test_a_missing_name_is_asked_again_after_its_time() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert (await resolver.resolve("http://late.example")).reason == Reason.NO_ADDRESS
        dns.zone["late.example"] = [(A, "8.8.8.8", 60)]
        clock.now_s += 299
        assert (await resolver.resolve("http://late.example")).reason == Reason.NO_ADDRESS
        clock.now_s += 1
        assert (await resolver.resolve("http://late.example")).address == "8.8.8.8"

    run(test)


def test_a_rebound_name_is_not_contacted_inside() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert (await resolver.resolve("http://moving.example")).address == "8.8.8.8"
        dns.zone["moving.example"] = [(A, "127.0.0.1", 0)]
        clock.now_s += 60
        assert (await resolver.resolve("http://moving.example")).reason == Reason.GUARD
        assert not await resolver.still("http://moving.example", "127.0.0.1")

    run(test)


def test_an_address_that_left_the_answer_has_moved() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        for address in ("8.8.8.8", "9.9.9.9", "93.184.216.34"):
            assert await resolver.still("https://moving.example", address)
        assert not await resolver.still("https://moving.example", "1.1.1.1")
        dns.zone["moving.example"] = [(A, "9.9.9.9", 0)]
        clock.now_s += 60
        assert not await resolver.still("https://moving.example", "8.8.8.8")
        assert await resolver.still("http://8.8.8.8", "8.8.8.8")
        assert not await resolver.still("http://8.8.8.8", "8.8.4.4")
        assert not await resolver.still("http://127.0.0.1", "127.0.0.1")

    run(test)


def test_the_static_table_comes_first_and_other_names_go_to_dns() -> None:
    static = {"one.example": ("127.0.0.7", 8080), "out.example": ("10.0.0.1", 80)}

    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        assert await resolver.resolve("http://one.example") == found("127.0.0.7", 86_400, 8080)
        assert await resolver.resolve("http://out.example") == none(Reason.GUARD, 86_400, 80)
        assert dns.asked == []
        assert await resolver.resolve("http://many.example") == found("8.8.8.8", 600)
        assert await resolver.still("http://one.example", "127.0.0.7")
        assert not await resolver.still("http://one.example", "93.184.216.34")

    run(test, allow=("127.0.0.0/8",), static=static)


def test_many_who_ask_for_one_name_share_a_query_and_one_who_gives_up_harms_nobody() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.delay_s = 0.02
        tasks = [asyncio.ensure_future(resolver.resolve("http://one.example")) for _ in range(50)]
        await asyncio.sleep(0.001)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [found("93.184.216.34", 3600)] * 49
        assert len(dns.asked) == 1

    run(test)


def test_queries_in_flight_are_limited() -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        dns.delay_s = 0.01
        names = [f"n{number}.example" for number in range(3 * MAX_IN_FLIGHT)]
        dns.zone |= {name: [(A, "8.8.8.8", 60)] for name in names}
        answers = await asyncio.gather(*(resolver.resolve(f"http://{name}") for name in names))
        assert {answer.address for answer in answers} == {"8.8.8.8"}
        assert dns.most_open <= MAX_IN_FLIGHT

    run(test)


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


def test_a_missing_static_table_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        read_static(tmp_path / "hosts")


@pytest.mark.parametrize("name", ["http://localhost:8080", "http://www.localhost", "https://localhost."])
def test_this_machine_is_looked_up_in_dns(name: str) -> None:
    async def test(resolver: Resolver, dns: Dns, clock: Clock) -> None:
        found = await resolver.resolve(name)
        assert (found.address, found.reason) == ("127.0.0.1", Reason.NONE)
        assert await resolver.still(name, "127.0.0.1")
        assert not await resolver.still(name, "127.0.0.2")
        assert dns.asked == []

    run(test, allow=("127.0.0.0/8",))
