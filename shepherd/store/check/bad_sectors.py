"""What a disk does not give: each place of a file that cannot be read is a fault of its own. A check continues behind it.

Invariant: nothing is concluded from a place that cannot be read. A fault made here is marked `unread`, and who mends stops at it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from shepherd.errors import IoFailed
from shepherd.store.check.faults import Fault, fault_of
from shepherd.store.disk import names, opening

STEP_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096  # the system reads no less at a time, so no failure is smaller


def past_bad_sectors(path: Path, faults: Iterable[Fault]) -> Iterator[Fault]:
    """These faults of a file or directory; where the disk fails in their midst, the places at which it does, not the rest."""
    try:
        with opening.reading(path):
            yield from faults
    except IoFailed as error:
        yield from unread_places(path, error)


def unread_places(path: Path, error: IoFailed) -> Iterator[Fault]:
    """Where a file (or, of a column, its block table) cannot be read, after an error that said that it cannot.

    What we may not read says nothing of the disk, so that error is the caller's.
    """
    if isinstance(error.__cause__, PermissionError):
        raise error
    faults = [fault for file in (path, path.with_name(path.name + names.CHECK)) for fault in _places(file)]
    yield from faults or [replace(fault_of(path, error), unread=True)]


def _places(file: Path) -> Iterator[Fault]:
    """Every stretch of a file that the disk does not give."""
    try:
        fd = opening.open_regular(file)
    except (OSError, IoFailed):
        return
    try:
        size = os.fstat(fd).st_size
        steps = (offset for offset in range(0, size, STEP_BYTES) if not _reads(file, fd, STEP_BYTES, offset))
        pages = (offset for step in steps for offset in range(step, min(step + STEP_BYTES, size), PAGE_BYTES))
        bad = {offset for offset in pages if not _reads(file, fd, PAGE_BYTES, offset)}
    finally:
        os.close(fd)
    for first in (offset for offset in sorted(bad) if offset - PAGE_BYTES not in bad):
        end = next(offset for offset in range(first, size + PAGE_BYTES, PAGE_BYTES) if offset not in bad)
        yield Fault(file, first, f"{min(end, size) - first} bytes cannot be read", unread=True)


def _reads(file: Path, fd: int, length: int, offset: int) -> bool:
    try:
        opening.read_at(file, fd, length, offset)
    except IoFailed:
        return False
    return True
