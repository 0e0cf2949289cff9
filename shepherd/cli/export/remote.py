"""shep-export --from: the documents of a state that a server leases, once, or with --cursor as a series that goes on.

A cursor of a local export stands in the database. That one is not here, so such a cursor stands beside the files that it is
about, in DIR/.NAME.cursor: the number of the state, the choice, and what the files are. The server remembers what was in that
state (serve.keep_keys).
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.cli.export import choice as export_choice
from shepherd.cli.export import cursor as export_cursor
from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import Asked
from shepherd.errors import Corruption, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.client import Server


def run(url: str, token: str, ca_file: Path | None, asked: Asked) -> int:
    from shepherd.client import Server

    with Server(url, token, ca=ca_file) as server:
        if asked.cursor is None:
            return _export(server, asked, asked.since)
        return _go_on(server, asked, asked.cursor)


def _export(server: Server, asked: Asked, since: int | None, again: bool = False) -> int:
    from shepherd.export.remote import PURPOSE, RemoteSource

    with server.leased(PURPOSE, asked.number) as lease:
        if again and lease.state <= (since or 0):
            raise NothingToDo(f"nothing is new since state {since}, which the cursor {asked.cursor} has reached")
        tell = export_run.Told()
        source = RemoteSource(server, lease, asked.choice, since, export_choice.narrowed(asked.selection), tell)
        status = export_run.status(export_run.export(source, asked, tell, again=again), asked.as_json)
        if again:
            _advance(asked, lease.state, status)
        return status


def _go_on(server: Server, asked: Asked, name: str) -> int:
    """From the state that the last export of this name had."""
    from shepherd.store.disk import fsio, locks
    from shepherd.store.state import cursors

    path = _path(asked, name)
    with contextlib.ExitStack() as stack:
        if not asked.dry_run:
            fsio.make_directory(path.parent)
            stack.callback(locks.lock(path.with_suffix(".lock"), "shep-export").release)
        at = cursors.read_file(path, name)
        export_cursor.refuse_other(asked, at)
        return _export(server, asked, at.state if at else None, again=True)


def _advance(asked: Asked, state: int, status: int) -> None:
    from shepherd.store.disk import fsio

    assert asked.cursor is not None
    if status and not asked.past_damage:
        raise Corruption(
            f"the cursor {asked.cursor} stays where it was: have the damage mended at the server (shep-check lists it there), "
            "or continue without the skipped documents by --past-damage"
        )
    if not asked.dry_run:
        told: dict[str, Any] = {"state": state, **export_cursor.kind_of(asked)}
        fsio.replace_file(_path(asked, asked.cursor), json.dumps(told, sort_keys=True).encode() + b"\n")


def _path(asked: Asked, name: str) -> Path:
    from shepherd.store.state import cursors

    if not cursors.is_name(name):
        raise UsageError(cursors.no_name(name))
    return Path(asked.output) / f".{name}.cursor"
