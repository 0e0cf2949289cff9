"""db/log/cycles.jsonl, read: what past cycles did. Lines that a crash cut short, or that are not ours, are passed over."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

CYCLES: Final = "cycles.jsonl"
TAIL_BYTES: Final = 1 << 20  # what is read of the end of the log
HEAD_BYTES: Final = 1 << 20


def cycles(log: Path) -> list[dict[str, Any]]:
    """The newest cycles, the newest last, as far as they are in the last MiB."""
    try:
        with (log / CYCLES).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - TAIL_BYTES, 0))
            data = file.read()
    except OSError:
        return []
    lines = data.split(b"\n")
    return _read(lines[1:] if size > TAIL_BYTES else lines)


def first_start(log: Path) -> int:
    """When the oldest cycle that the log tells of began; 0 if it tells of none."""
    try:
        with (log / CYCLES).open("rb") as file:
            found = _read([file.readline(HEAD_BYTES)])
    except OSError:
        return 0
    return int(found[0]["start"]) if found else 0


def _read(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("start"), int) and isinstance(entry.get("steps"), list):
            found.append(entry)
    return found
