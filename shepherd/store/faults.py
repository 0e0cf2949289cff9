"""Faults: what shep-check tells, each with its file and, where one is known, the offset in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shepherd.errors import ShepherdError

_PLACE: Final = re.compile(r"(?P<file>/[^\s:]+)?(?: at (?P<offset>[0-9]+))?:? (?P<what>.*)", re.DOTALL)

MOST_TOLD: Final = 10  # of one kind in one step: a table that is wrong throughout is told of, not listed


@dataclass(frozen=True)
class Fault:
    """Something that is not as it must be. A note is worth mentioning but harms nothing."""

    path: Path
    offset: int | None
    what: str
    note: bool = False
    unread: bool = False  # the disk does not give it, so that nothing is known of what is there

    def __str__(self) -> str:
        place = str(self.path) if self.offset is None else f"{self.path} at {self.offset}"
        return f"{place}: {self.what}"


def fault_of(path: Path, error: ShepherdError) -> Fault:
    """An error as a fault, of the file and offset that it names if they are those of `path` or inside it."""
    text = str(error)
    match = _PLACE.fullmatch(text, len(str(path))) if text.startswith(str(path)) else None
    if match is None:
        return Fault(path, None, text)
    offset = None if match["offset"] is None else int(match["offset"])
    what = match["what"].removesuffix("; shep-check lists all damage")  # that is who tells it now
    return Fault(Path(f"{path}{match['file'] or ''}"), offset, what)
