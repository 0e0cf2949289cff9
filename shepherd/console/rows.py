"""What the commands that only read share: rows chosen by selectors, and tables in columns.

with rows.choosing(state, selection, cf) as row_batches:
    for batch in row_batches: ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd.console import common, selectors, shared
from shepherd.console.selectors import Selection
from shepherd.console.shared import GivenUrl
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.store.state.directory import State

R = TypeVar("R")
NONE = "-"


def limited(default: int | None) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """--limit N, as `limit: int | None`."""
    default_text = f"  [default: {default}]" if default else ""
    text = f"Show at most so many.{default_text}"
    return click.option("--limit", type=click.IntRange(1), default=default, metavar="N", help=text)


def list_of_a_state(default: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """--limit, --db, --cf, --state and --json, for a command that lists what one closed state has."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        decorated = shared.state_number(common.jsonable(common.standard(function)))
        return limited(default)(common.database(common.unconfigured(decorated)))

    return decorate


@contextlib.contextmanager
def choosing(state: State, selection: Selection, cf: Path) -> Iterator[Iterator[I64]]:
    """The rows that are meant, some at a time. An unknown URL is reported at once, and is a UsageError at the end."""
    from shepherd.filters import load_filter

    unknown: list[GivenUrl] = []

    def on_unknown(url: GivenUrl, why: str) -> None:
        unknown.append(url)
        common.LOG.warning("%s%s: %s", f"{url.where}: " if url.where else "", shared.redact(url.text), why)

    filter_ = load_filter(cf / "filter") if selection.by_url else None
    yield selectors.selected_rows(state, selection, filter_, on_unknown)
    if unknown:
        raise UsageError(f"{shared.many(len(unknown), 'URL')} cannot be listed, for the reasons above")


def asks(selection: Selection) -> bool:
    """Whether it leaves anything out."""
    return selection.by_url or selection.by_selector


def largest(state: State, row_batches: Iterator[I64], column: str, limit: int) -> I64:
    """The rows with the largest values of a column, largest first, ties in the order of the index."""
    from shepherd.arrays.largest import Largest

    best = Largest(limit)
    with common.progress(None, "sorting", " rows") as bar:
        for rows in row_batches:
            best = best.with_more(rows, state.index[column].take(rows))
            bar.update(len(rows))
    return best.rows


def show(
    records: Iterable[dict[str, Any]],
    titles: Sequence[str],
    row: Callable[[dict[str, Any]], Sequence[Any]],
    as_json: bool,
    nothing: str,
) -> None:
    """Each of them as JSON, or all in a table, a `row` each; `nothing` says that there is none."""
    if as_json:
        for record in records:
            common.emit_json(record)
        return
    lines = list(table(titles, map(row, records)))
    for line in lines:
        click.echo(line)
    if not lines:
        common.LOG.info("%s", nothing)


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines with columns as wide as they need to be: numbers and what has a unit to the right, text to the left, and the last
    column as it is. A title that begins with > stands over a column that goes to the right. Texts are escaped."""
    cell_rows = [[common.escape(NONE if cell is None else str(cell)) for cell in row] for row in rows]
    if not cell_rows:
        return
    names, right = [title.removeprefix(">") for title in titles], [title.startswith(">") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *cell_rows, strict=True)]
    for line in (names, *cell_rows):
        cells = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()
