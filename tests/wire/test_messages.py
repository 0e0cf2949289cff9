"""What the other end may send: messages, or anything at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.errors import PeerLost
from shepherd.wire import messages as wire
from tests.support import sampling

FETCH = wire.Fetch(
    token=7,
    kind=1,
    url="http://a.example/",
    norm=1,
    path=2,
    site=2**64 - 1,
    rules=4,
    qkey=5,
    address="192.0.2.1",
    weight=65535,
    section=0,
    etag="",
    modified="",
    digest=0,
    hops=0,
    reuse=False,
    alone=False,
    start_by_ms=1,
    deadline_ms=2,
    head=False,
)
MESSAGES: list[wire.Message] = [
    wire.Hello(
        2,
        2**64 - 1,
        30_000,
        b"k" * 16,
        3,
        "agent/1",
        "agent",
        {"in_flight": 5},
        "",
        2**63,
        {"a": ["127.0.0.1", 80]},
        ["127.0.0.0/8"],
        False,
    ),
    wire.Welcome(2, 77, 200, [5, 2**64 - 1]),
    wire.Resolve(1, 2, "http://a.example"),
    wire.Resolved(1, 2, "", 60, 22),
    wire.Robots(1, 200, b"User-agent: *"),
    FETCH,
    wire.FetchResult(7, bytes(128), b"bucket", b"links", "", b"", 0, b"", 0, 0),
    wire.Bye("done"),
    wire.Leaving("it is old"),
    wire.Ping(3, [4], 5),
    wire.Working(6, 30_000),
    wire.Recorded(1, 1, "http://a.example/", 2, 3, 4, 5, "192.0.2.7", 6, 7, 8, b"HTTP/1.1 200 OK\r\n\r\nx", "", "a file", False),
]


def read(data: bytes, limit: int = 1 << 20) -> wire.Message | None:
    async def run() -> wire.Message | None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await wire.read_message(reader, limit)

    return asyncio.run(run())


def frame(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_survives_the_wire(message: wire.Message) -> None:
    assert read(wire.encode(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_missing_key_is_named(message: wire.Message) -> None:
    number, body = msgpack.unpackb(wire.encode(message)[4:])
    for field in structs.fields(message):
        rest = {key: value for key, value in body.items() if key != field.name}
        with pytest.raises(PeerLost, match=f"required field `{field.name}`"):
            read(frame(msgpack.packb([number, rest])))


@pytest.mark.parametrize(
    ("key", "value"),
    [("weight", 65536), ("weight", -1), ("weight", True), ("url", b"bytes"), ("reuse", 1), ("norm", 1.0), ("etag", None)],
)
def test_a_value_of_the_wrong_type_or_range_is_named(key: str, value: object) -> None:
    number, body = msgpack.unpackb(wire.encode(FETCH)[4:])
    with pytest.raises(PeerLost, match=rf"at `\$\.{key}`"):
        read(frame(msgpack.packb([number, body | {key: value}])))


def test_an_unknown_key_of_a_later_version_is_ignored() -> None:
    number, body = msgpack.unpackb(wire.encode(FETCH)[4:])
    assert read(frame(msgpack.packb([number, body | {"later": 1}]))) == FETCH


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb([99, {}]),
        msgpack.packb([True, {}]),
        msgpack.packb([1]),
        msgpack.packb({"type": 1}),
        msgpack.packb([8, {1: "why"}]),
        msgpack.packb([8, {"why": "x"}]) + b"tail",
        b"\x92\x08\x81\xa3why\xc7\x05\xff12345",
        b"\x92\x08\x81\xa3why\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
)
def test_a_malformed_payload_is_a_lost_peer(payload: bytes) -> None:
    with pytest.raises(PeerLost):
        read(frame(payload))


def test_an_oversize_length_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(PeerLost, match="at most 1000"):
        read(struct.pack("<I", 1001), limit=1000)


def test_every_truncation_is_a_lost_peer_and_only_the_empty_one_an_end() -> None:
    whole = wire.encode(FETCH)
    assert read(b"") is None
    for length in range(1, len(whole)):
        with pytest.raises(PeerLost, match="middle of a message"):
            read(whole[:length])


@settings(max_examples=sampling.examples(300), deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_give_the_typed_error_and_nothing_else(data: bytes) -> None:
    for payload in (data, b"\x92\x06" + data, b"\x92\x01\x81" + data):
        with contextlib.suppress(PeerLost):
            wire.decode(payload)


@settings(max_examples=sampling.examples(200), deadline=None)
@given(st.sampled_from(MESSAGES), st.integers(0, 10_000), st.integers(0, 255))
def test_one_changed_byte_gives_a_message_or_the_typed_error(message: wire.Message, at: int, byte: int) -> None:
    data = bytearray(wire.encode(message)[4:])
    data[at % len(data)] = byte
    with contextlib.suppress(PeerLost):
        wire.decode(bytes(data))


async def pair() -> tuple[wire.Peer, wire.Peer]:
    a, b = socket.socketpair()
    return await wire.adopt(a), await wire.adopt(b)


def test_large_message_is_refused_before_the_welcome_and_accepted_after_it() -> None:
    async def run() -> None:
        dispatcher, reaper = await pair()
        large = wire.Robots(1, 200, b"x" * 5_000_000)
        with pytest.raises(PeerLost, match="limit"):
            await dispatcher.send(large)
        await reaper.send(wire.Welcome(2, 1, 1, []))
        assert await dispatcher.receive() == wire.Welcome(2, 1, 1, [])
        sending = asyncio.create_task(dispatcher.send(large))
        assert await reaper.receive() == large
        await sending
        await dispatcher.close("done")
        assert await reaper.receive() == wire.Bye("done")
        assert await reaper.receive() is None
        await reaper.close()

    asyncio.run(run())


def test_messages_end_with_the_goodbye() -> None:
    async def run() -> list[wire.Message]:
        dispatcher, reaper = await pair()
        await dispatcher.send(wire.Resolve(1, 2, "http://a.example"))
        await dispatcher.close("enough")
        seen = [message async for message in reaper.messages()]
        await reaper.close()
        return seen

    assert asyncio.run(run()) == [wire.Resolve(1, 2, "http://a.example")]


def test_sending_to_a_vanished_peer_is_a_lost_peer() -> None:
    async def run() -> None:
        dispatcher, reaper = await pair()
        await reaper.close()
        with pytest.raises(PeerLost):
            for _ in range(1000):
                await dispatcher.send(wire.Resolve(1, 2, "http://a.example" + "x" * 10_000))
        await dispatcher.close()

    asyncio.run(run())


def test_close_does_not_wait_for_a_peer_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "CLOSE_S", 0.2)

    async def run() -> None:
        ours, theirs = socket.socketpair()
        peer = await wire.adopt(ours)
        sending = asyncio.create_task(peer.send(wire.Resolve(1, 2, "x" * 3_000_000)))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(20):
            await peer.close("that was all")
            await sending  # it does not wait any longer, either
        theirs.close()

    asyncio.run(run())


def test_nobody_listening_is_a_lost_peer_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match="is reapd running there"):
        asyncio.run(UnixSource(UnixAddress(tmp_path / "none")).connect())


def test_silent_peer_is_lost_and_one_that_sends_part_of_a_message_is_not() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        peer = await wire.adopt(ours)
        watching = asyncio.create_task(peer.cut_if_silent(0.5))
        receiving = asyncio.create_task(peer.receive())
        whole = wire.encode(wire.Robots(1, 200, b"x" * 20))
        for byte in whole[:-1]:  # takes longer than it may be silent
            theirs.send(bytes([byte]))
            await asyncio.sleep(0.03)
        assert not watching.done() and not receiving.done()
        await watching
        with pytest.raises(PeerLost):
            await receiving
        theirs.close()
        await peer.close()

    asyncio.run(run())
