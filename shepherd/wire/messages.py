"""The messages between dispatcher and reaper (docs/protocol.md), and the connection they travel on.

A message is a frozen Struct whose fields are the keys of its body. Only what a Struct declares is read off the wire: each field
has a type and a greatest length, and unknown keys are skipped without being built. So the memory that a frame takes is bounded by
its length. A field with a default would be optional on the wire: no field has one.

Invariant: whatever bytes arrive, reading gives a message of a known type or PeerLost that says what is wrong. Nothing is pickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from shepherd.errors import PeerLost
from shepherd.formats.bucket import MAX_ATTRIBUTES
from shepherd.formats.journal import LAYOUT
from shepherd.urls import KEY_BYTES, MAX_URL_BYTES

VERSION: Final = 4
LIMIT_BEFORE_WELCOME: Final = 4 * 1024 * 1024  # a HELLO carries the filter and the static table
LIMIT_AFTER_WELCOME: Final = 128 * 1024 * 1024
MOST_TEXT: Final = 1 << 16  # characters of what is said to a log, or has no bound of its own
MOST_KILLED: Final = 4096  # tokens in a WELCOME or a PING
_BUFFER: Final = 1 << 20  # a stream stops reading at twice this; most results then come in one piece
HANDSHAKE_S: Final = 10.0  # for TLS, to a reaper
ARRIVAL_S: Final = 5.0  # for TLS, to whoever comes: two answers of the other end
CLOSE_S: Final = 5.0  # for what is still to be sent when a connection is closed
LOOKS: Final = 5  # at a connection, before silence counts
_LENGTH: Final = struct.Struct("<I")

U8: TypeAlias = Annotated[int, Meta(ge=0, le=2**8 - 1)]
U16: TypeAlias = Annotated[int, Meta(ge=0, le=2**16 - 1)]
U32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U64: TypeAlias = Annotated[int, Meta(ge=0)]  # msgpack has no larger ones
TimeMs: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text: TypeAlias = Annotated[str, Meta(max_length=MOST_TEXT)]
Url: TypeAlias = Annotated[str, Meta(max_length=2 * MAX_URL_BYTES)]  # a long name with /robots.txt behind it is longer than a URL
Header: TypeAlias = Annotated[str, Meta(max_length=MAX_ATTRIBUTES)]  # as a bucket may have it
Key: TypeAlias = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Record: TypeAlias = Annotated[bytes, Meta(max_length=LAYOUT.size)]
Body: TypeAlias = Annotated[bytes, Meta(max_length=LIMIT_AFTER_WELCOME)]
Tokens: TypeAlias = Annotated[list[U64], Meta(max_length=MOST_KILLED)]
# In a HELLO, which is never longer than the first limit. A host with its address takes 16 bytes: no table has more entries.
Long: TypeAlias = Annotated[str, Meta(max_length=LIMIT_BEFORE_WELCOME)]
_ENTRIES: Final = Meta(max_length=LIMIT_BEFORE_WELCOME >> 4)
Names: TypeAlias = Annotated[list[Text], _ENTRIES]
Setting: TypeAlias = bool | int | float | Long | Names | Annotated[dict[Text, Names], _ENTRIES]
Place: TypeAlias = Annotated[list[Text | int], Meta(max_length=2)]


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


class Hello(Struct, frozen=True, gc=False):
    version: U32
    session: U64  # of the reap: the same on all its connections
    silence_ms: U32  # a peer that sends nothing for so long is lost
    key: Key
    state: U32
    agent: Text
    robots_agent: Text
    settings: Annotated[dict[Text, Setting], _ENTRIES]
    filter: Long
    filter_version: U64
    static: Annotated[dict[Text, Place], _ENTRIES]  # host -> [address, port]
    allow: Names
    anonymous: bool


class Welcome(Struct, frozen=True, gc=False):
    version: U32
    pid: U32
    credits: U32
    killed: Tokens  # tokens of this reap at whose pages an earlier worker of this reaper has died


class Resolve(Struct, frozen=True, gc=False):
    token: U64
    site: U64
    name: Url


class Resolved(Struct, frozen=True, gc=False):
    token: U64
    qkey: U64
    address: Text
    valid_s: U32
    reason: U8


class Robots(Struct, frozen=True, gc=False):
    site: U64
    status: U16
    body: Body


class Fetch(Struct, frozen=True, gc=False):
    token: U64
    kind: U8
    url: Url
    norm: U64
    path: U64
    site: U64
    rules: U64
    qkey: U64
    address: Text
    weight: U16
    section: U8
    etag: Header
    modified: Header
    digest: U64
    hops: U16
    reuse: bool
    alone: bool  # a worker has died at this page: parse it in a process of its own
    start_by_ms: TimeMs
    deadline_ms: TimeMs
    head: bool  # status line and headers are wanted, whatever the answer is worth


class FetchResult(Struct, frozen=True, gc=False):
    token: U64
    record: Record
    bucket: Body
    links: Body
    location: Url
    rules: Body
    rules_status: U16
    head: Body
    connect_ms: U32  # until the connection stood, before TLS; 0 for a kept one
    first_byte_ms: U32

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        return len(self.bucket) + len(self.links) + len(self.rules) + len(self.head)


class Recorded(Struct, frozen=True, gc=False):
    """An answer that somebody has kept, to be worked on as if it had just come; it is answered with a RESULT."""

    token: U64
    kind: U8
    url: Url
    norm: U64
    path: U64
    site: U64
    qkey: U64
    address: Text  # of the server that gave it, "" if nobody knows
    weight: U16
    section: U8
    time_ms: TimeMs  # when it was given
    http: Body  # status line, headers and body, as they came
    cut: Text  # why the body is not whole, a word; "" if it is
    provenance: Text
    alone: bool


class Bye(Struct, frozen=True, gc=False):
    why: Text


class Leaving(Struct, frozen=True, gc=False):
    """A worker is to be replaced: it answers what it has, and takes no more than what is on its way."""

    why: Text


class Ping(Struct, frozen=True, gc=False):
    """Sent by a dispatcher and sent back by a worker: both see that the other is there."""

    number: U64
    killed: Tokens  # as in WELCOME, since the last such list; from a worker only
    now_ms: TimeMs  # when it was sent, by the clock that all times of this connection are of; from a dispatcher only


class Working(Struct, frozen=True, gc=False):
    """The exchange of a FETCH is over, but its answer is still being made."""

    token: U64
    more_ms: U32  # until it comes, or this is said again


Message: TypeAlias = (
    Hello | Welcome | Resolve | Resolved | Robots | Fetch | FetchResult | Bye | Leaving | Ping | Working | Recorded
)

_NAMES: Final = {FetchResult: Type.RESULT}  # all others have the name of their type
TYPES: Final[dict[type[Message], Type]] = {cls: _NAMES.get(cls) or Type[cls.__name__.upper()] for cls in get_args(Message)}
_ENCODER: Final = msgspec.msgpack.Encoder()
_FRAME: Final = msgspec.msgpack.Decoder(tuple[int, Raw])
_DECODERS: Final = {int(number): (number.name, msgspec.msgpack.Decoder(cls)) for cls, number in TYPES.items()}


def payload(message: Message) -> bytes:
    """What `decode` reads."""
    return _ENCODER.encode((TYPES[type(message)], message))


def encode(message: Message) -> bytes:
    """The frame of one message."""
    packed = payload(message)
    return _LENGTH.pack(len(packed)) + packed


def decode(packed: bytes) -> Message:
    """The message in the payload of one frame; keys that this version does not know are skipped."""
    name = "[type, body]"
    try:
        number, body = _FRAME.decode(packed)
        if number not in _DECODERS:
            raise PeerLost(f"the peer sent a message of unknown type {number}")
        name, decoder = _DECODERS[number]
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a text that is not UTF-8 has an error of its own
        raise PeerLost(f"the peer sent {len(packed)} bytes that are not {name}: {error}") from error


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
        raise PeerLost(f"a {TYPES[type(message)].name} of {len(frame)} bytes is over the limit of {limit}")
    try:
        writer.write(frame)
        await writer.drain()
    except OSError as error:
        raise PeerLost(f"the connection broke while writing: {error}") from error


class _Reader(asyncio.StreamReader):
    """A stream that knows how much has come: part of a long message is a sign of life, too."""

    received_bytes = 0

    def feed_data(self, data: Any) -> None:
        self.received_bytes += len(data)
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
    def received_bytes(self) -> int:
        """How many bytes have come so far."""
        return self._reader.received_bytes if isinstance(self._reader, _Reader) else 0

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
        last_bytes, silent = -1, 0
        while silent < LOOKS:
            await asyncio.sleep(seconds / LOOKS)
            silent = silent + 1 if last_bytes == self.received_bytes else 0
            last_bytes = self.received_bytes
        self._silent = True
        self._writer.transport.abort()

    async def close(self, why: str = "") -> None:
        """Say BYE if there is a reason to give and anyone to hear it, then close; what the other end does not take is dropped."""
        with contextlib.suppress(PeerLost, OSError):  # TimeoutError is one
            async with asyncio.timeout(CLOSE_S):
                if why and not self._writer.is_closing():
                    await self.send(Bye(why[:MOST_TEXT]))
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
    handshake_s = ARRIVAL_S if tls else None
    return await peer_on(
        lambda protocol: loop.connect_accepted_socket(protocol, connection, ssl=tls, ssl_handshake_timeout=handshake_s)
    )
