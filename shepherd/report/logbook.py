"""The logs of db/log, read: what cycles and programs did. Lines that a crash cut short, or that are not ours, are skipped."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from shepherd.errors import IoFailed
from shepherd.store.disk import opening

CYCLES: Final = "cycles.jsonl"
NOW: Final = "now.json"
MINUTES: Final = "minutes.jsonl"
OF_MINUTES: Final = ("time", "seconds", "pages", "wire_bytes", "errors", "active")
REAPS: Final = "reaps.jsonl"
TERMINATED: Final = 128 + signal.SIGTERM  # exit status
TAIL_BYTES: Final = 1 << 20  # what is read of the end of the log
HEAD_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 16  # that a log is read in from its end; of lines that are longer, twice as many, and so on


def cycles(log: Path) -> list[dict[str, Any]]:
    """The newest cycles, the newest last, as far as they are in the last MiB."""
    return _read(_tail(log / CYCLES))


def now(log: Path) -> dict[str, Any]:
    """What is being done, by the last notice; empty where nothing runs, or where that is unknown."""
    try:
        return next(objects([opening.read_file(log / NOW)]), {})
    except (OSError, IoFailed):
        return {}


def minutes(log: Path, since: float) -> list[dict[str, Any]]:
    """How fast reaps went, a line for each minute since then, the newest last; as far as they are in the last MiB."""
    entries = objects(_tail(log / MINUTES))
    return [entry for entry in entries if all(_is_figure(entry.get(name)) for name in OF_MINUTES) and entry["time"] >= since]


def newest_first(path: Path, most_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Every object of a log, or of so many bytes of its end, the newest first; nothing where there is no log.

    What is not asked for is not read, and only a piece of the log is in memory, however long it has become.
    """
    try:
        with opening.open_stream(path) as file:
            start, cut, piece = file.seek(0, 2), b"", PIECE_BYTES
            end = max(start - most_bytes, 0) if most_bytes is not None else 0
            while start > end:
                stop, start = start, max(start - piece, end)
                file.seek(start)
                first, *lines = (file.read(stop - start) + cut).split(b"\n")
                piece = PIECE_BYTES if lines else piece * 2
                yield from objects(reversed(lines))
                cut = first  # its beginning is in what comes before
            if not end:
                yield from objects([cut])
    except FileNotFoundError:
        return


def cycles_since(log: Path, step: str, most: int) -> int:
    """How many cycles there were since the last that ran a program, unless it was cut short; no more than `most` are counted."""
    count = 0
    for cycle in filter(is_cycle, newest_first(log / CYCLES)):
        if count >= most or any(entry.get("step") == step and entry.get("status") != TERMINATED for entry in cycle["steps"]):
            break
        count += 1
    return count


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < 2**63


def _tail(path: Path) -> list[bytes]:
    """The lines of the last MiB of a log, without one that is cut; none where there is no log."""
    try:
        with opening.open_stream(path) as file:
            size = file.seek(0, 2)
            file.seek(max(size - TAIL_BYTES, 0))
            lines = file.read().split(b"\n")
    except (OSError, IoFailed):
        return []
    return lines[1:] if size > TAIL_BYTES else lines


def objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What lines of a log say; those that are cut short, or not ours, are skipped."""
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield entry


def is_cycle(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("start"), int) and isinstance(entry.get("steps"), list)


def first_start(log: Path) -> int:
    """When the oldest cycle in the log began; 0 if there is none."""
    try:
        with opening.open_stream(log / CYCLES) as file:
            entries = _read([file.readline(HEAD_BYTES)])
    except (OSError, IoFailed):
        return 0
    return int(entries[0]["start"]) if entries else 0


def _read(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [entry for entry in objects(lines) if is_cycle(entry)]
