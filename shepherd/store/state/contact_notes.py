"""Notes of contacts: what a program that asked a server outside a reap leaves in the inbox, so that nobody asks it too soon.

A note is one journal record. It is there before the server is asked, and then says that it may be asked until the deadline; when
the answer is in, the true record takes its place. So whoever is killed in between leaves a note that holds the server for longer
than needed, never for less. Reaps read the notes that wait, and the next cork takes them into its journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import JOURNAL, NO_OID, JournalFlag, Kind, Records, is_resolved
from shepherd.store.disk import fsio, names
from shepherd.store.state import logs
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import CONTACT, Inbox, InboxItem
from shepherd.store.state.inbox_files import item_frames

MOST_BYTES: Final = 1 << 12  # of a note, which is one frame of one record
CONTACTED = int(JournalFlag.CONTACTED | JournalFlag.HOP)


@dataclass(frozen=True)
class Notes:
    """The records of all notes, oldest first, the items they stood in, and why others cannot be read."""

    records: Records
    items: tuple[str, ...]
    refused: dict[str, str]


def leave(inbox: Inbox, name: str, record: Records) -> None:
    """Put a note in place, also of another one of this name; when this returns it is durable."""
    note = record.copy()
    note["flags"] |= CONTACTED  # the server may have seen it, and nothing is settled by it
    note["oid"] = NO_OID
    fsio.replace_file(_path(inbox, name), pack_frame(FrameKind.JOURNAL, 1, note.tobytes()))


def withdraw(inbox: Inbox, name: str) -> None:
    """Nobody was contacted after all."""
    fsio.unlink(_path(inbox, name))
    fsio.sync_directory(inbox.directory)


def waiting(inbox: Inbox, applied: Iterable[str]) -> Notes:
    """The notes that no state of this chain has taken yet."""
    parts, items, refused = [np.zeros(0, JOURNAL)], [], {}
    for item in inbox.waiting(applied, CONTACT):
        try:
            parts.append(read(item))
            items.append(item.name)
        except Corruption as error:
            refused[item.name] = error.what
    return Notes(np.concatenate(parts), tuple(items), refused)


def beside(state: State) -> Notes:
    """Those in the inbox of the database that a state is of."""
    return waiting(Inbox(state.path.parents[1] / names.INBOX), state.control.applied)


def _path(inbox: Inbox, name: str) -> Path:
    return inbox.directory / f"{name}.{CONTACT}"


def read(item: InboxItem) -> Records:
    """The record of a note; Corruption says why it is none."""
    parts = [logs.records_of(frame, FrameKind.JOURNAL, JOURNAL, item.path) for frame in item_frames(item.path, MOST_BYTES)]
    if len(parts) != 1 or len(parts[0]) != 1:
        raise Corruption(f"{sum(map(len, parts))} records, where a note has one", item.path)
    (records,) = parts
    flags, kind = int(records["flags"][0]), int(records["kind"][0])
    if flags & CONTACTED != CONTACTED or kind not in (Kind.PAGE, Kind.ROBOTS) or not is_resolved(int(records["qkey"][0])):
        raise Corruption("not the record of a contact that settles nothing", item.path)
    return records
