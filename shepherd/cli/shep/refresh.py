"""shep refresh: have documents asked for again, before they are due."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from shepherd.cli.shep import edit_requests
from shepherd.cli.shep.edit_requests import ASLEEP, FORGOTTEN, ROBOTS, EditOptions, EditRequest
from shepherd.console import selectors
from shepherd.console.selectors import Selection


@click.command("refresh")
@selectors.selecting
@edit_requests.edit_options
def command(selection: Selection, options: EditOptions) -> None:
    """Fetch documents again, before they are due.

    It needs no lock. A running reap takes them up within seconds and fetches them next, as far as it can still ask their servers;
    the next plan puts first those that were not checked since. Robots files, which are fetched again by themselves, and sleeping
    rows are skipped.

    \b
    Examples:
      shep refresh https://example.org/news
      shep refresh --site example.org --older 7d
      shep refresh --status 5xx --dry-run
    """
    spares = (FORGOTTEN, ROBOTS, ASLEEP)
    edit_requests.change(selection, EditRequest("refresh", "refreshed", spares=spares, effect=_effect(options.db)), options)


def _effect(db: Path) -> str:
    """A reap that runs holds the lock of its harvest."""
    from shepherd.errors import ShepherdError
    from shepherd.store.disk import locks, names
    from shepherd.store.state.database import Database

    locks_held: list[bool | None] = []
    with contextlib.suppress(ShepherdError, OSError):  # somebody is just making the next directory
        state = Database(db).furthest()
        locks_held = [locks.is_held(path / names.LOCK) for path in state.harvests()] if state.name.phase == "reap" else []
    if True in locks_held:
        return f"within seconds by the reap that runs, or {edit_requests.NEXT_CYCLE}"
    if None in locks_held:
        return f"by the reap of {state.name} if it runs, or {edit_requests.NEXT_CYCLE}"
    return edit_requests.NEXT_CYCLE
