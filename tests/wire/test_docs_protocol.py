"""docs/protocol.md has every message with every field, in the order and of the type that its Struct has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
from msgspec.inspect import BoolType, BytesType, DictType, IntType, ListType, StrType, Type

from shepherd.wire import messages as wire

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BITS = {2**bits - 1: f"u{bits}" for bits in (8, 16, 32, 63)}


def word(kind: Type) -> str:
    """A type as the page spells it."""
    match kind:
        case BoolType():
            return "bool"
        case IntType(ge=0, le=None):
            return "u64"
        case IntType(ge=0, le=int(most)):
            return BITS[most]
        case StrType(max_length=int(most)):
            return f"text ≤ {most:,}"
        case BytesType(min_length=least, max_length=int(most)):
            return f"bytes {most:,}" if least == most else f"bytes ≤ {most:,}"
        case ListType(max_length=int(most), item_type=item):
            return f"list ≤ {most:,} of {word(item).partition(' ')[0]}"
        case DictType(max_length=int(most)):
            return f"map ≤ {most:,}"
    raise AssertionError(f"the page has no word for {kind}")


def declared() -> dict[str, list[tuple[str, str]]]:
    """By the name of a message, its fields with their types."""
    found: dict[str, list[tuple[str, str]]] = {}
    for cls in get_args(wire.Message):
        kind = msgspec.inspect.type_info(cls)
        assert isinstance(kind, msgspec.inspect.StructType)
        assert all(field.required for field in kind.fields), "a field with a default is optional on the wire"
        name = f"{wire.TYPES[cls].value} {wire.TYPES[cls].name}"
        found[name] = [(field.encode_name, word(field.type)) for field in kind.fields]
    return found


def documented() -> dict[str, list[tuple[str, str]]]:
    return dict(_sections(PAGE.read_text(encoding="utf-8")))


def _sections(page: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for heading, body in re.findall(r"^### (\d+ [A-Z]+)\n(.*?)(?=^#)", page, re.MULTILINE | re.DOTALL):
        yield heading, re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", body, re.MULTILINE)


def test_page_has_every_field_of_every_message() -> None:
    assert documented() == declared()


def test_page_names_the_version() -> None:
    assert f"Version **{wire.VERSION}**" in PAGE.read_text(encoding="utf-8")
