"""What a frame may have: the fields that are declared, of their types and lengths, and nothing that takes memory beyond it.

Memory is counted by tracemalloc, which sees whatever the decoder asks for.
"""

from __future__ import annotations

import tracemalloc
from functools import cache

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from shepherd.errors import PeerLost
from shepherd.wire import messages as wire
from tests.wire.test_messages import MESSAGES

FRAME_BYTES = 2 << 20
SPARE_BYTES = 1 << 16


def most_bytes(payload: bytes) -> int:
    """The most memory that was taken at a time while this was decoded, or refused."""
    tracemalloc.start()
    try:
        wire.decode(payload)
    except PeerLost:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def with_field(message: wire.Message, name: str, packed: bytes) -> bytes:
    """The payload of a message in which a field, known or not, has these bytes as its value."""
    number, body = msgpack.unpackb(wire.payload(message))
    body.pop(name, None)
    values = b"".join(msgpack.packb(key) + msgpack.packb(value) for key, value in body.items())
    head = b"\x92" + bytes([number]) + b"\xde" + (len(body) + 1).to_bytes(2)
    key: bytes = msgpack.packb(name)
    return head + values + key + packed


@cache
def array(item: bytes, size: int = FRAME_BYTES) -> bytes:
    return b"\xdd" + (size // len(item)).to_bytes(4) + item * (size // len(item))


@cache
def table(item: bytes) -> bytes:
    """A map of different keys, three bytes each."""
    count = FRAME_BYTES // (4 + len(item))
    return b"\xdf" + count.to_bytes(4) + b"".join(b"\xa3" + number.to_bytes(3) + item for number in range(count))


def test_unknown_values_of_16_mib_take_no_memory() -> None:
    whole = with_field(wire.Bye("x"), "later", array(b"\x80", 16 << 20))
    assert wire.decode(whole) == wire.Bye("x")
    assert most_bytes(whole) < SPARE_BYTES


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_unknown_key_of_any_message_is_skipped(message: wire.Message) -> None:
    whole = with_field(message, "later", array(b"\x80"))
    assert wire.decode(whole) == message
    assert most_bytes(whole) < len(wire.payload(message)) + SPARE_BYTES


@pytest.mark.parametrize(
    "item", [b"\x80", b"\x90", b"\xa1x", b"\xc4\x00", b"\xcf" + bytes(8), b"\xcb" + bytes(8), b"\xd6\x01abcd"]
)
@pytest.mark.parametrize("shape", [array, table])
def test_no_kind_of_unknown_value_takes_memory(shape: type, item: bytes) -> None:
    assert most_bytes(with_field(wire.Bye("x"), "later", shape(item))) < SPARE_BYTES


each_field = pytest.mark.parametrize(
    ("message", "name"),
    [(message, field.name) for message in MESSAGES for field in msgspec.structs.fields(message)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)


@each_field
def test_long_list_in_the_place_of_a_field_is_refused_before_it_is_built(message: wire.Message, name: str) -> None:
    for packed in (array(b"\x01"), array(b"\x80"), array(b"\xa0"), table(b"\x90")):
        whole = with_field(message, name, packed)
        with pytest.raises(PeerLost, match=rf"`\$\.{name}"):
            wire.decode(whole)
        assert most_bytes(whole) < SPARE_BYTES


@each_field
def test_text_and_bytes_have_a_greatest_length(message: wire.Message, name: str) -> None:
    kind = {field.name: field.type for field in msgspec.inspect.type_info(type(message)).fields}[name]  # type: ignore[attr-defined]
    if isinstance(kind, msgspec.inspect.StrType | msgspec.inspect.BytesType):
        assert kind.max_length is not None and kind.max_length <= wire.LIMIT_AFTER_WELCOME
        if kind.max_length == wire.LIMIT_AFTER_WELCOME:
            return  # no frame has room for more
        longer = kind.max_length + 1
        value = "x" * longer if isinstance(kind, msgspec.inspect.StrType) else b"x" * longer
        with pytest.raises(PeerLost, match=rf"of length <= {kind.max_length} - at `\$\.{name}`"):
            wire.decode(with_field(message, name, msgpack.packb(value)))


def test_hello_of_the_greatest_length_takes_fifty_times_of_it_at_most() -> None:
    count = wire.LIMIT_BEFORE_WELCOME // 16
    hosts = b"\xdf" + count.to_bytes(4) + b"".join(b"\xa8%08d" % number + b"\x91\xa4abcd" for number in range(count))
    whole = with_field(MESSAGES[0], "static", hosts)
    assert count * 15 < len(whole) <= wire.LIMIT_BEFORE_WELCOME
    assert isinstance(wire.decode(whole), wire.Hello)
    assert most_bytes(whole) < 50 * len(whole)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(PeerLost, match="are not BYE: 'utf-8' codec"):
        wire.decode(b"\x92\x08\x81\xa3why\xa1\xff")
