"""How shep-dump shows a field: as text of a fixed width, or as a value in JSON. shepherd.formats.kinds spells both.

Invariant: a width depends on the kind of field alone, never on the rows, so the first line is printed before the second is read.
Only flags, URLs and names may be longer than their width; then what follows stands further right, in that line alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from shepherd.console import common
from shepherd.formats import kinds
from shepherd.formats.kinds import NONE, ColumnKind

if TYPE_CHECKING:
    import numpy as np

FLAGS_WIDTH = 24
DIGITS = {1: 3, 2: 5, 4: 10, 8: 20}  # of the largest number in so many bytes


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
class DumpTable:
    """Rows to be shown, each a value for each field."""

    fields: Sequence[Field]
    rows: Iterable[Sequence[Any]]


def show(table: DumpTable, limit: int | None, as_json: bool) -> None:
    """Print rows while they come: aligned text under one header line, or JSON lines."""
    fields, rows = table.fields, islice(table.rows, limit)
    if as_json:
        for row in rows:
            common.emit_json({field.name: field.json(value) for field, value in zip(fields, row, strict=True)})
        return
    line = "  ".join(field.place for field in fields).format
    texts, write = [field.text for field in fields], sys.stdout.write
    write(line(*(field.name for field in fields)).rstrip() + "\n")
    for row in rows:
        write(line(*[text(value) for text, value in zip(texts, row, strict=True)]).rstrip() + "\n")


# --- fields by their kind ---------------------------------------------------------------------------------------


def of_kind(name: str, kind: ColumnKind, item_bytes: int = 0) -> Field:
    """A number needs the bytes that it takes on disk, for its width."""
    width = kind.width or (DIGITS[item_bytes] if kind.is_number else FLAGS_WIDTH)
    return Field(name, width, kind.text, kind.json, right=kind.is_number)


def of_table(table: str, names: Iterable[str]) -> list[Field]:
    """Columns of a table."""
    import numpy as np

    from shepherd.formats.tables import KINDS, TABLES

    return [of_kind(name, KINDS[table][name], np.dtype(TABLES[table][name]).itemsize) for name in names]


def of_record(record: str, dtype: np.dtype[np.void], names: Iterable[str]) -> list[Field]:
    """Fields of a record."""
    from shepherd.formats.tables import KINDS

    return [of_kind(name, KINDS[record][name], dtype[name].itemsize) for name in names]


# --- other fields -----------------------------------------------------------------------------------------------


def number(name: str, item_bytes: int) -> Field:
    return of_kind(name, kinds.NUMBER, item_bytes)


def size(name: str) -> Field:
    """Bytes of a file or of some."""
    return Field(name, 15, right=True)


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

    def spell(value: Any) -> str:
        return NONE if value is None else common.escape(value if isinstance(value, str | bytes) else json.dumps(value))

    return Field(name, width, spell, lambda value: common.escape(value) if isinstance(value, bytes) else value)
