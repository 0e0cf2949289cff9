"""What the commands that look share: rows chosen by selectors, the names of vocabularies, tables in columns.

with looking.choosing(state, selection, cf) as found:
    for rows in found: ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd.console import common, selectors, shared
from shepherd.console.selectors import Selection
from shepherd.console.shared import Given
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

R = TypeVar("R")
NONE = "-"


def limited(default: int | None) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """--limit N, as `limit: int | None`."""
    shown = f"  [default: {default}]" if default else ""
    text = f"Show at most so many.{shown}"
    return click.option("--limit", type=click.IntRange(1), default=default, metavar="N", help=text)


@contextlib.contextmanager
def choosing(state: State, selection: Selection, cf: Path) -> Iterator[Iterator[I64]]:
    """The rows that are meant, some at a time. A URL that nobody knows is told at once, and is a UsageError at the end."""
    from shepherd.filters import load_filter

    unknown: list[Given] = []

    def tell(given: Given, why: str) -> None:
        unknown.append(given)
        common.LOG.warning("%s%s: %s", f"{given.where}: " if given.where else "", shared.redact(given.text), why)

    filter_ = load_filter(cf / "filter") if selection.by_url else None
    yield selectors.chosen(state, selection, filter_, tell)
    if unknown:
        raise UsageError(f"{shared.many(len(unknown), 'URL')} cannot be listed, for the reasons above")


def asks(selection: Selection) -> bool:
    """Whether it leaves anything out."""
    return selection.by_url or selection.by_selector


def largest(state: State, found: Iterator[I64], column: str, limit: int) -> I64:
    """The rows with the largest values of a column, largest first, ties in the order of the index."""
    from shepherd.arrays.largest import Largest

    best = Largest(limit)
    with common.progress(None, "sorting", " rows") as bar:
        for rows in found:
            best = best.with_more(rows, state.index[column].take(rows))
            bar.update(len(rows))
    return best.rows


def show(
    found: Iterable[dict[str, Any]],
    titles: Sequence[str],
    row: Callable[[dict[str, Any]], Sequence[Any]],
    as_json: bool,
    nothing: str,
) -> None:
    """Each of them as JSON, or all in a table, a `row` each; `nothing` says that there is none."""
    if as_json:
        for one in found:
            common.emit_json(one)
        return
    lines = list(table(titles, map(row, found)))
    for line in lines:
        click.echo(line)
    if not lines:
        common.LOG.info("%s", nothing)


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines with columns as wide as they need to be: numbers and what has a unit to the right, text to the left, and the last
    column as it is. A title that begins with > stands over a column that goes to the right. Texts are escaped."""
    shown = [[common.escape(NONE if cell is None else str(cell)) for cell in row] for row in rows]
    if not shown:
        return
    names, right = [title.removeprefix(">") for title in titles], [title.startswith(">") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    for line in (names, *shown):
        cells = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()
