"""One section of a TOML file as a frozen dataclass: every key must be a field of it, every value of the type of its default."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

from shepherd.errors import ConfigError

_KINDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts"}
MOST: Final = 10**12  # of any number: times, sizes and counts beyond it are slips


def read(path: Path, section: str, default: Any, table: dict[str, Any]) -> Any:
    """`default`, a dataclass, with what the table says."""
    known = {f.name for f in dataclasses.fields(default)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}: [{section}] {key}"
        if key not in known:
            raise ConfigError(f"{where}: unknown key; there are {', '.join(sorted(known))}")
        values[key] = _coerce(where, value, getattr(default, key))
    return dataclasses.replace(default, **values)


def _coerce(where: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        ok = isinstance(value, bool)
    elif isinstance(default, float):
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if ok else value
    elif isinstance(default, int):
        ok = isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(default, tuple):
        ok = isinstance(value, list) and all(isinstance(item, str) for item in value)
        value = tuple(value) if ok else value
    else:
        ok = isinstance(value, str)
    if not ok:
        raise ConfigError(f"{where}: must be {_KINDS[type(default)]}, not {value!r}")
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value <= MOST:
        raise ConfigError(f"{where}: must be from 0 to {MOST}, not {value!r}")
    return value
