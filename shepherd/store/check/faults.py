"""Faults: what shep-check lists, each with its file and, where one is known, the offset in it.

Of a table that is wrong throughout not every row is listed: a FaultLimiter lets the first faults of a kind through, and
counts the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shepherd.errors import PlacedError
from shepherd.formats.tables import I64

MOST_LISTED: Final = 20  # of one kind in one file


@dataclass(frozen=True)
class Fault:
    """Something that is not as it must be. A note is worth mentioning but harms nothing."""

    path: Path
    offset: int | None
    what: str
    note: bool = False
    unread: bool = False  # the disk does not give it, so that nothing is known of what is there
    count: int = 1  # how many faults of its kind it stands for

    def __str__(self) -> str:
        place = str(self.path) if self.offset is None else f"{self.path} at {self.offset}"
        return f"{place}: {self.what}"


class FaultLimiter:
    """Lets faults of rows through, up to `most` of a kind in a file (None: all); `rest` says how many more there were."""

    def __init__(self, most: int | None = MOST_LISTED) -> None:
        self._most = most
        self._counts: Counter[tuple[Path, str, bool]] = Counter()

    def rows(self, path: Path, rows: I64, width: int, what: str, note: bool = False) -> Iterator[Fault]:
        """A fault for each of these rows of a column."""
        room = self._room((path, what, note), len(rows))
        return (Fault(path, row * width, what, note) for row in rows[:room].tolist())

    def single(self, fault: Fault, kind: str) -> Iterator[Fault]:
        """A fault whose words are its own, and those for all of its kind."""
        return iter([fault][: self._room((fault.path, kind, fault.note), 1)])

    def _room(self, kind: tuple[Path, str, bool], count: int) -> int:
        before = self._counts[kind]
        self._counts[kind] += count
        return count if self._most is None else max(min(self._most - before, count), 0)

    def rest(self) -> Iterator[Fault]:
        """One fault for all those of a kind that were not let through."""
        for (path, what, note), count in self._counts.items():
            if self._most is not None and count > self._most:
                more = count - self._most
                yield Fault(path, None, f"{more:,} more like this: {what}", note, count=more)


def fault_of(path: Path, error: PlacedError) -> Fault:
    """An error as a fault, of the file and offset that it names if they are those of `path` or inside it."""
    place = Path(error.path) if error.path is not None else path
    if error.path is None or not place.is_relative_to(path):
        return Fault(path, None, str(error))
    return Fault(place, error.offset, error.what)  # without its advice: shep-check is what prints this
