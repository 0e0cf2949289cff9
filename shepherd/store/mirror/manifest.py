"""A state that another machine offers: how much of its control is believed, and what follows from it.

A mirror's source may be broken, taken over, or another database altogether. Its control says which files there are, how long and
with which checks, and everything that a mirror does depends on that; so it is judged as a whole before anything is written.
Invariant: a Control that `judge` returns has only names that store/disk/names.py builds, of a whole closed state of this format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import Corruption, OldFormat, PeerRefused, Place, UsageError
from shepherd.formats import tables
from shepherd.formats.check import BLOCK
from shepherd.formats.control import CLOSED, Control, FileEntry, parse_control
from shepherd.store.check import files as check_files
from shepherd.store.disk import names
from shepherd.store.state.directory import State

MOST_CONTROL: Final = 1 << 23  # bytes: 150,000 files, of which a segment may have a gigabyte
MOST_NAME: Final = 64  # characters of a path in a state; those of ours have half as many
_MOST_ITEM: Final = 300


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of the state, as control has it. A column brings its block table, which control has only the check of."""

    path: str
    entry: FileEntry

    @property
    def is_column(self) -> bool:
        return self.path.partition("/")[0] in tables.TABLES

    @property
    def table_bytes(self) -> int:
        """How long its block table is."""
        return 8 * -(-self.entry.length // BLOCK) if self.is_column else 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Its file, and that of its block table."""
        return (self.path, f"{self.path}{names.CHECK}") if self.is_column else (self.path,)

    @property
    def total(self) -> int:
        return self.entry.length + self.table_bytes

    @property
    def dtype(self) -> str:
        """Of a column."""
        table, _, column = self.path.partition("/")
        return tables.TABLES[table].get(column, "u1")  # the names of the sites


def remote_files(control: Control) -> list[RemoteFile]:
    return [RemoteFile(path, entry) for path, entry in sorted(control.files.items())]


def damage_at_source(what: str, path: Place | None, offset: int | None = None) -> Corruption:
    """Something that came is not what a sound source gives; shep-check would look for it in vain here."""
    return Corruption(what, path, offset, "nothing here is damaged: run shep-check at the source")


def judge(data: bytes, number: int, where: str) -> Control:
    """The control of closed state `number`, if it is one that can be believed; `where` is whose it is, for the error."""
    try:
        control = parse_control(data, where)
    except Corruption as error:
        raise damage_at_source(error.what, error.path, error.offset) from error
    except (OldFormat, UsageError) as error:
        raise PeerRefused(f"{error}; both ends of a mirror need the same version") from error
    if (control.phase, control.state) != (CLOSED, number):
        raise damage_at_source(f"says that it is {control.phase} {control.state}, not state {number}", where)
    complaint = next(_complaints(control), None)
    if complaint:
        raise damage_at_source(f"{complaint}; nothing was taken over", where)
    return control


def _complaints(control: Control) -> Iterator[str]:
    """Names first: what comes after may then make numbers of them."""
    for path in control.files:
        if len(path) > MOST_NAME or not names.known_in_state(path) or path == names.PLAN:
            yield f"names a file that no closed state has: {path[:MOST_NAME]!r}"
    if control.parent != "-" and (len(control.parent) > MOST_NAME or names.parse_state(control.parent) is None):
        yield f"names a parent that no state has: {control.parent[:MOST_NAME]!r}"
    for name in control.applied:
        if len(name) > _MOST_ITEM or names.parse_item(f"{name}.req") is None:
            yield f"names an item that no inbox has: {name[:MOST_NAME]!r}"
    for remote in remote_files(control):
        if remote.is_column and remote.entry.length % np.dtype(remote.dtype).itemsize:
            yield f"{remote.path}: {remote.entry.length} bytes is not a whole number of rows"
    if names.REPORT not in control.files:
        yield f"{names.REPORT} is missing"
    claimed = State.of_control(Path(str(control.state)), control)
    yield from (f"{fault.path.name}: {fault.what}" for fault in check_files.walk_control(claimed))
