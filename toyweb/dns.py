"""The toy web's own little DNS: A records of all its names, the endless ones included, over UDP on loopback.

A name of the toy web that does not exist is answered NXDOMAIN, every other name is refused, and a name asked for anything but
its address gets an empty answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from toyweb.model import Model
from toyweb.plan import DOMAIN

TTL_S = 300

_A, _INTERNET = 1, 1
_OK, _MALFORMED, _NO_NAME, _REFUSED = 0, 1, 3, 5
_ANSWER_FLAGS = 0x8400  # an answer, with authority
_RECURSION_DESIRED = 0x0100


def reply(model: Model, query: bytes) -> bytes | None:
    """The answer to a datagram; None where it is too short to be answered, or no query."""
    if len(query) < 12:
        return None
    number, flags, questions = struct.unpack(">HHH", query[:6])
    if flags & 0x8000:
        return None
    question = _question(query) if questions == 1 else None
    flags = _ANSWER_FLAGS | (flags & _RECURSION_DESIRED)
    if question is None:
        return struct.pack(">HHHHHH", number, flags | _MALFORMED, 0, 0, 0, 0)
    name, kind, end = question
    server = model.server_of(name)
    inside = name == DOMAIN or name.endswith(f".{DOMAIN}")
    code = _OK if server is not None or name == DOMAIN else _NO_NAME if inside else _REFUSED
    answer = b""
    if server is not None and kind == (_A, _INTERNET):
        packed = socket.inet_aton(model.address_of(server))
        answer = struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, TTL_S, len(packed)) + packed  # C00C: the name of the question
    return struct.pack(">HHHHHH", number, flags | code, 1, bool(answer), 0, 0) + query[12:end] + answer


def _question(query: bytes) -> tuple[str, tuple[int, int], int] | None:
    """Name in lower case, type and class, and where the question ends; None where it is broken."""
    labels, offset = [], 12
    while offset < len(query) and query[offset]:
        length = query[offset]
        if length > 63 or offset + 1 + length >= len(query):
            return None
        labels.append(query[offset + 1 : offset + 1 + length].decode("latin-1").lower())
        offset += 1 + length
    if offset + 5 > len(query):
        return None
    kind = struct.unpack(">HH", query[offset + 1 : offset + 5])
    return ".".join(labels), (kind[0], kind[1]), offset + 5


class NameServer(asyncio.DatagramProtocol):
    """Answers every datagram."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = reply(self._model, data)
        if answer is not None:
            self._transport.sendto(answer, addr)
