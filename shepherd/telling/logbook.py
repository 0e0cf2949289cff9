"""The logs of db/log, read: what cycles and programs did. Lines that a crash cut short, or that are not ours, are passed over."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

CYCLES: Final = "cycles.jsonl"
NOW: Final = "now.json"
MINUTES: Final = "minutes.jsonl"
REAPS: Final = "reaps.jsonl"
TERMINATED: Final = 128 + signal.SIGTERM  # exit status
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


def now(log: Path) -> dict[str, Any]:
    """What is being done, by what was last written; nothing where nothing is, or nobody knows."""
    try:
        return next(_object((log / NOW).read_bytes()), {})
    except OSError:
        return {}


def newest_first(path: Path) -> Iterator[dict[str, Any]]:
    """Every object of a log, the newest first; nothing where there is no log. What is not asked for is not read."""
    try:
        with path.open("rb") as file:
            start, cut = file.seek(0, 2), b""
            while start:
                stop, start = start, max(start - TAIL_BYTES, 0)
                file.seek(start)
                first, *lines = (file.read(stop - start) + cut).split(b"\n")
                for line in reversed(lines):
                    yield from _object(line)
                cut = first  # its beginning is in what comes before
            yield from _object(cut)
    except FileNotFoundError:
        return


def cycles_since(log: Path, step: str, most: int) -> int:
    """How many cycles there were since the last that ran a program, unless it was cut short; no more than `most` are counted."""
    count = 0
    for cycle in filter(is_cycle, newest_first(log / CYCLES)):
        if count >= most or any(one.get("step") == step and one.get("status") != TERMINATED for one in cycle["steps"]):
            break
        count += 1
    return count


def _object(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(entry, dict):
        yield entry


def is_cycle(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("start"), int) and isinstance(entry.get("steps"), list)


def first_start(log: Path) -> int:
    """When the oldest cycle that the log tells of began; 0 if it tells of none."""
    try:
        with (log / CYCLES).open("rb") as file:
            found = _read([file.readline(HEAD_BYTES)])
    except OSError:
        return 0
    return int(found[0]["start"]) if found else 0


def _read(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [entry for line in lines for entry in _object(line) if is_cycle(entry)]
