"""shep diff: how documents differ between two states, printed while they are compared."""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.console import common, shared
from shepherd.formats import kinds
from shepherd.formats.vocabulary import word

if TYPE_CHECKING:
    from shepherd.readers.diff import Differences
    from shepherd.store.state.columns import Table
    from shepherd.store.state.directory import State

STEP_ROWS = 500_000
WHATS = ("added", "forgotten", "changed", "moved", "refreshed", "type")  # as in readers/diff.py, in its order; a test compares
COLUMNS = ("type", "status", "weight", "reason", "gathered", "checked", "changed", "digest")
LINE = "{:<17}  {:<22}  {}\n"


@click.command("diff")
@click.argument("old", type=click.IntRange(1), metavar="A")
@click.argument("new", type=click.IntRange(1), metavar="B")
@click.option("--site", metavar="HOST|URL", help="Only this site; scheme and www. make no difference.")
@click.option("--what", "whats", multiple=True, type=click.Choice(WHATS), help="Only this; may be repeated.")
@click.option("--count", is_flag=True, help="Print only how many there are of each.")
@common.database
@common.unconfigured
@common.jsonable
@common.standard
def command(old: int, new: int, site: str | None, whats: tuple[str, ...], count: bool, db: Path, as_json: bool) -> None:
    """Compare two closed states. A and B are their numbers in `shep states`.

    \b
    added      known in B, but not in A
    forgotten  known in A, but not in B, or forgotten there
    changed    its content is another, or its first
    moved      it is gathered from another site of its class
    refreshed  checked again, and its content is the same
    type       gathered, ungathered, asleep or an error: another than before

    A document can have several of the last four. Documents come in the order of the index, then the number of each kind; with
    --json there is only a line for each document, with its row in both states.

    \b
    Examples:
      shep diff 12 15 --count
      shep diff 12 15 --site example.org --what changed --what added
      shep diff 12 15 --what forgotten --json | jq -r .url
    """
    with contextlib.ExitStack() as stack:
        states = _Pair(*(stack.enter_context(shared.reading(db, number)) for number in (old, new)))
        if states.old.control.key != states.new.control.key:
            common.LOG.warning("the key of the footprints changed between these states: no document can be found again")
        if states.old.control.equiv != states.new.control.equiv:
            common.LOG.warning("url-equiv changed between these states: documents that got another class count as new")
        counts: Counter[str] = Counter()
        for part in states.parts(site):
            lines = list(part.lines(_mask_of(whats)))
            for line in lines:
                counts.update(line.what)
            if not count:
                _show(states, lines, as_json)
    totals = {name: counts[name] for name in whats or WHATS}
    if count and as_json:
        common.emit_json({"old": old, "new": new} | totals)
    elif not as_json:
        click.echo(f"state {old} to {new}: {', '.join(f'{number:,} {name}' for name, number in totals.items())}")


def _mask_of(whats: tuple[str, ...]) -> int:
    from shepherd.readers.diff import Difference

    return sum(int(Difference[name.upper()]) for name in set(whats or WHATS))


@dataclass(frozen=True)
class _Pair:
    """The two states."""

    old: State
    new: State

    def parts(self, site: str | None) -> Iterator[_Part]:
        """The differences of one range of norms after the other."""
        from shepherd.arrays.distinct_urls import Paths
        from shepherd.readers import diff

        paths = Paths.of(self.new.prints)
        with common.progress(self.old.index.rows + self.new.index.rows, "diff", "row") as bar:
            for old, new in self._of_site(site) if site is not None else self._ranges():
                columns = [
                    state.index.slice(rows.start, rows.stop, diff.READ) for state, rows in ((self.old, old), (self.new, new))
                ]
                yield _Part(old.start, new.start, diff.diff(columns[0], columns[1], paths))
                bar.update(len(old) + len(new))

    def _of_site(self, site: str) -> Iterator[tuple[range, range]]:
        from shepherd.report.find import norm_of_host
        from shepherd.store.state import lookup

        old, new = (lookup.rows_of_norm(state, norm_of_host(state, site)) for state in (self.old, self.new))
        yield old, new

    def _ranges(self) -> Iterator[tuple[range, range]]:
        """Rows of both that have the same norms, and are not many on either side unless one site has so many."""
        tables = (self.old.index, self.new.index)
        cuts = sorted({norm for table in tables for norm in _cuts(table)})
        begin = (0, 0)
        for cut in (*cuts, None):
            end = tuple(table.rows if cut is None else _first(table, cut) for table in tables)
            yield range(begin[0], end[0]), range(begin[1], end[1])
            begin = (end[0], end[1])


def _cuts(index: Table) -> Iterator[int]:
    """Norms that begin a partition; the first needs none."""
    from shepherd.arrays.partitions import whole_norms

    for start, stop in whole_norms(index, STEP_ROWS):
        if 0 < start < stop:
            yield index["norm"].value(start)


def _first(index: Table, norm: int) -> int:
    return bisect_left(range(index.rows), norm, key=index["norm"].value)


@dataclass(frozen=True)
class _Part:
    """Where the slices begin, and how they differ."""

    old: int
    new: int
    differences: Differences

    def lines(self, mask: int) -> Iterator[_Line]:
        from shepherd.readers.diff import Difference

        differences = self.differences
        for old, new, what in zip(differences.old.tolist(), differences.new.tolist(), differences.what.tolist(), strict=True):
            if what & mask:
                names = tuple(word(flag) for flag in Difference if what & mask & flag)
                yield _Line(names, self.old + old if old >= 0 else None, self.new + new if new >= 0 else None)


@dataclass(frozen=True)
class _Line:
    """A document that differs, by its rows; None where a state has none."""

    what: tuple[str, ...]
    old: int | None
    new: int | None


def _show(states: _Pair, lines: list[_Line], as_json: bool) -> None:
    """The URLs of many lines are read together, in the order of their buckets."""
    new = _urls(states.new, [line.new for line in lines])
    old = _urls(states.old, [line.old if line.new is None or "moved" in line.what else None for line in lines])
    for line, url, before in zip(lines, new, old, strict=True):
        if as_json:
            record: dict[str, Any] = {"what": line.what, "url": url if line.new is not None else before}
            record |= {"from": before} if "moved" in line.what else {}
            common.emit_json(record | {"old": _object(states.old, line.old), "new": _object(states.new, line.new)})
            continue
        types = " -> ".join(dict.fromkeys(filter(None, (_type(states.old, line.old), _type(states.new, line.new)))))
        place = url or _place_without_text(states.new, line.new) or before or _place_without_text(states.old, line.old)
        place += f" (from {before or _place_without_text(states.old, line.old)})" if "moved" in line.what else ""
        sys.stdout.write(LINE.format(",".join(line.what), types, common.escape(place)))
    sys.stdout.flush()


def _urls(state: State, rows: list[int | None]) -> list[str | None]:
    import numpy as np

    from shepherd.readers.search import urls_of

    known_rows = [row for row in rows if row is not None]
    url_by_row = dict(zip(known_rows, urls_of(state, np.array(known_rows, np.int64)), strict=True))
    texts = (url_by_row[row] if row is not None else None for row in rows)
    return [text.decode() if text is not None else None for text in texts]


def _place_without_text(state: State, row: int | None) -> str:
    """What is still known of a row without a text."""
    from shepherd.report.find import place_of

    return place_of(state, row) if row is not None else ""


def _type(state: State, row: int | None) -> str:
    return "" if row is None else kinds.TYPE.text(state.index["type"].value(row))


def _object(state: State, row: int | None) -> dict[str, Any] | None:
    from shepherd.formats.tables import KINDS

    return None if row is None else kinds.row_as_json(KINDS["index"], {name: state.index[name].value(row) for name in COLUMNS})
