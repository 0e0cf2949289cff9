"""shep insert: leave URLs in the inbox, to be taken in by the next merge."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli import common
from shepherd.cli import shep_shared as shared
from shepherd.cli.shep_shared import Given
from shepherd.config import Config
from shepherd.errors import BadUrl, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.filters import Filter

FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
EFFECT = "at the start of the next cycle"


@dataclass
class _Sorted:
    """The URLs given so far: the good ones, once each, as they go into the request; and how many there were."""

    good: dict[str, None] = field(default_factory=dict)
    total: int = 0
    refused: int = 0


@click.command("insert")
@click.argument("given", nargs=-1, metavar="[URL]...")
@click.option(
    "-f", "--file", "files", multiple=True, type=FILE, metavar="FILE", help="Read URLs from this file, one a line; - is stdin."
)
@click.option(
    "--weight", type=click.IntRange(0, 65_535), metavar="N", help="0 worst, 65535 best.  [default: merge.insert_weight]"
)
@click.option("--pinned", is_flag=True, help="Keep them whatever the limits say.")
@click.option("--dry-run", is_flag=True, help="Judge and count the URLs; leave no request.")
@common.database
@common.configured
@common.jsonable
@common.standard
def command(
    given: tuple[str, ...],
    files: tuple[str, ...],
    weight: int | None,
    pinned: bool,
    dry_run: bool,
    db: Path,
    config: Config,
    as_json: bool,
) -> None:
    """Insert URLs.

    Needs no lock, also while a cycle runs: one request is left in the inbox and taken in at the start of the next cycle. A URL
    that is bad, or that the filter rejects, is reported with its reason; the others are still inserted, and the exit status is 2
    at the end. In a file, blank lines and lines that begin with # are skipped. A URL that is known, but as an error, becomes due.

    \b
    Examples:
      shep insert https://example.org/
      shep insert --pinned --weight 60000 -f seeds.txt
      generate-urls | shep insert -f - --dry-run
    """
    from shepherd.filters import load_filter
    from shepherd.store.database import Database

    if not given and not files:
        raise click.UsageError("give URLs, or a file of URLs with -f FILE")
    database = Database(db)
    found = _sort(_all(given, files), load_filter(config.filter_path), config, as_json)
    if not found.total:
        raise NothingToDo("no URL was given")
    item = None
    if found.good and not dry_run:
        chosen = config.merge.insert_weight if weight is None else weight
        request = {"op": "insert", "weight": chosen, "pinned": pinned, "by": _who()}
        item = database.new_item_name(shared.clock_ms())
        database.inbox.drop(item, (request | {"url": url} for url in found.good))
    _tell(found, item, dry_run, as_json)


def _all(given: tuple[str, ...], files: tuple[str, ...]) -> Iterator[Given]:
    yield from map(Given, given)
    for file in files:
        yield from shared.given_lines(file)


def _sort(given: Iterator[Given], filter_: Filter, config: Config, as_json: bool) -> _Sorted:
    found = _Sorted()
    for one in given:
        found.total += 1
        try:
            found.good[_accepted(one.text, filter_, config.filter_path)] = None
        except BadUrl as error:
            found.refused += 1
            if as_json:
                common.emit_json({"refused": common.escape(shared.shown(one.text)), "where": one.where, "reason": str(error)})
            else:
                common.LOG.warning("%s%s: %s", f"{one.where}: " if one.where else "", shared.shown(one.text), error)
    return found


def _accepted(text: str, filter_: Filter, source: Path) -> str:
    """The stripped href of a URL; BadUrl if it is none, or if the filter rejects it."""
    href = filter_.strip(shared.parse_given(text).href)
    verdict = filter_.judge(href)
    if not verdict.accepted:
        line = f"line {verdict.line}" if verdict.line else "no line accepts it"
        raise BadUrl(f"rejected by the filter, {source}, {line}: {verdict.text}")
    return href


def _tell(found: _Sorted, item: str | None, dry_run: bool, as_json: bool) -> None:
    count = len(found.good)
    if as_json:
        effect = EFFECT if item else None
        common.emit_json({"inserted": count, "refused": found.refused, "item": item, "dry_run": dry_run, "takes_effect": effect})
    elif dry_run:
        common.LOG.info("%s would be inserted; nothing was left in the inbox", shared.many(count, "URL"))
    elif count:
        common.LOG.info("%s inserted, to be taken in %s", shared.many(count, "URL"), EFFECT)
    if found.refused:
        raise UsageError(f"{found.refused} of {shared.many(found.total, 'URL')} refused, for the reasons above")


def _who() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number only
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
