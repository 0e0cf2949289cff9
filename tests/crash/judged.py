"""Which disks a sweep of real programs has judged already: most faults leave one that another fault has left before.

The fault strikes at every point all the same; what is spared is recovery, two checks and a second run on the same bytes again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable
from pathlib import Path

from shepherd.store.disk import names

ALIKE = 10  # disks that are judged of those that differ only out of sight
UNJUDGED = (names.LOCK, "timings.jsonl")  # who held a lock, and how long something took


class Judged:
    """Complaints about disks. Of those that differ only inside directories being built or deleted, some stand for all."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[str]] = {}
        self._alike: dict[Hashable, list[list[str]]] = {}

    def complaints(self, db: Path, known: Hashable, ask: Callable[[], list[str]]) -> list[str]:
        """What `ask` says of the database, which it may change; `known` is all else that its answer depends on."""
        key = fingerprint(db), known
        if key not in self._known:
            alike = self._alike.setdefault((fingerprint(db, out_of_sight=False), known), [])
            if len(alike) < ALIKE:
                alike.append(ask())
            self._known[key] = next(filter(None, alike), [])
        return self._known[key]

    def __str__(self) -> str:
        return f"{len(self._known)} different disks, {sum(map(len, self._alike.values()))} judged"


def fingerprint(db: Path, out_of_sight: bool = True) -> bytes:
    """The same for disks that no program can tell apart: names, modes, links and bytes of all but locks and timings."""
    whole, first = hashlib.blake2b(digest_size=16), dict[int, str]()

    def walk(directory: str) -> None:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            inside, status = entry.path.removeprefix(str(db)), entry.stat(follow_symlinks=False)
            whole.update(f"{inside} {status.st_mode:o} {first.setdefault(status.st_ino, inside)}\n".encode())
            if entry.is_dir(follow_symlinks=False):
                if out_of_sight or not names.is_leftover(entry.name):
                    walk(entry.path)
            elif entry.name not in UNJUDGED:
                whole.update(hashlib.blake2b(Path(entry.path).read_bytes(), digest_size=16).digest())

    if db.is_dir():
        walk(str(db))
    return whole.digest()
