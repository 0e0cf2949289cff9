"""shep refresh: have documents asked for again, before they are due."""

from __future__ import annotations

import click

from shepherd.cli import changing, selectors
from shepherd.cli.changing import ASLEEP, FORGOTTEN, ROBOTS, Change, How
from shepherd.cli.selectors import Selection


@click.command("refresh")
@selectors.selecting
@changing.changing
def command(selection: Selection, how: How) -> None:
    """Have documents asked for again, before they are due.

    Needs no lock: it takes effect at the start of the next cycle, whose plan puts those first that were not checked since. Robots
    files are asked for again by themselves, and what sleeps is not gathered: they are left out.

    \b
    Examples:
      shep refresh https://example.org/news
      shep refresh --site example.org --older 7d
      shep refresh --status 5xx --dry-run
    """
    spares = (FORGOTTEN, ROBOTS, ASLEEP)
    changing.change(selection, Change("refresh", "refreshed", spares=spares), how)
