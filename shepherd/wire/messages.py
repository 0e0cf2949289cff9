"""The messages between dispatcher and reaper (docs/protocol.md), and the connection they travel on.

A message is a frozen dataclass whose fields are the keys of its body; what is read off the wire is checked against their types
before anyone sees it. Invariant: whatever bytes arrive, reading gives a message of a known type or PeerLost that says what was
wrong. Nothing is pickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]

from shepherd.errors import PeerLost

VERSION: Final = 4
LIMIT_BEFORE_WELCOME: Final = 4 * 1024 * 1024  # a HELLO carries the filter and the static table
LIMIT_AFTER_WELCOME: Final = 128 * 1024 * 1024
_BUFFER: Final = 1 << 20  # a stream stops reading at twice this; most results then come in one piece
HANDSHAKE_S: Final = 10.0  # for TLS
CLOSE_S: Final = 5.0  # for what is still to be sent when a connection is closed
LOOKS: Final = 5  # at a connection, before silence counts
_LENGTH: Final = struct.Struct("<I")

U8: TypeAlias = Annotated[int, 8]
U16: TypeAlias = Annotated[int, 16]
U32: TypeAlias = Annotated[int, 32]
U64: TypeAlias = Annotated[int, 64]
TimeMs: TypeAlias = Annotated[int, 63]


class Type(IntEnum):
    HELLO = 1
    WELCOME = 2
    RESOLVE = 3
    RESOLVED = 4
    ROBOTS = 5
    FETCH = 6
    RESULT = 7
    BYE = 8
    LEAVING = 9
    PING = 10
    WORKING = 11
    RECORDED = 12


@dataclass(frozen=True, slots=True)
class Hello:
    version: U32
    session: U64  # of the reap: the same on all its connections
    silence_ms: U32  # a peer that sends nothing for so long is lost
    key: bytes
    state: U32
    agent: str
    robots_agent: str
    settings: dict[str, Any]
    filter: str
    filter_version: U64
    static: dict[str, Any]  # host -> [address, port]
    allow: list[str]
    anonymous: bool


@dataclass(frozen=True, slots=True)
class Welcome:
    version: U32
    pid: U32
    credits: U32
    killed: list[U64]  # tokens of this reap at whose pages an earlier worker of this reaper has died


@dataclass(frozen=True, slots=True)
class Resolve:
    token: U64
    site: U64
    name: str


@dataclass(frozen=True, slots=True)
class Resolved:
    token: U64
    qkey: U64
    address: str
    valid_s: U32
    reason: U8


@dataclass(frozen=True, slots=True)
class Robots:
    site: U64
    status: U16
    body: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    token: U64
    kind: U8
    url: str
    norm: U64
    path: U64
    site: U64
    rules: U64
    qkey: U64
    address: str
    weight: U16
    section: U8
    etag: str
    modified: str
    digest: U64
    hops: U16
    reuse: bool
    alone: bool  # a worker has died at this page: parse it in a process of its own
    start_by_ms: TimeMs
    deadline_ms: TimeMs
    head: bool = False  # status line and headers are wanted, whatever the answer is worth


@dataclass(frozen=True, slots=True)
class Result:
    token: U64
    record: bytes
    bucket: bytes
    links: bytes
    location: str
    rules: bytes
    rules_status: U16
    head: bytes = b""
    connect_ms: U32 = 0  # until the connection stood, before TLS; 0 for a kept one
    first_byte_ms: U32 = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer that somebody has kept, to be worked on as if it had just come; it is answered with a RESULT."""

    token: U64
    kind: U8
    url: str
    norm: U64
    path: U64
    site: U64
    qkey: U64
    address: str  # of the server that gave it, "" if nobody knows
    weight: U16
    section: U8
    time_ms: TimeMs  # when it was given
    http: bytes  # status line, headers and body, as they came
    cut: str  # why the body is not whole, a word; "" if it is
    provenance: str
    alone: bool


@dataclass(frozen=True, slots=True)
class Bye:
    why: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A worker is to be replaced: it answers what it has, and takes no more than what is on its way."""

    why: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Sent by a dispatcher and sent back by a worker: both see that the other is there."""

    number: U64
    killed: list[U64]  # as in WELCOME, since it was last told; from a worker only
    now_ms: TimeMs = 0  # when it was sent, by the clock that all times of this connection are of; from a dispatcher only


@dataclass(frozen=True, slots=True)
class Working:
    """The exchange of a FETCH is over, but its answer is still being made."""

    token: U64
    more_ms: U32  # until it comes, or this is said again


Message: TypeAlias = Hello | Welcome | Resolve | Resolved | Robots | Fetch | Result | Bye | Leaving | Ping | Working | Recorded

_CLASSES: Final[dict[int, type[Message]]] = {
    Type.HELLO: Hello,
    Type.WELCOME: Welcome,
    Type.RESOLVE: Resolve,
    Type.RESOLVED: Resolved,
    Type.ROBOTS: Robots,
    Type.FETCH: Fetch,
    Type.RESULT: Result,
    Type.BYE: Bye,
    Type.LEAVING: Leaving,
    Type.PING: Ping,
    Type.WORKING: Working,
    Type.RECORDED: Recorded,
}
_TYPES: Final = {cls: Type(number) for number, cls in _CLASSES.items()}
_NAMES: Final = {cls: tuple(field.name for field in fields(cls)) for cls in _TYPES}


def _test(hint: Any) -> Callable[[Any], bool]:
    """A test for values of one field's type. A bool is no int here, although Python thinks so."""
    if get_origin(hint) is Annotated:
        bound = 1 << get_args(hint)[1]
        return lambda value: type(value) is int and 0 <= value < bound
    if get_origin(hint) is list:
        fits = _test(get_args(hint)[0])
        return lambda value: type(value) is list and all(fits(item) for item in value)
    exact = get_origin(hint) or hint
    return lambda value: type(value) is exact


_TESTS: Final = {
    cls: tuple((name, _test(hint)) for name, hint in get_type_hints(cls, include_extras=True).items()) for cls in _TYPES
}


def payload(message: Message) -> bytes:
    """What `decode` reads."""
    cls = type(message)
    body = {name: getattr(message, name) for name in _NAMES[cls]}
    packed: bytes = msgpack.packb([_TYPES[cls], body], use_bin_type=True)
    return packed


def encode(message: Message) -> bytes:
    """The frame of one message."""
    packed = payload(message)
    return _LENGTH.pack(len(packed)) + packed


def decode(packed: bytes) -> Message:
    """The message in the payload of one frame; keys that this version does not know are ignored."""
    try:
        whole = msgpack.unpackb(packed, raw=False, use_list=True, strict_map_key=True)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise PeerLost(f"the peer sent {len(packed)} bytes that are not msgpack: {error!r}") from error
    if type(whole) is not list or len(whole) != 2 or type(whole[0]) is not int or type(whole[1]) is not dict:
        raise PeerLost("the peer sent a frame that is not [type, body]")
    number, body = whole
    cls = _CLASSES.get(number)
    if cls is None:
        raise PeerLost(f"the peer sent a message of unknown type {number}")
    values: dict[str, Any] = {}
    for name, fits in _TESTS[cls]:
        if name not in body:
            raise PeerLost(f"the peer sent a {Type(number).name} without {name}")
        values[name] = body[name]
        if not fits(values[name]):
            raise PeerLost(f"the peer sent a {Type(number).name} whose {name} has the wrong type or is out of range")
    return cls(**values)


async def read_message(reader: asyncio.StreamReader, limit: int) -> Message | None:
    """The next message, or None if the stream ended between two messages."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        (length,) = _LENGTH.unpack(head)
        if length > limit:
            raise PeerLost(f"the peer announced a message of {length} bytes; at most {limit} are allowed")
        return decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError as error:
        if not error.partial and error.expected == _LENGTH.size:
            return None
        raise PeerLost("the connection ended in the middle of a message") from error
    except OSError as error:
        raise PeerLost(f"the connection broke while reading: {error}") from error


async def write_message(writer: asyncio.StreamWriter, message: Message, limit: int) -> None:
    """Send one message, and wait while the other end is slower than we are."""
    frame = encode(message)
    if len(frame) - _LENGTH.size > limit:
        raise PeerLost(f"a {_TYPES[type(message)].name} of {len(frame)} bytes is over the limit of {limit}")
    try:
        writer.write(frame)
        await writer.drain()
    except OSError as error:
        raise PeerLost(f"the connection broke while writing: {error}") from error


class _Reader(asyncio.StreamReader):
    """A stream that knows how much has come: part of a long message is a sign of life, too."""

    received = 0

    def feed_data(self, data: Any) -> None:
        self.received += len(data)
        super().feed_data(data)


class Peer:
    """One end of a connection. WELCOME, sent or received, raises the limit on a message's length.

    Any number of tasks may send; one receives.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._limit = LIMIT_BEFORE_WELCOME
        self._silent = False

    @property
    def received(self) -> int:
        """How many bytes have come so far."""
        return self._reader.received if isinstance(self._reader, _Reader) else 0

    @property
    def certificate(self) -> dict[str, Any]:
        """What the other end's certificate says, as `ssl` has it; empty without TLS."""
        tls = self._writer.get_extra_info("ssl_object")
        return (tls.getpeercert() or {}) if tls is not None else {}

    async def send(self, message: Message) -> None:
        await write_message(self._writer, message, self._limit)
        self._welcomed(message)

    async def receive(self) -> Message | None:
        """The next message; None when the other end has closed in good order."""
        message = await read_message(self._reader, self._limit)
        if message is None and self._silent:
            raise PeerLost("the other end has been silent for too long")
        self._welcomed(message)
        return message

    async def messages(self) -> AsyncIterator[Message]:
        """All messages until BYE or the end of the stream."""
        while (message := await self.receive()) is not None and not isinstance(message, Bye):
            yield message

    async def cut_if_silent(self, seconds: float) -> None:
        """Return when nothing at all has come for so long; the connection has then been ended, as lost.

        Counted in looks, so that a pause of our own, in which nothing could be read, counts as one.
        """
        seen, silent = -1, 0
        while silent < LOOKS:
            await asyncio.sleep(seconds / LOOKS)
            silent = silent + 1 if seen == self.received else 0
            seen = self.received
        self._silent = True
        self._writer.transport.abort()

    async def close(self, why: str = "") -> None:
        """Say BYE if there is a reason to give and anyone to hear it, then close; what the other end does not take is dropped."""
        with contextlib.suppress(PeerLost, OSError):  # TimeoutError is one
            async with asyncio.timeout(CLOSE_S):
                if why and not self._writer.is_closing():
                    await self.send(Bye(why))
                self._writer.close()
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()

    def _welcomed(self, message: Message | None) -> None:
        if isinstance(message, Welcome):
            self._limit = LIMIT_AFTER_WELCOME


Factory: TypeAlias = Callable[[], asyncio.StreamReaderProtocol]


async def peer_on(connect: Callable[[Factory], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]]) -> Peer:
    """A peer on the transport that `connect` makes with the protocol it is given."""
    loop = asyncio.get_running_loop()
    reader = _Reader(_BUFFER, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await connect(lambda: protocol)
    return Peer(reader, asyncio.StreamWriter(transport, protocol, reader, loop))  # type: ignore[arg-type]


async def adopt(connection: socket.socket, tls: ssl.SSLContext | None = None) -> Peer:
    """A peer on a connected socket, which it then owns; with TLS, we are its server. OSError if there is no agreeing on TLS."""
    loop = asyncio.get_running_loop()
    handshake_s = HANDSHAKE_S if tls else None
    return await peer_on(
        lambda protocol: loop.connect_accepted_socket(protocol, connection, ssl=tls, ssl_handshake_timeout=handshake_s)
    )
