"""shep-dump: show what is in the files of a database, as it stands there.

Here are only the command lines; dump_rows, dump_logs, dump_buckets and dump_around make the rows, dump_fields shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd.console import common, states
from shepherd.console.selector_words import TYPES
from shepherd.errors import Corruption, UsageError
from shepherd.formats import vocabulary

if TYPE_CHECKING:
    from shepherd.cli.dump.fields import DumpTable
    from shepherd.store.state.directory import State

R = TypeVar("R")

RESULTS = vocabulary.words(vocabulary.Result)
WHYS = vocabulary.words(vocabulary.Why)


@click.group()
@common.versioned
def command() -> None:
    """Show the index, sites, journals, buckets ... of a state, and check them while reading.

    Rows are printed while they are read, as aligned text under a header line or, with --json, as JSON lines. Times are in UTC. If
    a checksum fails, the rows before it are shown, and the exit status is 11.
    """


# --- what the commands share ------------------------------------------------------------------------------------

limited = click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after this many rows.")
one_site = click.option("--site", metavar="HOST|URL", help="Only of this site; scheme and www. make no difference.")
from_row = click.option("--row", "first", type=click.IntRange(0), default=0, metavar="N", help="Begin at this row.")
with_urls = click.option("-u", "--urls", is_flag=True, help="Resolve footprints to URLs.")


def of_a_state(function: Callable[..., DumpTable]) -> Callable[..., None]:
    """--db, --cf, --state, --limit and --json; the function gets the state and gives the rows."""

    @limited
    @reads_a_state
    @wraps(function)
    def run(state: State, limit: int | None, as_json: bool, **kwargs: Any) -> None:
        from shepherd.cli.dump import fields as dump_fields

        dump_fields.show(function(state, **kwargs), limit, as_json)

    return run


def reads_a_state(function: Callable[..., R]) -> Callable[..., R]:
    """--db, --cf, --state and --json; the function gets the state."""

    @common.database
    @common.unconfigured
    @states.state_name("the furthest")
    @common.jsonable
    @common.standard
    @wraps(function)
    def run(db: Path, state: str | None, **kwargs: Any) -> R:
        opened = _open(db, state)
        try:
            return function(opened, **kwargs)
        except (Corruption, FileNotFoundError):
            if opened.path.exists():
                raise
            raise UsageError(f"{opened.name} was deleted while it was read: a program has continued from it; run again") from None

    return run


def _open(db: Path, name: str | None) -> State:
    """The state, leased until we are done if it is closed; an unfinished one belongs to the program that makes the next."""
    from shepherd.store.state.database import Database

    database = Database(db)
    state_name = database.furthest().name if name is None else states.find(database, name)
    if not state_name.closed:
        return database.open(state_name)
    lease = database.reading("shep-dump", time.time_ns() // 1_000_000, state_name.number)
    return click.get_current_context().with_resource(lease)


# --- tables -----------------------------------------------------------------------------------------------------


@command.command()
@one_site
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="Only rows of this type; may be repeated.")
@from_row
@with_urls
@of_a_state
def index(state: State, site: str | None, types: tuple[str, ...], first: int, urls: bool) -> DumpTable:
    """The index, row by row, in the order of footprints.

    \b
    Examples:
      shep-dump index --limit 5 -u
      shep-dump index --site example.org --type error --json
      shep-dump index --state 12.merged --row 1000000 --limit 3
    """
    from shepherd.cli.dump import rows as dump_rows

    return dump_rows.index(state, site, types, first, urls)


@command.command()
@one_site
@from_row
@of_a_state
def sites(state: State, site: str | None, first: int) -> DumpTable:
    """The site table, with names, in the order of footprints.

    \b
    Example:
      shep-dump sites --site example.org
    """
    from shepherd.cli.dump import rows as dump_rows

    return dump_rows.sites(state, site, first)


@command.command()
@one_site
@from_row
@of_a_state
def servers(state: State, site: str | None, first: int) -> DumpTable:
    """The server table: delays, back-off, next contact.

    \b
    Example:
      shep-dump servers --site example.org
    """
    from shepherd.cli.dump import rows as dump_rows

    return dump_rows.servers(state, site, first)


# --- logs -------------------------------------------------------------------------------------------------------


@command.command()
@one_site
@click.option("--result", "results", multiple=True, type=click.Choice(RESULTS), help="Only with this result; may be repeated.")
@with_urls
@of_a_state
def journal(state: State, site: str | None, results: tuple[str, ...], urls: bool) -> DumpTable:
    """The journals of reaps. These are those that cork sealed, and those of harvests, up to their newest checkpoint.

    \b
    Examples:
      shep-dump journal -u --result connection --result hard
      shep-dump journal --state 12.reap --site example.org --json
    """
    from shepherd.cli.dump import logs as dump_logs

    return dump_logs.journal(state, site, results, urls)


@command.command()
@one_site
@with_urls
@of_a_state
def contrib(state: State, site: str | None, urls: bool) -> DumpTable:
    """The contributions that no merge has taken yet. -u adds the URL of the page on which each was found.

    \b
    Example:
      shep-dump contrib -u --site example.org --limit 20
    """
    from shepherd.cli.dump import logs as dump_logs

    return dump_logs.contributions(state, site, urls)


@command.command()
@one_site
@click.option("--why", "whys", multiple=True, type=click.Choice(WHYS), help="Only planned for this reason; may be repeated.")
@with_urls
@of_a_state
def plan(state: State, site: str | None, whys: tuple[str, ...], urls: bool) -> DumpTable:
    """The plan of a .reap directory, best first.

    \b
    Example:
      shep-dump plan -u --why retry --limit 20
    """
    from shepherd.cli.dump import logs as dump_logs

    return dump_logs.plan(state, site, whys, urls)


@command.command()
@of_a_state
def checkpoints(state: State) -> DumpTable:
    """The checkpoints of each harvest of a .reap directory. Each says whether the files still agree with it.

    \b
    Example:
      shep-dump checkpoints --state 12.reap
    """
    from shepherd.cli.dump import logs as dump_logs

    return dump_logs.checkpoints(state)


# --- buckets ----------------------------------------------------------------------------------------------------


@command.command()
@one_site
@of_a_state
def buckets(state: State, site: str | None) -> DumpTable:
    """Every bucket of every segment. Buckets to which no row points are shown, too.

    \b
    Example:
      shep-dump buckets --site example.org --json
    """
    from shepherd.cli.dump import buckets as dump_buckets

    return dump_buckets.buckets(state, site)


@command.command()
@click.argument("which", nargs=-1, required=True, metavar="OID|PLACE|FOOTPRINT|URL")
@click.option("--body", "body", flag_value="decoded", help="Write the decoded body to stdout instead.")
@click.option("--stored", "body", flag_value="stored", help="Write the body to stdout as it is stored.")
@with_urls
@reads_a_state
def bucket(state: State, which: tuple[str, ...], body: str | None, urls: bool, as_json: bool) -> None:
    """One bucket: its header and attributes, or its body. With -u its links are shown as URLs, where they are known.

    Name it by oid (16 hex digits), by place (SEGMENT:OFFSET, as shep-check prints it), by footprint (two times 16 hex digits: of
    the site or normalised site, and of the path), or by URL. Exit status 4 if there is no such bucket.

    \b
    Examples:
      shep-dump bucket https://example.org/
      shep-dump bucket 1:86
      shep-dump bucket https://example.org/ --body > page.html
    """
    from shepherd.cli.dump import buckets as dump_buckets

    dump_buckets.show(state, which, body or "", urls, as_json)


# --- around them ------------------------------------------------------------------------------------------------


@command.command()
@of_a_state
def control(state: State) -> DumpTable:
    """The control file, with every file of the directory. The key is not shown.

    \b
    Example:
      shep-dump control --state 12.reap
    """
    from shepherd.cli.dump import around as dump_around

    return dump_around.control(state)


@command.command()
@common.database
@common.unconfigured
@limited
@common.jsonable
@common.standard
def inbox(db: Path, limit: int | None, as_json: bool) -> None:
    """What waits in the inbox. Requests, inserted URLs, feedback and harvests, and whether each is taken in already.

    \b
    Example:
      shep-dump inbox --json
    """
    from shepherd.cli.dump import around as dump_around
    from shepherd.cli.dump import fields as dump_fields
    from shepherd.store.state.database import Database

    dump_fields.show(dump_around.inbox(Database(db)), limit, as_json)


@command.command()
@common.database
@common.unconfigured
@common.timed
@limited
@common.jsonable
@common.standard
def leases(db: Path, now: int, limit: int | None, as_json: bool) -> None:
    """Who reads which state, and until when. Each lease says whether it still keeps the state from being deleted.

    \b
    Example:
      shep-dump leases
    """
    from shepherd.cli.dump import around as dump_around
    from shepherd.cli.dump import fields as dump_fields
    from shepherd.store.state.database import Database

    dump_fields.show(dump_around.leases(Database(db), now), limit, as_json)


def main() -> None:
    common.run(command)
