"""Kinds of columns: what a value is, and how it is spelt. docs/formats.md lists them.

Invariant: a value has one spelling. Text is made from what JSON has: `-` for null, a list with commas between.
Nothing else decides how a footprint, a time or a word looks, in whatever program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Final, TypeAlias

from shepherd.formats import vocabulary
from shepherd.formats.queue_keys import show_qkey
from shepherd.sections import section_name
from shepherd.text import iso, iso_ms

NONE: Final = "-"  # what is not there, in text; in JSON it is null
NO_ROW: Final = 0xFFFFFFFF
NO_LIMIT: Final = 0xFFFFFFFF
NO_OID: Final = 0xFFFFFFFFFFFFFFFF

Spelling: TypeAlias = str | int | list[str] | None


@dataclass(frozen=True)
class ColumnKind:
    """What the values of a column are. `none` is the value that stands for nothing.

    `width` is that of the longest text; 0 where it depends on the bytes of the column, or on the value.
    """

    name: str
    spell: Callable[[int], Spelling] = int
    width: int = 0
    none: int | None = None

    def json(self, value: int | None) -> Spelling:
        return None if value is None or value == self.none else self.spell(value)

    def text(self, value: int | None) -> str:
        spelt = self.json(value)
        if spelt is None or spelt == []:
            return NONE
        return ",".join(spelt) if isinstance(spelt, list) else str(spelt)

    @property
    def is_number(self) -> bool:
        return self.spell is int


def row_as_json(kinds: Mapping[str, ColumnKind], row: Mapping[str, int], names: Iterable[str] | None = None) -> dict[str, Any]:
    """A row, or some columns of it, under the names of its columns."""
    return {name: kinds[name].json(row[name]) for name in (row if names is None else names)}


# --- spellings --------------------------------------------------------------------------------------------------


def _hexadecimal(value: int) -> str:
    return f"{value:016x}"


def _digest(value: int) -> str:
    return value.to_bytes(8, "little").hex()


def word_of(name: str, words: type[IntEnum], none: int | None = None) -> ColumnKind:
    """A number of a vocabulary; one without a word is spelt in digits."""
    named = vocabulary.by_number(words)
    return ColumnKind(f"word of {name}", lambda value: named.get(value) or str(value), max(map(len, named.values())), none)


def flags_of(name: str, words: type[IntFlag]) -> ColumnKind:
    """The bits that are set; those without a word are spelt together, in hexadecimal."""
    named = [(int(flag), vocabulary.word(flag)) for flag in words]
    known_bits = sum(bit for bit, _word in named)

    def spell(value: int) -> list[str]:
        return [*(word for bit, word in named if value & bit), *([hex(value & ~known_bits)] if value & ~known_bits else [])]

    return ColumnKind(f"flags of {name}", spell)


# --- the kinds --------------------------------------------------------------------------------------------------

FOOTPRINT: Final = ColumnKind("footprint", _hexadecimal, 16)
OID: Final = ColumnKind("oid", _hexadecimal, 16, NO_OID)
DIGEST: Final = ColumnKind("digest", _digest, 16, 0)
GROUP: Final = ColumnKind("group", _hexadecimal, 16, 0)
QUEUE_KEY: Final = ColumnKind("queue key", show_qkey, len("[v6:01234567890123]"))
TIME_S: Final = ColumnKind("time in s", iso, len("2026-01-31T12:00:00Z"), 0)
TIME_MS: Final = ColumnKind("time in ms", iso_ms, len("2026-01-31T12:00:00.000Z"), 0)
SECTION: Final = ColumnKind("section", section_name, len("archive"))
NUMBER: Final = ColumnKind("number")
COUNT: Final = ColumnKind("count")
BYTES: Final = ColumnKind("bytes")
WEIGHT: Final = ColumnKind("weight")
BONUS: Final = ColumnKind("bonus")
STATE: Final = ColumnKind("state")
MS: Final = ColumnKind("ms")
SECONDS: Final = ColumnKind("s")
STATUS: Final = ColumnKind("status", none=0)
KNOWN_MS: Final = ColumnKind("known ms", none=0)
FILTER_MS: Final = ColumnKind("filter's ms", none=NO_LIMIT)
LIMIT: Final = ColumnKind("limit", none=NO_LIMIT)
ROW: Final = ColumnKind("row", none=NO_ROW)
TYPE: Final = word_of("types", vocabulary.RowType)
REASON: Final = word_of("reasons", vocabulary.Reason)
DEFERRED: Final = word_of("deferrals", vocabulary.Deferred, none=0)
ROW_FLAGS: Final = flags_of("rows", vocabulary.Flag)
RECORD_KIND: Final = word_of("record kinds", vocabulary.Kind)
RESULT: Final = word_of("results", vocabulary.Result)
RECORD_FLAGS: Final = flags_of("records", vocabulary.JournalFlag)
WHY: Final = word_of("whys", vocabulary.Why)
LINK_FLAGS: Final = flags_of("links", vocabulary.ContribFlag)
