"""shep-export --cursor: exports that go on from where the last one of their name ended (store/state/cursors.py)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shepherd.cli.export import choice as export_choice
from shepherd.cli.export import run as export_run
from shepherd.cli.export.options import Asked
from shepherd.console import shared
from shepherd.errors import Corruption, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.store.state.cursors import Cursor
    from shepherd.store.state.database import Database


def run(database: Database, asked: Asked, name: str, every: bool) -> int:
    """Go on from where the cursor stands. `every`: it passes through each closed state that it has not come to."""
    from shepherd.store.state import cursors

    with contextlib.ExitStack() as stack:
        if not asked.dry_run:
            database.closed(asked.number)  # before anything is made in what may be no database
            stack.callback(cursors.locked(database.log_path, name).release)
        at = _standing(database, asked, name)
        numbers = _to_come(database, asked, at, every)
        if not numbers:
            raise NothingToDo(f"nothing is new since state {at.state}, which the cursor {name} has reached")
        status = 0
        for number in numbers:
            status = _export(database, asked, at, number) or status
            at = replace(at, state=number)
        return status


def _standing(database: Database, asked: Asked, name: str) -> Cursor:
    """Where the cursor is; at state 0 where it never ended an export."""
    from shepherd.store.state import cursors

    at = cursors.read(database.log_path, name)
    refuse_other(asked, at)
    return cursors.Cursor(name, at.state if at is not None else 0, **kind_of(asked))


def kind_of(asked: Asked) -> dict[str, Any]:
    """What a cursor remembers of its exports: which documents, and as what they were written."""
    return {"choice": export_choice.words(asked.choice, asked.selection), "written": asked.wish.words()}


def refuse_other(asked: Asked, at: Cursor | None) -> None:
    """A series stays what it is."""
    kind = kind_of(asked)
    if at is not None and at.written not in (None, kind["written"]):
        raise UsageError(
            f"the cursor {at.name} continues files of another kind: give {_options(at.written or {})}, as then, "
            "or another name, which begins with all that there is"
        )
    if at is not None and at.choice != kind["choice"]:
        raise UsageError(
            f"the cursor {at.name} continues another choice of documents; give the same selectors as then, or another name"
        )


def _options(written: dict[str, Any]) -> str:
    """What a cursor remembers, as somebody would write it again."""
    told = f"--format {written.get('format')}"
    told += " --no-body" if written.get("bodies") is False else ""
    told += " --cdxj" if written.get("cdxj") else ""
    return told + (" --digest sha256" if written.get("digest") == "sha256" else "")


def _to_come(database: Database, asked: Asked, at: Cursor, every: bool) -> list[int]:
    """The states to export, oldest first."""
    last = database.closed(asked.number).number
    if not every:
        return [last] if last > at.state else []
    return [name.number for name in database.states() if name.closed and at.state < name.number <= last]


def _export(database: Database, asked: Asked, at: Cursor, number: int) -> int:
    """One state of them, and the cursor has moved to it; with --dry-run neither."""
    from shepherd.store.state import cursors

    with database.reading("shep-export", shared.clock_ms(), number) as state:
        tell = export_run.Told()
        source = export_run.local_source(asked, state, cursors.opened(database, at) if at.state else None, tell)
        status = export_run.status(export_run.export(source, asked, tell, again=True), asked.as_json)
        if status and not asked.past_damage:
            raise Corruption(
                f"the cursor {at.name} stays where it was, at state {at.state}: mend the damage (shep-check lists it), "
                "or continue without the skipped documents by --past-damage"
            )
        if not asked.dry_run:
            cursors.advance(database, at, state)
    return status
