"""Which documents an export is of: the selectors of `shep list`, as what a reading of a state can be asked for.

Part, best, section and weight are known of an older state, too, and so is the site: what is new can be chosen by these. All other
selectors need columns or URLs, which are not kept of a deleted state.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.console import common
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Parsed, Selection
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.formats.tables import I64
    from shepherd.readers.choice import Choice
    from shepherd.readers.reading import Narrow
    from shepherd.report.narrow import Narrowing
    from shepherd.store.state.directory import State

BOTH = ("robots.txt files", "pages that only lead to another")


def _read_part(text: str) -> tuple[int, int]:
    from shepherd.readers.choice import read_part

    return read_part(text)


PART = Parsed("part", _read_part)


def choice_of(selection: Selection, part: tuple[int, int], best: int | None, robots: bool, redirects: bool) -> Choice:
    from shepherd.readers.choice import Choice

    return Choice(
        part=part[0],
        parts=part[1],
        best=best,
        weight=selection.weights[0] if selection.weights else 0,
        sections=tuple(sorted(selection.sections)),
        robots=robots,
        redirects=redirects,
    )


def asks_columns(selection: Selection) -> bool:
    """Whether it asks what is not known of a state that is deleted."""
    plain = dataclasses.replace(selection, site=None, weights=None, sections=())
    return console_rows.asks(plain)


def words(choice: Choice, selection: Selection) -> dict[str, Any]:
    """What is exported, for a manifest and a cursor to remember."""
    facts = {
        key: value
        for key, value in dataclasses.asdict(choice).items()
        if value not in (None, (), 0, False) and (key, value) != ("parts", 1)
    }
    facts["sections"] = list(choice.sections)
    if selection.words() or selection.urls:
        facts["selectors"] = [*selection.words(), *(common.escape(url) for url in selection.urls[:20])]
    return {key: value for key, value in facts.items() if value != []}


def narrowed(selection: Selection) -> Narrowing:
    """Beyond what a choice says."""
    from shepherd.report.narrow import MOST_WEIGHT, Narrowing

    return Narrowing(selection.site, selection.weights[1] if selection.weights else MOST_WEIGHT)


def marked(state: State, selection: Selection, cf: Path) -> Narrow:
    """Exactly the rows that `shep list` would show; an unknown URL is a UsageError before anything is written.

    Who names one row of a document by its URL means the document, whichever row stands for it.
    """
    import numpy as np

    from shepherd.formats.tables import Flag
    from shepherd.store.state import lookup

    mask = np.zeros(state.index.rows, np.bool_)
    with console_rows.choosing(state, selection, cf) as row_batches:
        for rows in row_batches:
            mask[rows] = True
    for row in np.flatnonzero(mask).tolist() if selection.urls else ():
        if not state.index["flags"].value(row) & Flag.ROBOTS:  # these are of one site each
            same = lookup.rows_of(state, state.index["norm"].value(row), state.index["path"].value(row))
            mask[same.start : same.stop] = True

    def narrow(of: State, rows: I64) -> I64:
        return rows[mask.take(rows)]

    return narrow


def refuse_columns(selection: Selection) -> None:
    """For an export of what is new, and for the first of a series of them."""
    if asks_columns(selection):
        raise UsageError(
            "with --since or --cursor only --site, --section, --weight, --part and --best can choose: "
            "what the others ask is not kept of an older state"
        )


def narrowing(state: State, selection: Selection, cf: Path) -> Narrow | None:
    return marked(state, selection, cf) if asks_columns(selection) else narrowed(selection) or None
