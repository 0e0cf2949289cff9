"""What delete, refresh and set share: rows that are meant become requests, one for each URL, in one item of the inbox.

Nothing waits for the lock: the next merge does what is asked. So a change is asked of what the newest closed state knows; the
merge finds each URL again by itself, and its report tells what came of them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd.cli.shep import change_log as changelog
from shepherd.config import Config
from shepherd.console import common, selectors, shared
from shepherd.console import selection_rows as selected
from shepherd.console.selectors import Selection
from shepherd.console.shared import GivenUrl
from shepherd.errors import NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.filters import Filter
    from shepherd.formats.tables import I64, Bools
    from shepherd.store.state.directory import State

R = TypeVar("R")

ASKED_FROM = 1_000  # rows that nobody has named: for more than these somebody must say yes
NEXT_CYCLE = "at the start of the next cycle"
FORGOTTEN, ASLEEP, ROBOTS, TEXTLESS = "forgotten", "asleep", "robots files", "without their URL"


@dataclass(frozen=True)
class How:
    """Where, and whether at all."""

    db: Path
    config: Config
    dry_run: bool
    as_json: bool


@dataclass(frozen=True)
class Change:
    """What is to be done."""

    op: str
    done: str  # the word for it: "deleted"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the request, beside its URL
    spares: tuple[str, ...] = ()  # what it leaves out
    asks: bool = False  # whether many that nobody has named need a yes
    unknown_too: bool = False  # what nobody knows is asked for as well
    effect: str = NEXT_CYCLE


@dataclass
class Counted:
    count: int = 0
    unknown: int = 0
    bad: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def changing(function: Callable[..., R]) -> Callable[..., R]:
    """--dry-run, --db, --cf and --json, as `how: How`, and what every command has."""

    @functools.wraps(function)
    def gathered(*args: Any, db: Path, config: Config, dry_run: bool, as_json: bool, **kwargs: Any) -> R:
        return function(*args, how=How(db, config, dry_run, as_json), **kwargs)

    dry = click.option("--dry-run", is_flag=True, help="Count the URLs; leave no request.")
    return dry(common.database(common.configured(common.jsonable(common.standard(gathered)))))


def change(selection: Selection, what: Change, how: How, see: Callable[[State, I64], None] | None = None) -> None:
    """Leave the requests, and tell how many and when they take effect. `see` is shown the rows that are meant."""
    from shepherd.filters import load_filter
    from shepherd.store.state.database import Database

    if not selection.by_url and not selection.by_selector:
        raise click.UsageError("say which are meant: URLs, a file of URLs with -f FILE, or selectors, as --site HOST")
    database, counted, kept = Database(how.db), Counted(), False
    item = database.new_item_name(shared.clock_ms())
    filter_ = load_filter(how.config.filter_path)
    by = changelog.who()
    leaving = contextlib.nullcontext() if how.dry_run else database.inbox.draft(item)
    with shared.reading(how.db, None) as state, leaving as draft:
        for rows, urls in _meant(state, selection, filter_, what, how, counted):
            counted.count += len(urls)
            if see is not None:
                see(state, rows)
            if draft is not None:
                for url in urls:
                    draft.add({"op": what.op, **what.settings, "url": url, "exact": True, "by": by})
        if counted.count and draft is not None and _agreed(selection, what, counted.count):
            draft.keep()
            kept = True
    if kept:
        given = (selection.words(), selection.urls, selection.files)
        changelog.note(how.db, what.op, what.settings, *given, counted.count, item)
    _tell(what, how, counted, item if kept else None)


# --- rows and their URLs ----------------------------------------------------------------------------------------


def _meant(
    state: State, selection: Selection, filter_: Filter, what: Change, how: How, counted: Counted
) -> Iterator[tuple[I64, list[str]]]:
    """Rows that the change does something to, and URLs to ask it of; what it does nothing to is counted."""
    import numpy as np

    from shepherd.readers import search

    new: list[str] = []

    def unknown(given: GivenUrl, why: str) -> None:
        if why == selected.NOT_KNOWN and what.unknown_too:
            new.append(shared.parse_given(given.text).href)
            return
        counted.unknown += why == selected.NOT_KNOWN
        counted.bad += why != selected.NOT_KNOWN
        _refuse(given, why, how)

    for rows in selectors.selected_rows(state, selection, filter_, unknown, stored=True):
        rows = _without_spared(state, rows, what.spares, counted)
        if how.dry_run:  # nobody needs their URLs
            yield rows, [""] * len(rows)
            continue
        urls = search.urls_of(state, rows)
        counted.left_out[TEXTLESS] += urls.count(None)
        yield rows, [url.decode("ascii") for url in urls if url is not None]
    yield np.zeros(0, np.int64), new


def _without_spared(state: State, rows: I64, spares: tuple[str, ...], counted: Counted) -> I64:
    for name in spares:
        left = _is_spared(state, rows, name)
        counted.left_out[name] += int(left.sum())
        rows = rows[~left]
    return rows


def _is_spared(state: State, rows: I64, name: str) -> Bools:
    import numpy as np

    from shepherd.formats.tables import Flag, RowType

    if name == ROBOTS:
        return np.asarray(state.index["flags"].take(rows) & Flag.ROBOTS != 0)
    return np.asarray(state.index["type"].take(rows) == (RowType.FORGOTTEN if name == FORGOTTEN else RowType.SLEEPING))


def _refuse(given: GivenUrl, why: str, how: How) -> None:
    if how.as_json:
        common.emit_json({"refused": common.escape(shared.redact(given.text)), "where": given.where, "reason": why})
    else:
        common.LOG.warning("%s%s: %s", f"{given.where}: " if given.where else "", shared.redact(given.text), why)


# --- telling ----------------------------------------------------------------------------------------------------


def _agreed(selection: Selection, what: Change, count: int) -> bool:
    if not what.asks or selection.by_url or count <= ASKED_FROM:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{shared.many(count, 'URL')} would be {what.done}; say --yes, or count them with --dry-run")
    return click.confirm(f"{shared.many(count, 'URL')} would be {what.done}. Go on?", err=True)


def _tell(what: Change, how: How, counted: Counted, item: str | None) -> None:
    left_out = {name: count for name, count in counted.left_out.items() if count}
    if how.as_json:
        told = {what.done: counted.count, "unknown": counted.unknown, "refused": counted.bad, "left_out": left_out}
        common.emit_json(told | {"item": item, "dry_run": how.dry_run, "takes_effect": what.effect if item else None})
    else:
        for name, count in left_out.items():
            common.LOG.info("skipped: %d %s", count, name)
        if how.dry_run:
            common.LOG.info("%s would be %s; nothing was left in the inbox", shared.many(counted.count, "URL"), what.done)
        elif item:
            common.LOG.info("%s to be %s, %s", shared.many(counted.count, "URL"), what.done, what.effect)
        elif counted.count:
            common.LOG.info("nothing was left in the inbox")
    if counted.bad or (counted.unknown and counted.count):
        raise UsageError(f"{shared.many(counted.bad + counted.unknown, 'URL')} not {what.done}, for the reasons above")
    if not counted.count:
        raise NothingToDo("no known URL matches")
