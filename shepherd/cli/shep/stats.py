"""shep stats: a state in numbers, from one pass over a few columns; or those rows of it that selectors choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.console import common, selectors, shared
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Selection
from shepherd.formats import kinds
from shepherd.formats.kinds import ColumnKind

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Columns
    from shepherd.readers.stats import Counts
    from shepherd.store.state.directory import State

STEP_ROWS = 1 << 17
AGES = (
    ("under an hour", 3_600),
    ("under a day", 86_400),
    ("under a week", 7 * 86_400),
    ("under 30 days", 30 * 86_400),
    ("under 90 days", 90 * 86_400),
    ("under a year", 365 * 86_400),
)
OLDER, NEVER = "a year or more", "never"
EDGES = tuple(seconds for _, seconds in AGES)
TITLES = {
    "types": "type",
    "statuses": "HTTP status",
    "reasons": "reason",
    "sections": "section",
    "checked": "last checked",
    "weights": "weight",
}


@click.command("stats")
@selectors.selecting
@common.database
@common.filtered
@shared.state_number
@common.jsonable
@common.standard
def command(selection: Selection, db: Path, cf: Path, number: int | None, as_json: bool) -> None:
    """Count known URLs, sites, servers and bytes. URLs are counted by type, HTTP status, reason, section, age and weight.

    Robots files are counted separately and are in none of the tables. With selectors it counts only the rows that they choose.
    The names of reasons and sections are those that --reason and --section take.

    \b
    Examples:
      shep stats
      shep stats --site example.org
      shep stats --type error --newer 7d --json
    """
    with shared.reading(db, number) as state, console_rows.choosing(state, selection, cf) as rows:
        figures: dict[str, Any] = {"state": state.number, "made": kinds.TIME_S.json(state.control.now)}
        if console_rows.asks(selection):
            figures |= {"selectors": selection.words()} | _in_words(_count(_columns_of(state, rows), selection.now))
        else:
            with common.progress(state.index.rows, "counting", " rows") as bar:
                figures |= _in_words(_count(_all(state, bar.update), selection.now))
            figures |= _others(state)
        if as_json:
            common.emit_json(figures)
        else:
            _show(figures)


# --- counting ---------------------------------------------------------------------------------------------------


def _all(state: State, tick: Any) -> Iterator[Columns]:
    from shepherd.readers.stats import COLUMNS

    for start in range(0, state.index.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.index.rows)
        yield state.index.slice(start, stop, COLUMNS)
        tick(stop - start)


def _columns_of(state: State, row_batches: Iterator[I64]) -> Iterator[Columns]:
    from shepherd.readers.stats import COLUMNS

    for rows in row_batches:
        yield state.index.take(rows, COLUMNS)


def _count(parts: Iterator[Columns], now: int) -> Counts:
    from shepherd.readers import stats

    return sum((stats.count(part, now, EDGES) for part in parts), start=stats.none(EDGES))


def _in_words(counts: Counts) -> dict[str, Any]:
    """In the words of the vocabularies."""
    import numpy as np

    from shepherd.readers.stats import WEIGHT_SHIFT

    def by(kind: ColumnKind, column: I64) -> dict[str, int]:
        """By the text of a value; `none` where nothing is there."""
        return {
            kind.text(value) if value != kind.none else "none": int(column[value]) for value in np.flatnonzero(column).tolist()
        }

    bins = [f"{n << WEIGHT_SHIFT}-{(n + 1 << WEIGHT_SHIFT) - 1}" for n in range(len(counts.weights))]
    return {
        "rows": counts.rows,
        "pages": counts.rows - counts.robots,
        "robots_files": counts.robots,
        "stored_bytes": counts.stored_bytes,
        "types": by(kinds.TYPE, counts.types),
        "reasons": by(kinds.REASON, counts.reasons),
        "statuses": by(kinds.STATUS, counts.statuses),
        "sections": by(kinds.SECTION, counts.sections),
        "checked": _named([*(name for name, _ in AGES), OLDER], counts.ages[:-1]) | _named([NEVER], counts.ages[-1:]),
        "weights": _named(bins, counts.weights),
    }


def _named(names: Iterable[str], counts: I64) -> dict[str, int]:
    """A histogram, from its first bin that is not empty to its last."""
    import numpy as np

    filled = np.flatnonzero(counts)
    bins = list(zip(names, counts.tolist(), strict=True))
    return dict(bins[int(filled[0]) : int(filled[-1]) + 1]) if len(filled) else {}


def _others(state: State) -> dict[str, Any]:
    """Of the tables of sites and servers, and of the segments."""
    import numpy as np

    from shepherd.formats.tables import QKEY_NONE
    from shepherd.store.disk import names

    resolved = unasked = unreachable = backing_off = 0
    for start in range(0, state.sites.rows, STEP_ROWS):
        part = state.sites.slice(start, min(start + STEP_ROWS, state.sites.rows), ("qkey", "qkey_checked", "robots_since"))
        nowhere = part["qkey"] >> np.uint64(56) == QKEY_NONE
        resolved += int(np.count_nonzero(~nowhere))
        unasked += int(np.count_nonzero(nowhere & (part["qkey_checked"] == 0)))
        unreachable += int(np.count_nonzero(part["robots_since"]))
    for start in range(0, state.servers.rows, STEP_ROWS):
        backing_off += int(np.count_nonzero(state.servers["backoff"][start : min(start + STEP_ROWS, state.servers.rows)]))
    entries = state.control.files.items()
    return {
        "segment_bytes": sum(entry.length for path, entry in entries if path.startswith(f"{names.OBJECTS}/")),
        "sites": state.sites.rows,
        "sites_resolved": resolved,
        "sites_not_looked_up": unasked,
        "sites_robots_unreachable": unreachable,
        "servers": state.servers.rows,
        "servers_backing_off": backing_off,
    }


# --- showing ----------------------------------------------------------------------------------------------------


def _show(figures: dict[str, Any]) -> None:
    many = shared.many
    click.echo(f"state {figures['state']}, made {figures['made'] or 'without a clock'}")
    chosen_text = " chosen" if "selectors" in figures else ""
    pages, robots = many(figures["pages"], "page"), many(figures["robots_files"], "robots file")
    click.echo(f"{many(figures['rows'], 'row')}{chosen_text}: {pages} and {robots}")
    if chosen_text:
        click.echo(f"{shared.size(figures['stored_bytes'])} stored")
    else:
        _show_others(figures)
    for key, title in TITLES.items():
        for place, line in enumerate(bars(title, figures[key])):
            click.echo(line if place else f"\n{line}")


def _show_others(figures: dict[str, Any]) -> None:
    unasked, unreachable = figures["sites_not_looked_up"], figures["sites_robots_unreachable"]
    nowhere = figures["sites"] - figures["sites_resolved"] - unasked
    sites = shared.many(figures["sites"], "site")
    click.echo(f"{sites}: {unasked:,} not looked up yet, {nowhere:,} without an address that may be asked,")
    click.echo(f"  {unreachable:,} with an unreachable robots.txt")
    click.echo(f"{shared.many(figures['servers'], 'server')}: {figures['servers_backing_off']:,} backing off")
    click.echo(f"{shared.size(figures['stored_bytes'])} stored, in {shared.size(figures['segment_bytes'])} of segments")


# --- counts as text: a label, a number, its share and a bar in each line, all within 80 columns -------------------


WIDTH = 80
SHORTEST, LONGEST = 10, 40


def bars(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    """The lines of one histogram under its title; none where nothing was counted. The largest count has the whole bar, and what
    is there at all has some of it."""
    total, most = sum(counts.values()), max(counts.values(), default=0)
    if not total:
        return
    labels, figures = max(map(len, counts)), max(len(f"{count:,}") for count in counts.values())
    length = min(max(WIDTH - labels - figures - len("      100.0%  "), SHORTEST), LONGEST)
    yield title
    for label, count in counts.items():
        bar = "#" * -(-count * length // most)
        yield f"  {label:<{labels}}  {count:>{figures},}  {count / total:>6.1%}  {bar}".rstrip()
