"""shep-export --from: the documents of a state that a server leases, once, or with --cursor as a series.

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
from shepherd.cli.export.options import ExportOptions
from shepherd.errors import Corruption, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.client import Server


def run(url: str, token: str, ca_file: Path | None, options: ExportOptions) -> int:
    from shepherd.client import Server

    with Server(url, token, ca=ca_file) as server:
        if options.cursor is None:
            return _export(server, options, options.since)
        return _continue(server, options, options.cursor)


def _export(server: Server, options: ExportOptions, since: int | None, again: bool = False) -> int:
    from shepherd.client import heartbeat
    from shepherd.export.remote import PROGRAM, RemoteSource

    with heartbeat.hold(server, PROGRAM, options.number) as lease:
        if again and lease.state <= (since or 0):
            raise NothingToDo(f"nothing is new since state {since}, which the cursor {options.cursor} has reached")
        on_damage = export_run.DamageReporter()
        source = RemoteSource(server, lease, options.choice, since, export_choice.narrowed(options.selection), on_damage)
        status = export_run.status(export_run.export(source, options, on_damage, again=again), options.as_json)
        if again:
            _advance(options, lease.state, status)
        return status


def _continue(server: Server, options: ExportOptions, name: str) -> int:
    """From the state that the last export of this name had."""
    from shepherd.store.disk import fsio, locks
    from shepherd.store.state import cursors

    path = _path(options, name)
    with contextlib.ExitStack() as stack:
        if not options.dry_run:
            fsio.make_directory(path.parent)
            stack.callback(locks.lock(path.with_suffix(".lock"), "shep-export").release)
        cursor = cursors.read_file(path, name)
        export_cursor.refuse_other(options, cursor)
        return _export(server, options, cursor.state if cursor else None, again=True)


def _advance(options: ExportOptions, state: int, status: int) -> None:
    from shepherd.store.disk import fsio

    assert options.cursor is not None
    if status and not options.past_damage:
        raise Corruption(
            f"the cursor {options.cursor} stays where it was: have the damage mended at the server (shep-check lists it there), "
            "or continue without the skipped documents by --past-damage"
        )
    if not options.dry_run:
        record: dict[str, Any] = {"state": state, **export_cursor.kind_of(options)}
        fsio.replace_file(_path(options, options.cursor), json.dumps(record, sort_keys=True).encode() + b"\n")


def _path(options: ExportOptions, name: str) -> Path:
    from shepherd.store.state import cursors

    if not cursors.is_name(name):
        raise UsageError(cursors.no_name(name))
    return Path(options.output) / f".{name}.cursor"
