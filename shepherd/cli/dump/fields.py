"""How shep-dump shows a field: as text of a fixed width, or as a value in JSON.

Invariant: a width hangs on the kind of field alone, never on the rows, so the first line is printed before the second is read.
Only flags, URLs and names may be longer than their width; then what follows stands further right, in that line alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from itertools import islice
from typing import Any

from shepherd.console import common

NONE = "-"  # nothing is known, in text; in JSON it is null
FLAGS_WIDTH = 24
ISO_WIDTH = 20
DIGITS = {1: 3, 2: 5, 4: 10, 8: 20}  # of the largest number in so many bytes
LATEST_MS = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True)
class Field:
    name: str
    width: int = 0
    text: Callable[[Any], str] = str
    json: Callable[[Any], Any] = lambda value: value
    right: bool = False

    @property
    def place(self) -> str:
        """Where it stands in a line, as str.format has it."""
        return f"{{:{'>' if self.right else '<'}{max(self.width, len(self.name))}}}"


@dataclass(frozen=True)
class Shown:
    """Rows to be shown, each a value for each field."""

    fields: Sequence[Field]
    rows: Iterable[Sequence[Any]]


def show(shown: Shown, limit: int | None, as_json: bool) -> None:
    """Print rows while they come: aligned text under one header line, or JSON lines."""
    fields, rows = shown.fields, islice(shown.rows, limit)
    if as_json:
        for row in rows:
            common.emit_json({field.name: field.json(value) for field, value in zip(fields, row, strict=True)})
        return
    line = "  ".join(field.place for field in fields).format
    texts, write = [field.text for field in fields], sys.stdout.write
    write(line(*(field.name for field in fields)).rstrip() + "\n")
    for row in rows:
        write(line(*[text(value) for text, value in zip(texts, row, strict=True)]).rstrip() + "\n")


# --- kinds of fields --------------------------------------------------------------------------------------------


def number(name: str, item_bytes: int, none: int | None = None) -> Field:
    """A number; `none` is the value that stands for nothing."""
    if none is None:
        return Field(name, DIGITS[item_bytes], right=True)
    return Field(
        name,
        DIGITS[item_bytes],
        lambda value: NONE if value == none else str(value),
        lambda value: None if value == none else value,
        right=True,
    )


def size(name: str) -> Field:
    """Bytes of a file or of some."""
    return Field(name, 15, right=True)


def footprint(name: str, none: int | None = None) -> Field:
    """64 bits in hexadecimal: half a footprint, an oid or a digest."""
    return Field(
        name,
        16,
        lambda value: NONE if value is None or value == none else f"{value:016x}",
        lambda value: None if value is None or value == none else f"{value:016x}",
    )


def seconds(name: str) -> Field:
    """A time in seconds since 1970; 0 is never."""
    return Field(name, ISO_WIDTH, lambda value: _iso(value * 1_000)[:-5] + "Z" if value else NONE)


def milliseconds(name: str) -> Field:
    return Field(name, ISO_WIDTH + 4, lambda value: _iso(value) if value else NONE)


def _iso(time_ms: int) -> str:
    """In UTC, to the millisecond. What no calendar holds is shown as the nearest that one does."""
    time_ms = min(max(time_ms, 0), LATEST_MS)
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def queue_key(name: str) -> Field:
    from shepherd.formats.tables import show_qkey

    return Field(name, len("[v6:01234567890123]"), show_qkey, show_qkey)


def word(name: str, words: type[IntEnum]) -> Field:
    """The name of a value; the number itself where there is no name for it."""
    named = {int(value): spelt(value.name) for value in words}

    def shown(value: int) -> str:
        return named.get(value, str(value))

    return Field(name, max(map(len, named.values())), shown, shown)


def flags(name: str, words: type[IntFlag]) -> Field:
    """The names of the bits that are set."""
    named = [(int(flag), spelt(str(flag.name))) for flag in words]

    def shown(value: int) -> list[str]:
        rest = value & ~sum(bit for bit, _name in named)
        return [*(name for bit, name in named if value & bit), *([hex(rest)] if rest else [])]

    return Field(name, FLAGS_WIDTH, lambda value: ",".join(shown(value)) or NONE, shown)


def text(name: str, width: int = 0) -> Field:
    """Words; those from the web are escaped."""
    return Field(
        name,
        width,
        lambda value: common.escape(value) if value is not None and value != "" else NONE,
        lambda value: common.escape(value) if isinstance(value, bytes) else value,
    )


def value(name: str, width: int = 0) -> Field:
    """Whatever stands in some JSON."""

    def shown(value: Any) -> str:
        return NONE if value is None else common.escape(value if isinstance(value, str | bytes) else json.dumps(value))

    return Field(name, width, shown, lambda value: common.escape(value) if isinstance(value, bytes) else value)


def spelt(name: str) -> str:
    """A name of the code, as an operator writes it: BELOW_BAR is below-bar."""
    return name.lower().replace("_", "-")
