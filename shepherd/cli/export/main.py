"""shep-export: the documents of a state in formats that other programs read.

Where they come from, and the order of steps. options.py has the options, choice.py says which documents,
run.py makes one export by shepherd.export, cursor.py a series of them, and remote.py those from a server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli.export import options as export_options
from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import ExportOptions
from shepherd.config import Config
from shepherd.console import common, remote, shared
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.store.state.database import Database
    from shepherd.store.state.directory import State


@click.command()
@export_options.export_options
@remote.maybe_remote
@shared.state_number
@common.database
@common.configured
@common.jsonable
@common.standard
def command(options: ExportOptions, url: str | None, token: str | None, ca_file: Path | None, db: Path, config: Config) -> int:
    """Write the documents of a state, the newest by default, in a format that other programs read.

    Files get their names only when all are complete; PREFIX-STATE.json, the manifest, comes last. A damaged document is reported
    and skipped, with exit status 11 at the end. With --cursor an export continues where the last one of this name ended; a cursor
    that export.cursors names takes every closed state in turn.

    \b
    Examples:
      shep-export --format warc --cdxj -o archive
      shep-export --format warc -o archive --cursor archive
      shep-export --format jsonl --no-body --best 1000 -o - | head
      shep-export --format parquet-urls --type error -o tables
      shep-export --from https://db.example.org:8731 --token-file token --format warc -o archive
    """
    from shepherd.store.state.database import Database

    if url is not None:
        export_options.refuse_remote(options, token)
    export_options.refuse(options)
    if url is not None:
        from shepherd.cli.export import remote as export_remote

        return export_remote.run(url, token or "", ca_file, options)
    if token is not None:
        raise UsageError("--token-file is for a server: name it by --from")
    database = Database(db)
    if options.wish.format == "parquet-urls":
        from shepherd.cli.export import urls as export_urls

        return export_urls.run(database, options)
    if options.cursor is not None:
        from shepherd.cli.export import cursor as export_cursor

        return export_cursor.run(database, options, options.cursor, every=options.cursor in config.export.cursors)
    return _from_here(database, options)


def _from_here(database: Database, options: ExportOptions) -> int:
    with (
        database.reading("shep-export", shared.clock_ms(), options.number) as state,
        _older(database, options.since, state) as older,
    ):
        on_damage = export_run.DamageReporter()
        source = export_run.local_source(options, state, older, on_damage)
        return export_run.status(export_run.export(source, options, on_damage), options.as_json)


@contextlib.contextmanager
def _older(database: Database, number: int | None, state: State) -> Iterator[State | None]:
    """What is known of an older state; leased, if it is still there."""
    from shepherd.store.state import keys

    if number is None:
        yield None
        return
    if number >= state.number:
        raise UsageError(f"state {number} is not older than state {state.number}")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(UsageError):
            stack.enter_context(database.reading("shep-export", shared.clock_ms(), number))
        yield keys.state_or_keys(database, number)


def main() -> None:
    common.run(command)
