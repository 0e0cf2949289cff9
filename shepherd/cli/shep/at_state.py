"""shep at: the row of one URL as an earlier state has it."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.errors import NothingToDo


@click.command("at")
@click.argument("number", type=click.IntRange(1), metavar="STATE")
@click.argument("url", metavar="URL")
@common.database
@common.configured
@common.timed
@common.jsonable
@common.standard
def command(number: int, url: str, db: Path, config: Config, now: int, as_json: bool) -> None:
    """Show what a closed state knows of a URL. That is its type, times, answer, digest, weight and reason.

    The URL is normalised, stripped by the present filter, and looked up by its footprint; if the filter did not strip it then,
    the row is found, too. Exit status 4 if the state does not know the URL, 2 if there is no such state.

    \b
    Example:
      shep at 12 https://example.org/
    """
    from shepherd.filters import load_filter
    from shepherd.report import one_row as onerow
    from shepherd.report.find import head_of, seek

    with shared.reading(db, number) as state:
        position = seek(state, load_filter(config.filter_path), url)
        if not position.rows:
            raise NothingToDo(f"state {number} does not know {position.stripped.href}")
        row, head = onerow.values(state.index, position.rows[0]), head_of(state, position.rows[0])
        time_made = state.control.now
    assert row is not None
    if as_json:
        common.emit_json({"given": url, "state": number, "made": shared.iso(time_made)} | onerow.as_object(row, head))
        return
    type_text = f"{onerow.type_name(row)} (last changed in state {row['touched']})"
    first = (("state", f"{number}, made {shared.moment(time_made, now)}"), ("url", head.url if head else position.stripped.href))
    for label, text in (*first, ("known", type_text), *onerow.lines(row, head, now)):
        click.echo(f"{label:<12}  {common.escape(text)}")
