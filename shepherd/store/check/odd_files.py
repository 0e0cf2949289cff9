"""Odd files: what stands where a file or directory of the database belongs, and is none. It counts as missing.

Invariant: nothing odd is opened or followed. What waits in the inbox is its owner's, and not looked at.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shepherd.formats import tables
from shepherd.store.disk import kinds, names, opening

DIRECTORIES: Final = (names.INBOX, names.LEASES, names.LOGS)  # without states there is no database
_DEEPEST: Final = 4  # directories below log/: log/cursors/NAME/N/index


@dataclass(frozen=True)
class OddFile:
    """Where it stands below the database, and what it is."""

    place: str
    what: str
    proper: str = "file"

    def __str__(self) -> str:
        return f"{self.place}, which is {self.what} where a {self.proper} belongs"


def survey(db: Path) -> list[OddFile]:
    """All of them, by their places."""
    odd_files = [OddFile(name, what, "directory") for name in DIRECTORIES if (what := kinds.odd_directory(db / name))]
    odd_files += _files(db, [names.LOCK])
    if kinds.odd_file(db / names.MIRROR) != "a link":  # which its readers refuse: without the note servers are asked too soon
        odd_files += _files(db, [names.MIRROR])
    odd_files += _files(db, (f"{names.LEASES}/{name}" for name in _list(db / names.LEASES) if _is_of_lease(name)))
    for name in _list(db / names.STATES):
        if names.parse_state(name) is not None:
            odd_files += _in_state(db, f"{names.STATES}/{name}")
    return sorted([*odd_files, *_in_logs(db, names.LOGS, _DEEPEST)], key=lambda odd: odd.place)


# --- where files belong -----------------------------------------------------------------------------------------


def lock(db: Path) -> list[OddFile]:
    """The lock of the writer alone, if something odd is in its place."""
    return _files(db, [names.LOCK])


def _files(db: Path, places: Iterable[str]) -> list[OddFile]:
    return [OddFile(place, what) for place in places if (what := kinds.odd_file(db / place))]


def _is_of_lease(name: str) -> bool:
    item = names.parse_item(name)
    return name == names.LOCK or (item is not None and item[1] == "lease")


def _in_state(db: Path, state: str) -> Iterator[OddFile]:
    what = kinds.odd_directory(db / state)
    if what:
        yield OddFile(state, what, "directory")
        return
    directories = [*tables.TABLES, names.OBJECTS, names.HARVESTS]
    directories += [f"{names.HARVESTS}/{name}" for name in _list(db / state / names.HARVESTS) if names.is_harvest(name)]
    for directory in directories:
        if what := kinds.odd_directory(db / state / directory):
            yield OddFile(f"{state}/{directory}", what, "directory")
    for inside in ("", *directories):
        for name in _list(db / state / inside):
            place = f"{inside}/{name}" if inside else name
            what = "" if place in directories else kinds.odd_file(db / state / place)
            if what and (what != "a directory" or _is_file_of_state(place)):
                yield OddFile(f"{state}/{place}", what)


def _is_file_of_state(place: str) -> bool:
    if place.startswith(f"{names.HARVESTS}/"):
        name = place.rpartition("/")[2]
        in_harvest = (names.CHECKPOINTS, names.JOURNAL, names.CONTRIB, names.LOCK)
        return name in in_harvest or names.parse_local_segment(name) is not None
    return place == names.CONTROL or names.known_in_state(place.removesuffix(names.CHECK))


def _in_logs(db: Path, directory: str, depth: int) -> Iterator[OddFile]:
    """Logs of lines, and below them what is kept of deleted states."""
    for name in _list(db / directory):
        place = f"{directory}/{name}"
        what = kinds.odd_file(db / place)
        is_log = name.endswith((".json", ".jsonl")) or name == names.CONTROL
        if what == "a directory" and not is_log:
            yield from _in_logs(db, place, depth - 1) if depth else ()
        elif what and (is_log or kinds.odd_directory(db / place)):
            yield OddFile(place, what)


def _list(directory: Path) -> list[str]:
    """What is in a directory; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError), opening.reading(directory):
        return sorted(os.listdir(directory))
    return []
