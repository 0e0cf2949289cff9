"""A little DNS server on loopback, over UDP."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import queue
import struct
import threading
from collections.abc import AsyncIterator, Iterator

A, CNAME, AAAA = 1, 5, 28
SERVFAIL, NXDOMAIN, REFUSED = 2, 3, 5

Record = tuple[int, str, int] | tuple[int, str, int, str]  # type, data, TTL, and the owner where that is not the name asked for


class Dns(asyncio.DatagramProtocol):
    """Answers from `zone`, or with the code in `codes`; any other name does not exist. The first `drop` queries get no answer.

    `silent.example` never gets one.
    """

    def __init__(self) -> None:
        self.zone: dict[str, list[Record]] = {}
        self.codes: dict[str, int] = {}
        self.asked: list[tuple[str, int]] = []
        self.open = self.most_open = self.drop = 0
        self.delay_s = 0.0

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _name(data)
        (kind,) = struct.unpack_from(">H", data, end)
        self.asked.append((name, kind))
        if name == "silent.example" or self.drop:
            self.drop = max(0, self.drop - 1)
            return
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        asyncio.get_running_loop().call_later(self.delay_s, self._reply, data[:2], data[12 : end + 4], name, kind, addr)

    def _reply(self, ident: bytes, question: bytes, name: str, kind: int, addr: tuple[str, int]) -> None:
        self.open -= 1
        code = self.codes.get(name, 0 if name in self.zone else NXDOMAIN)
        records = [record for record in self.zone.get(name, []) if record[0] in (kind, CNAME)]
        answer = b"".join(_record(record) for record in records)
        self.transport.sendto(ident + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0) + question + answer, addr)

    def queries(self, name: str) -> int:
        return sum(asked == name for asked, _ in self.asked)


@contextlib.contextmanager
def dns_beside(zone: dict[str, list[Record]]) -> Iterator[tuple[Dns, str]]:
    """The server in a thread of its own, for programs that run meanwhile."""
    place: queue.SimpleQueue[tuple[Dns, str]] = queue.SimpleQueue()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def work() -> None:
        async with serve_dns(zone) as served:
            place.put(served)
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    try:
        yield place.get()
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@contextlib.asynccontextmanager
async def serve_dns(zone: dict[str, list[Record]]) -> AsyncIterator[tuple[Dns, str]]:
    """The server, and its `address:port`."""
    transport, dns = await asyncio.get_running_loop().create_datagram_endpoint(Dns, local_addr=("127.0.0.1", 0))
    dns.zone |= zone
    try:
        yield dns, f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


def _name(data: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels).lower(), at + 1


def _packed(name: str) -> bytes:
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"


def _record(record: Record) -> bytes:
    kind, text, ttl, *owner = record
    data = _packed(text) if kind == CNAME else ipaddress.ip_address(text).packed
    return (_packed(owner[0]) if owner else b"\xc0\x0c") + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data
