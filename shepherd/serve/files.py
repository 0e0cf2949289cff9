"""The files of a leased state as they are, for mirrors: only what control names, control itself, and the block tables of columns.

A path is looked up among these and never put together from what a client says. A file never changes under its name in a state, so
its entity tag is what control says of it, and a transfer that broke off goes on with a Range.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.expressions import StoredForm
from shepherd.formats.check import BLOCK, check64
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import TABLES
from shepherd.serve import leases, sender
from shepherd.serve.answers import Refused, answer
from shepherd.serve.sender import FileSpans
from shepherd.serve.service import Ask
from shepherd.store.disk import fsio, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.lease import Lease
from shepherd.wire import api


@dataclass(frozen=True)
class StateFileEntry:
    length: int
    check: int  # of a column and its block table, that of the block table; else of all its bytes

    @property
    def tag(self) -> str:
        return f'"{self.check:016x}-{self.length:x}"'


async def list_all(ask: Ask) -> web.Response:
    ask.parameters()
    lease = await ask.work(leases.find, ask.service, ask.who, ask.request.match_info["lease"])
    ask.notes["state"] = lease.state
    files = await ask.work(_entries_of_number, ask.service.database, lease.state)
    rows = [api.StateFile(path, entry.length, f"{entry.check:016x}") for path, entry in sorted(files.items())]
    return answer(api.StateFiles(lease.state, rows))


async def get(ask: Ask) -> web.StreamResponse:
    ask.parameters()
    headers = ask.request.headers
    path = ask.request.match_info["path"]
    lease, entry = await ask.work(_find, ask, path)
    ask.notes["state"] = lease.state
    if _is_listed(entry.tag, headers.get("If-None-Match", "")):
        return web.Response(status=304, headers={"ETag": entry.tag})
    start, stop = _range(headers.get("Range", ""), headers.get("If-Range", entry.tag), entry)
    file = await ask.work(_open, _place(ask.service.database, lease.state) / path, entry.length)
    response = sender.Unchunked(status=200 if (start, stop) == (0, entry.length) else 206)
    response.headers.update({"ETag": entry.tag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"})
    if response.status == 206:
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{entry.length}"
    response.content_length = stop - start
    if ask.is_head:
        file.close()  # else who sends it does
    return await sender.send(ask, response, _span(file, start, stop), leases.Keeper(ask.service, ask.who, lease))


# --- what is there ----------------------------------------------------------------------------------------------


def entries_of_state(state: State) -> dict[str, StateFileEntry]:
    """Every file of a state, by its path in it."""
    control = opening.read_file(state.path / names.CONTROL)
    entries = {names.CONTROL: StateFileEntry(len(control), check64(control))}
    for path, entry in state.control.files.items():
        if names.known_in_state(path):
            entries[path] = StateFileEntry(entry.length, entry.check)
            if path.partition("/")[0] in TABLES:
                entries[path + names.CHECK] = StateFileEntry(-(-entry.length // BLOCK) * 8, entry.check)
    return entries


def _entries_of_number(database: Database, number: int) -> dict[str, StateFileEntry]:
    """The same of a closed state by its number. A mirror asks for thousands of files, and a control has a line for each."""
    control_stat = os.stat(_place(database, number) / names.CONTROL)
    return _remembered(database.path, number, (control_stat.st_ino, control_stat.st_mtime_ns))


@lru_cache(maxsize=4)
def _remembered(path: Path, number: int, _signature: tuple[int, int]) -> dict[str, StateFileEntry]:
    return entries_of_state(Database(path).closed(number))


def _place(database: Database, number: int) -> Path:
    return database.states_path / str(StateName(number, CLOSED))


def _find(ask: Ask, path: str) -> tuple[Lease, StateFileEntry]:
    lease = leases.find(ask.service, ask.who, ask.request.match_info["lease"])
    entry = _entries_of_number(ask.service.database, lease.state).get(path)
    if entry is None:
        raise Refused(404, "no file of this name is in the state; the list is at .../files")
    return lease, entry


def _open(path: Path, length: int) -> BinaryIO:
    """Open, and as long as control says. Only the directory of the database itself may be a link: its operator has named it."""
    if not fsio.is_directory(path.parent):
        raise Corruption("not a directory, where the files of a state belong", path.parent, advice=CHECK_LISTS)
    try:
        file = open(opening.open_regular(path), "rb", buffering=0)  # noqa: SIM115 - who sends it closes it
    except FileNotFoundError:
        raise Corruption("the file is missing", path, advice=CHECK_LISTS) from None
    if file.seek(0, 2) != length:
        file.close()
        raise Corruption(f"not {length} bytes", path, advice=CHECK_LISTS)
    return file


def _span(file: BinaryIO, start: int, stop: int) -> Iterator[FileSpans]:
    with file:
        if start < stop:
            yield FileSpans(file.fileno(), [start], [stop - start])


# --- what is asked for ------------------------------------------------------------------------------------------


def _is_listed(tag: str, condition: str) -> bool:
    return condition.strip() == "*" or tag in (item.strip().removeprefix("W/") for item in condition.split(","))


def _range(text: str, condition: str, entry: StateFileEntry) -> tuple[int, int]:
    """The bytes to send. What is no single range, or is of another file than the condition names, gets the whole."""
    match = StoredForm.BYTE_RANGE.fullmatch(text)
    if match is None or match[0] == "bytes=-" or condition != entry.tag:
        return 0, entry.length
    first, last = match[1], match[2]
    start = int(first) if first else max(entry.length - int(last), 0)
    stop = min(int(last) + 1, entry.length) if first and last else entry.length
    if first and last and int(last) < int(first):
        return 0, entry.length
    if start >= stop:
        raise Refused(416, f"the file has {entry.length} bytes", {"Content-Range": f"bytes */{entry.length}"})
    return start, stop
