"""shep-export --cursor: exports that go on from where the last one of their name ended (store/state/cursors.py)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shepherd.cli.export import choice as export_choice
from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import ExportOptions
from shepherd.console import shared
from shepherd.errors import Corruption, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.store.state.cursors import Cursor
    from shepherd.store.state.database import Database


def run(database: Database, options: ExportOptions, name: str, every: bool) -> int:
    """Go on from where the cursor stands. `every`: it passes through each closed state that it has not come to."""
    from shepherd.store.state import cursors

    with contextlib.ExitStack() as stack:
        if not options.dry_run:
            database.closed(options.number)  # before anything is made in what may be no database
            stack.callback(cursors.locked(database.log_path, name).release)
        cursor = _cursor_of(database, options, name)
        numbers = _to_come(database, options, cursor, every)
        if not numbers:
            raise NothingToDo(f"nothing is new since state {cursor.state}, which the cursor {name} has reached")
        status = 0
        for number in numbers:
            status = _export(database, options, cursor, number) or status
            cursor = replace(cursor, state=number)
        return status


def _cursor_of(database: Database, options: ExportOptions, name: str) -> Cursor:
    """Where the cursor is; at state 0 where it never ended an export."""
    from shepherd.store.state import cursors

    cursor = cursors.read(database.log_path, name)
    refuse_other(options, cursor)
    return cursors.Cursor(name, cursor.state if cursor is not None else 0, **kind_of(options))


def kind_of(options: ExportOptions) -> dict[str, Any]:
    """What a cursor remembers of its exports: which documents, and as what they were written."""
    return {"choice": export_choice.words(options.choice, options.selection), "written": options.wish.words()}


def refuse_other(options: ExportOptions, cursor: Cursor | None) -> None:
    """A series stays what it is."""
    kind = kind_of(options)
    if cursor is not None and cursor.written not in (None, kind["written"]):
        raise UsageError(
            f"the cursor {cursor.name} continues files of another kind: give {_options(cursor.written or {})}, as then, "
            "or another name, which begins with all that there is"
        )
    if cursor is not None and cursor.choice != kind["choice"]:
        raise UsageError(
            f"the cursor {cursor.name} continues another choice of documents; give the same selectors as then, or another name"
        )


def _options(written: dict[str, Any]) -> str:
    """What a cursor remembers, as somebody would write it again."""
    words = f"--format {written.get('format')}"
    words += " --no-body" if written.get("bodies") is False else ""
    words += " --cdxj" if written.get("cdxj") else ""
    return words + (" --digest sha256" if written.get("digest") == "sha256" else "")


def _to_come(database: Database, options: ExportOptions, cursor: Cursor, every: bool) -> list[int]:
    """The states to export, oldest first."""
    last = database.closed(options.number).number
    if not every:
        return [last] if last > cursor.state else []
    return [name.number for name in database.states() if name.closed and cursor.state < name.number <= last]


def _export(database: Database, options: ExportOptions, cursor: Cursor, number: int) -> int:
    """One state of them, and the cursor has moved to it; with --dry-run neither."""
    from shepherd.store.state import cursors

    with database.reading("shep-export", shared.clock_ms(), number) as state:
        on_damage = export_run.DamageReporter()
        source = export_run.local_source(
            options, state, cursors.open_state(database, cursor) if cursor.state else None, on_damage
        )
        status = export_run.status(export_run.export(source, options, on_damage, again=True), options.as_json)
        if status and not options.past_damage:
            raise Corruption(
                f"the cursor {cursor.name} stays where it was, at state {cursor.state}: mend the damage (shep-check lists it), "
                "or continue without the skipped documents by --past-damage"
            )
        if not options.dry_run:
            cursors.advance(database, cursor, state)
    return status
