"""The bytes of messages: those of protocol version 4, whatever encodes them, and those that another msgpack makes."""

from __future__ import annotations

from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.wire import messages as wire
from tests.wire.test_messages import MESSAGES

GOLDEN = Path(__file__).parents[1] / "golden" / f"messages-v{wire.VERSION}"
WHOLE: list[wire.Message] = [
    *MESSAGES,
    wire.Fetch(
        2**32, 2, "http://a.example/" + "x" * 300, 2**31, 127, 128, 255, 256, "2001:db8::1", 65_535, 9, '"e"', "Thu, 01 Jan 1970",
        65_536, 5, True, True, 2**63 - 1, 2**32 - 1, True,
    ),
    wire.FetchResult(2**64 - 1, b"r" * 128, b"b" * 256, b"l" * 65_536, "http://ü.example/", b"u" * 31, 404, b"HTTP/1.1", 7,
                     2**32 - 1),
    wire.Hello(
        4, 1, 2, b"k" * 16, 3, "a", "b",
        {"timeout_s": 7.5, "min_tls": "1.2", "reuse": True, "nameservers": ["192.0.2.1"], "hosts": {"a": ["192.0.2.2"]}},
        "n" * 70_000, 4, {}, [], True,
    ),
    wire.Ping(0, [], 0),
]  # fmt: skip


def name(message: wire.Message) -> str:
    """As golden lines have it."""
    return wire.TYPES[type(message)].name.capitalize()


def golden() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="ascii").splitlines()
    return dict(line.split(" ") for line in lines)


def compact(data: bytes) -> str:
    """Hexadecimal, with long runs of one byte as `BYTE*COUNT`."""
    parts: list[str] = []
    at = 0
    while at < len(data):
        run = len(data[at:]) - len(data[at:].lstrip(data[at : at + 1]))
        parts.append(f"({data[at]:02x}*{run})" if run > 20 else data[at : at + run].hex())
        at += run
    return "".join(parts)


@pytest.mark.parametrize("at", range(len(WHOLE)), ids=lambda at: f"{at}-{name(WHOLE[at])}")
def test_message_has_the_bytes_of_its_golden_line(at: int) -> None:
    assert compact(wire.encode(WHOLE[at])) == golden()[f"{at}-{name(WHOLE[at])}"]


U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) | st.just(2**bits - 1) for bits in (8, 16, 32, 64))
TIMES = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)
BYTES = st.binary(max_size=300)
FETCHES = st.builds(
    wire.Fetch, U64, U8, TEXTS, U64, U64, U64, U64, U64, TEXTS, U16, U8, TEXTS, TEXTS, U64, U16, st.booleans(), st.booleans(),
    TIMES, TIMES, st.booleans(),
)  # fmt: skip
RESULTS = st.builds(wire.FetchResult, U64, st.binary(max_size=128), BYTES, BYTES, TEXTS, BYTES, U16, BYTES, U32, U32)
PINGS = st.builds(wire.Ping, U64, st.lists(U64, max_size=20), TIMES)
NUMBERS = {wire.Fetch: wire.Type.FETCH, wire.FetchResult: wire.Type.RESULT, wire.Ping: wire.Type.PING}


@settings(max_examples=300, deadline=None)
@given(st.one_of(FETCHES, RESULTS, PINGS))
def test_message_is_what_another_msgpack_makes_of_type_and_body(message: wire.Fetch | wire.FetchResult | wire.Ping) -> None:
    body = {name: getattr(message, name) for name in type(message).__match_args__}
    assert wire.payload(message) == msgpack.packb([NUMBERS[type(message)], body])
    assert wire.decode(wire.payload(message)) == message
