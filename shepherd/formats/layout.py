"""Structs made from numpy's dtypes: a record is described once, and read one at a time as well as many at once."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np

Record: TypeAlias = np.dtype[np.void]

_CODES: Final = {"|u1": "B", "<u2": "H", "<i2": "h", "<u4": "I", "<u8": "Q", "<i8": "q"}


def names_of(record: Record) -> tuple[str, ...]:
    return record.names or ()


def struct_of(record: Record, names: Sequence[str] | None = None) -> Struct:
    """A struct of some fields that follow one another, or of all."""
    return Struct("<" + "".join(_code(record[name]) for name in (names_of(record) if names is None else names)))


def offset_of(record: Record, name: str) -> int:
    """Where a field begins."""
    assert record.fields is not None
    return int(record.fields[name][1])


def _code(field: np.dtype[Any]) -> str:
    return f"{field.itemsize}s" if field.kind == "S" else _CODES[field.str]
