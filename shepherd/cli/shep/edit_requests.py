"""What delete, refresh and set share: rows that are meant become requests, one for each URL, in one item of the inbox.

Nothing waits for the lock: the next merge does what is asked. So a change is asked of what the newest closed state knows; the
merge finds each URL again by itself, and its report counts what it changed.
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
from shepherd.console import common, selection_rows, selectors, shared
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
REJECTED = "rejected by the filter"


@dataclass(frozen=True)
class EditOptions:
    """Where, and whether at all."""

    db: Path
    config: Config
    dry_run: bool
    as_json: bool


@dataclass(frozen=True)
class EditRequest:
    """What is to be done."""

    op: str
    past_tense: str  # the word for it: "deleted"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the request, beside its URL
    spares: tuple[str, ...] = ()  # what it leaves out
    is_filtered: bool = False  # whether it leaves out what the filter rejects
    asks: bool = False  # whether many that nobody has named need a yes
    unknown_too: bool = False  # what nobody knows is asked for as well
    effect: str = NEXT_CYCLE


@dataclass
class ChangeCounts:
    count: int = 0
    unknown: int = 0
    bad: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def edit_options(function: Callable[..., R]) -> Callable[..., R]:
    """--dry-run, --db, --cf and --json, as `options: EditOptions`, and what every command has."""

    @functools.wraps(function)
    def gathered(*args: Any, db: Path, config: Config, dry_run: bool, as_json: bool, **kwargs: Any) -> R:
        return function(*args, options=EditOptions(db, config, dry_run, as_json), **kwargs)

    dry = click.option("--dry-run", is_flag=True, help="Count the URLs; leave no request.")
    return dry(common.database(common.configured(common.jsonable(common.standard(gathered)))))


def change(
    selection: Selection, what: EditRequest, options: EditOptions, on_rows: Callable[[State, I64], None] | None = None
) -> None:
    """Leave the requests, and print how many and when they take effect. `on_rows` gets the rows that are meant."""
    from shepherd.filters import load_filter
    from shepherd.store.state.database import Database

    if not selection.by_url and not selection.by_selector:
        raise click.UsageError("say which are meant: URLs, a file of URLs with -f FILE, or selectors, as --site HOST")
    database, counts, is_kept = Database(options.db), ChangeCounts(), False
    item = database.new_item_name(shared.clock_ms())
    filter_ = load_filter(options.config.filter_path)
    by = changelog.who()
    leaving = contextlib.nullcontext() if options.dry_run else database.inbox.draft(item)
    with shared.reading(options.db, None) as state, leaving as draft:
        for rows, urls in _targets(state, selection, filter_, what, options, counts):
            counts.count += len(urls)
            if on_rows is not None:
                on_rows(state, rows)
            if draft is not None:
                for url in urls:
                    draft.add({"op": what.op, **what.settings, "url": url, "exact": True, "by": by})
        if counts.count and draft is not None and _agreed(selection, what, counts.count):
            draft.keep()
            is_kept = True
    if is_kept:
        scope = (selection.words(), selection.urls, selection.files)
        changelog.note(options.db, what.op, what.settings, *scope, counts.count, item)
    _print_result(what, options, counts, item if is_kept else None)


# --- rows and their URLs ----------------------------------------------------------------------------------------


def _targets(
    state: State, selection: Selection, filter_: Filter, what: EditRequest, options: EditOptions, counts: ChangeCounts
) -> Iterator[tuple[I64, list[str]]]:
    """Rows that the change does something to, and URLs to ask it of; what it does nothing to is counted."""
    import numpy as np

    from shepherd.readers import search

    new: list[str] = []

    def on_unknown(url: GivenUrl, why: str) -> None:
        if why == selection_rows.NOT_KNOWN and what.unknown_too:
            new.append(shared.parse_given(url.text).href)
            return
        counts.unknown += why == selection_rows.NOT_KNOWN
        counts.bad += why != selection_rows.NOT_KNOWN
        _refuse(url, why, options)

    for rows in selectors.selected_rows(state, selection, filter_, on_unknown, stored=True):
        rows = _without_spared(state, rows, what.spares, counts)
        if options.dry_run:  # nobody needs their URLs
            yield rows, [""] * len(rows)
            continue
        urls = search.urls_of(state, rows)
        counts.left_out[TEXTLESS] += urls.count(None)
        texts = [url.decode("ascii") for url in urls if url is not None]
        accepted = [text for text in texts if filter_.clean(text) is not None] if what.is_filtered else texts
        counts.left_out[REJECTED] += len(texts) - len(accepted)
        yield rows, accepted
    yield np.zeros(0, np.int64), new


def _without_spared(state: State, rows: I64, spares: tuple[str, ...], counts: ChangeCounts) -> I64:
    for name in spares:
        mask = _is_spared(state, rows, name)
        counts.left_out[name] += int(mask.sum())
        rows = rows[~mask]
    return rows


def _is_spared(state: State, rows: I64, name: str) -> Bools:
    import numpy as np

    from shepherd.formats.tables import Flag, RowType

    if name == ROBOTS:
        return np.asarray(state.index["flags"].take(rows) & Flag.ROBOTS != 0)
    return np.asarray(state.index["type"].take(rows) == (RowType.FORGOTTEN if name == FORGOTTEN else RowType.SLEEPING))


def _refuse(url: GivenUrl, why: str, options: EditOptions) -> None:
    if options.as_json:
        common.emit_json({"refused": common.escape(shared.redact(url.text)), "where": url.where, "reason": why})
    else:
        common.LOG.warning("%s%s: %s", f"{url.where}: " if url.where else "", shared.redact(url.text), why)


# --- telling ----------------------------------------------------------------------------------------------------


def _agreed(selection: Selection, what: EditRequest, count: int) -> bool:
    if not what.asks or selection.by_url or count <= ASKED_FROM:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{shared.many(count, 'URL')} would be {what.past_tense}; say --yes, or count them with --dry-run")
    return click.confirm(f"{shared.many(count, 'URL')} would be {what.past_tense}. Go on?", err=True)


def _print_result(what: EditRequest, options: EditOptions, counts: ChangeCounts, item: str | None) -> None:
    left_out = {name: count for name, count in counts.left_out.items() if count}
    if options.as_json:
        record = {what.past_tense: counts.count, "unknown": counts.unknown, "refused": counts.bad, "left_out": left_out}
        common.emit_json(record | {"item": item, "dry_run": options.dry_run, "takes_effect": what.effect if item else None})
    else:
        for name, count in left_out.items():
            common.LOG.info("skipped: %d %s", count, name)
        if options.dry_run:
            common.LOG.info("%s would be %s; nothing was left in the inbox", shared.many(counts.count, "URL"), what.past_tense)
        elif item:
            common.LOG.info("%s to be %s, %s", shared.many(counts.count, "URL"), what.past_tense, what.effect)
        elif counts.count:
            common.LOG.info("nothing was left in the inbox")
    if counts.bad or (counts.unknown and counts.count):
        raise UsageError(f"{shared.many(counts.bad + counts.unknown, 'URL')} not {what.past_tense}, for the reasons above")
    if not counts.count:
        raise NothingToDo("no known URL matches")
