"""The files of a leased state as they are, for mirrors: only what control names, control itself, and the block tables of columns.

A path is looked up among these and never put together from what a client says. A file never changes under its name in a state, so
its entity tag is what control says of it, and a transfer that broke off goes on with a Range.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import web

from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.formats.check import BLOCK, check64
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import TABLES
from shepherd.serve import leases, sender
from shepherd.serve.answers import Refused, answer
from shepherd.serve.sender import Spans
from shepherd.serve.service import Ask
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.lease import Lease
from shepherd.wire import api

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True)
class Known:
    length: int
    check: int  # of a column and its block table, that of the block table; else of all its bytes

    @property
    def tag(self) -> str:
        return f'"{self.check:016x}-{self.length:x}"'


async def list_all(ask: Ask) -> web.Response:
    ask.parameters()
    lease = await ask.work(leases.find, ask.service, ask.who, ask.request.match_info["lease"])
    ask.notes["state"] = lease.state
    files = await ask.work(_known, ask.service.database, lease.state)
    rows = [api.StateFile(path, one.length, f"{one.check:016x}") for path, one in sorted(files.items())]
    return answer(api.StateFiles(lease.state, rows))


async def get(ask: Ask) -> web.StreamResponse:
    ask.parameters()
    headers = ask.request.headers
    path = ask.request.match_info["path"]
    lease, one = await ask.work(_find, ask, path)
    ask.notes["state"] = lease.state
    if _is_listed(one.tag, headers.get("If-None-Match", "")):
        return web.Response(status=304, headers={"ETag": one.tag})
    start, stop = _range(headers.get("Range", ""), headers.get("If-Range", one.tag), one)
    file = await ask.work(_open, _place(ask.service.database, lease.state) / path, one.length)
    response = sender.Unchunked(status=200 if (start, stop) == (0, one.length) else 206)
    response.headers.update({"ETag": one.tag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"})
    if response.status == 206:
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{one.length}"
    response.content_length = stop - start
    if ask.is_head:
        file.close()  # else who sends it does
    return await sender.send(ask, response, _span(file, start, stop), leases.Keeper(ask.service, ask.who, lease))


# --- what is there ----------------------------------------------------------------------------------------------


def known(state: State) -> dict[str, Known]:
    """Every file of a state, by its path in it."""
    control = fsio.read_file(state.path / names.CONTROL)
    found = {names.CONTROL: Known(len(control), check64(control))}
    for path, entry in state.control.files.items():
        if names.known_in_state(path):
            found[path] = Known(entry.length, entry.check)
            if path.partition("/")[0] in TABLES:
                found[path + names.CHECK] = Known(-(-entry.length // BLOCK) * 8, entry.check)
    return found


def _known(database: Database, number: int) -> dict[str, Known]:
    """The same of a closed state by its number. A mirror asks for thousands of files, and a control has a line for each."""
    found = os.stat(_place(database, number) / names.CONTROL)
    return _remembered(database.path, number, (found.st_ino, found.st_mtime_ns))


@lru_cache(maxsize=4)
def _remembered(path: Path, number: int, _signature: tuple[int, int]) -> dict[str, Known]:
    return known(Database(path).closed(number))


def _place(database: Database, number: int) -> Path:
    return database.states_path / str(StateName(number, CLOSED))


def _find(ask: Ask, path: str) -> tuple[Lease, Known]:
    lease = leases.find(ask.service, ask.who, ask.request.match_info["lease"])
    one = _known(ask.service.database, lease.state).get(path)
    if one is None:
        raise Refused(404, "no file of this name is in the state; the list is at .../files")
    return lease, one


def _open(path: Path, length: int) -> BinaryIO:
    """Open, and as long as control says."""
    try:
        file = open(fsio.open_to_read(path), "rb", buffering=0)  # noqa: SIM115 - who sends it closes it
    except FileNotFoundError:
        raise Corruption("the file is missing", path, advice=CHECK_LISTS) from None
    if file.seek(0, 2) != length:
        file.close()
        raise Corruption(f"not {length} bytes", path, advice=CHECK_LISTS)
    return file


def _span(file: BinaryIO, start: int, stop: int) -> Iterator[Spans]:
    with file:
        if start < stop:
            yield Spans(file.fileno(), [start], [stop - start])


# --- what is asked for ------------------------------------------------------------------------------------------


def _is_listed(tag: str, wanted: str) -> bool:
    return wanted.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in wanted.split(","))


def _range(text: str, condition: str, one: Known) -> tuple[int, int]:
    """The bytes to send. What is no single range, or is of another file than the condition names, gets the whole."""
    found = _RANGE.fullmatch(text)
    if found is None or found[0] == "bytes=-" or condition != one.tag:
        return 0, one.length
    first, last = found[1], found[2]
    start = int(first) if first else max(one.length - int(last), 0)
    stop = min(int(last) + 1, one.length) if first and last else one.length
    if first and last and int(last) < int(first):
        return 0, one.length
    if start >= stop:
        raise Refused(416, f"the file has {one.length} bytes", {"Content-Range": f"bytes */{one.length}"})
    return start, stop
