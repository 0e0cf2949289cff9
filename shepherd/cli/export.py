"""shep-export: the documents of a state in formats that other programs read.

The command line and the order of steps; shepherd.export writes, export_choice.py says which documents, store/cursors.py remembers
how far a series of exports has come.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common, export_choice, remote, selectors
from shepherd.cli import shep_shared as shared
from shepherd.cli.selectors import Selection
from shepherd.config import Config
from shepherd.errors import Corruption, NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.export.documents import LocalSource, Source
    from shepherd.export.run import Wish
    from shepherd.phases.readers import Choice
    from shepherd.store.cursors import Cursor
    from shepherd.store.database import Database
    from shepherd.store.state import State

FORMATS = ("warc", "jsonl", "buckets", "stream", "parquet", "parquet-urls", "files", "tar.gz")
INLINE = ("jsonl", "buckets", "stream")  # what is gone stands among the documents; they may go to stdout
STDOUT = "-"
TOLD_DAMAGE = 20  # lines; the rest is only counted


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    output: str
    prefix: str
    overwrite: bool
    selection: Selection
    choice: Choice
    wish: Wish
    number: int | None
    since: int | None
    past_damage: bool
    as_json: bool
    cf: Path


@click.command()
@selectors.selecting
@export_choice.sourced
@click.option("--format", "format_", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", required=True, metavar="DIR|-", help="Where to; - is stdout, for jsonl, buckets and stream.")
@click.option("--prefix", default="shepherd", show_default=True, metavar="NAME", help="What the names of the files begin with.")
@click.option(
    "--split-bytes",
    type=click.IntRange(0),
    default=1 << 30,
    metavar="N",
    help="Begin a new file beyond so many; 0 = never.  [default: 1 GiB]",
)
@click.option("--cdxj", is_flag=True, help="Write a sorted CDXJ index beside the WARC files.")
@click.option("--digest", type=click.Choice(("sha1", "sha256")), default="sha1", show_default=True, help="Of WARC records.")
@click.option("--body/--no-body", "bodies", default=True, help="Whether jsonl and parquet have the bodies.")
@click.option("--robots", is_flag=True, help="Also robots.txt files; WARC has them anyway.")
@click.option("--redirects", is_flag=True, help="Also pages that only lead to another; WARC has them anyway.")
@click.option("--cursor", metavar="NAME", help="Only what is new since the last export with this name, and remember this one.")
@click.option("--past-damage", is_flag=True, help="Let the cursor go on although documents were damaged and left out.")
@click.option("--overwrite", is_flag=True, help="Replace an export of the same name.")
@click.option("--dry-run", is_flag=True, help="Count, and write nothing.")
@remote.maybe_remote
@shared.state_number
@common.database
@common.configured
@common.jsonable
@common.standard
def command(
    url: str | None,
    token: str | None,
    ca_file: Path | None,
    selection: Selection,
    part: tuple[int, int],
    best: int | None,
    since: int | None,
    format_: str,
    output: str,
    prefix: str,
    split_bytes: int,
    cdxj: bool,
    digest: str,
    bodies: bool,
    robots: bool,
    redirects: bool,
    cursor: str | None,
    past_damage: bool,
    overwrite: bool,
    dry_run: bool,
    number: int | None,
    db: Path,
    config: Config,
    as_json: bool,
) -> int:
    """Write the documents of a state, the newest by default, in a format that other programs read.

    Files have their names only when all are whole; PREFIX-STATE.json, the manifest, comes last. A damaged document is told and
    left out, and the exit status is 11 at the end. With --cursor an export goes on from where the last one of this name ended;
    one that export.cursors names takes every closed state in turn.

    \b
    Examples:
      shep-export --format warc --cdxj -o archive
      shep-export --format warc -o archive --cursor archive
      shep-export --format jsonl --no-body --best 1000 -o - | head
      shep-export --format parquet-urls --type error -o tables
      shep-export --from https://db.example.org:8731 --token-file token --format warc -o archive
    """
    from shepherd.export.run import Wish
    from shepherd.store.database import Database

    all_of_it = format_ == "warc"
    choice = export_choice.choice_of(selection, part, best, robots or all_of_it, redirects or all_of_it)
    wish = Wish(format_, split_bytes, bodies, cdxj, digest == "sha256")
    asked = Asked(output, prefix, overwrite, selection, choice, wish, number, since, past_damage, as_json, config.directory)
    if url is not None:
        _refuse_remote(asked, cursor, token)
    _refuse(asked, cursor)
    if url is not None:
        return _from_server(url, token or "", ca_file, asked, dry_run)
    if token is not None:
        raise UsageError("--token-file is for a server: name it by --from")
    database = Database(db)
    if format_ == "parquet-urls":
        from shepherd.cli import export_urls

        return export_urls.run(database, asked, dry_run)
    if cursor is not None:
        from shepherd.store import cursors

        with contextlib.ExitStack() as stack:
            if not dry_run:
                database.closed(number)  # before anything is made in what may be no database
                stack.callback(cursors.locked(database.log_path, cursor).release)
            return _with_cursor(database, asked, cursor, config, dry_run)
    with (
        database.reading("shep-export", shared.clock_ms(), number) as state,
        _older(database, since, state) as older,
    ):
        tell = Told()
        source = _source(asked, state, older, tell)
        return _status(_dry(source, asked) if dry_run else _export(source, asked, tell))


def _refuse(asked: Asked, cursor: str | None) -> None:
    """What makes no sense together."""
    format_ = asked.wish.format
    if asked.output == STDOUT and format_ not in INLINE:
        raise UsageError(f"{format_} cannot go to stdout: give -o a directory")
    if asked.output == STDOUT and cursor is not None:
        raise UsageError("what went to stdout may be lost, so no cursor goes on with it: give -o a directory")
    if cursor is not None and asked.since is not None:
        raise UsageError("--cursor says itself since which state: leave --since out")
    if asked.wish.cdxj and format_ != "warc":
        raise UsageError("--cdxj is an index of WARC files")
    if not asked.prefix or "/" in asked.prefix or asked.prefix.startswith(".") or not asked.prefix.isprintable():
        raise UsageError(f"--prefix {shared.shown(asked.prefix)}: it must be the beginning of the name of a file")
    if format_ == "parquet-urls" and (
        cursor is not None or asked.since is not None or asked.choice.parts > 1 or asked.choice.best
    ):
        raise UsageError(
            "parquet-urls is of all rows that the selectors choose: --cursor, --since, --part and --best are of documents"
        )
    if format_.startswith("parquet"):
        from shepherd.export import parquet

        parquet.load()


def _refuse_remote(asked: Asked, cursor: str | None, token: str | None) -> None:
    """What a server cannot be asked for."""
    if token is None:
        raise UsageError("--from needs --token-file, with the token that shep-serve token add has shown there")
    if cursor is not None:
        raise UsageError("cursors stand in the database itself: run shep-export there, or give --since the state you had last")
    if asked.wish.format in ("parquet-urls", "buckets"):
        raise UsageError(f"{asked.wish.format} tells of the database itself: run shep-export there")
    most = asked.selection.weights[1] if asked.selection.weights else export_choice.MOST_WEIGHT
    if asked.selection.site is not None or export_choice.asks_columns(asked.selection) or most < export_choice.MOST_WEIGHT:
        raise UsageError("a server chooses by --section, --weight MIN.., --part, --best and --since alone")


def _from_server(url: str, token: str, ca_file: Path | None, asked: Asked, dry_run: bool) -> int:
    from shepherd.client import Server
    from shepherd.export.remote import PURPOSE, RemoteSource

    with Server(url, token, ca=ca_file) as server, server.leased(PURPOSE, asked.number) as lease:
        source = RemoteSource(server, lease, asked.choice, asked.since)
        return _status(_dry(source, asked) if dry_run else _export(source, asked, Told()))


@contextlib.contextmanager
def _older(database: Database, number: int | None, state: State) -> Iterator[State | None]:
    """What is known of an older state; leased, if it is still there."""
    from shepherd.store import keys

    if number is None:
        yield None
        return
    if number >= state.number:
        raise UsageError(f"state {number} is not older than state {state.number}")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(UsageError):
            stack.enter_context(database.reading("shep-export", shared.clock_ms(), number))
        yield keys.remembered(database, number)


def _source(asked: Asked, state: State, since: State | None, tell: Told) -> LocalSource:
    from shepherd.batch.reading import Reading
    from shepherd.export.documents import LocalSource

    narrow = export_choice.narrowing(state, asked.selection, asked.cf, since is not None)
    checked = since is not None and asked.wish.format == "warc"
    return LocalSource(Reading(state, asked.choice, since, narrow=narrow, checked=checked), tell)


# --- one export -------------------------------------------------------------------------------------------------


def _export(source: Source, asked: Asked, tell: Told, again: bool = False) -> dict[str, Any]:
    """Counts; the export is whole and durable. `again`: one that is there may be this very one, and is replaced if it is."""
    from shepherd.export.output import Output
    from shepherd.export.run import export

    stem = stem_of(asked, source.state)
    told: dict[str, Any] = {"state": source.state, "since": source.since, "format": asked.wish.format}
    told["choice"] = export_choice.words(asked.choice, asked.selection)
    output = None
    if asked.output != STDOUT:
        output = Output(Path(asked.output), stem, asked.overwrite, told if again else None)
    try:
        with common.progress(source.items, f"state {source.state}", " documents") as bar:
            counts = export(source, asked.wish, output, tell, bar.update)
        if output is None:
            sys.stdout.buffer.flush()
            return told | {"counts": counts, "files": []}
        return output.commit(told | {"counts": counts})
    except BaseException:
        if output is not None:
            output.abandon()
        raise


def stem_of(asked: Asked, state: int) -> str:
    parts = f"-{asked.choice.part + 1}of{asked.choice.parts}" if asked.choice.parts > 1 else ""
    return f"{asked.prefix}-{state:06d}{parts}"


class Told:
    """Damage, as it is met: the first of it in full."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, why: str) -> None:
        self._count += 1
        if self._count <= TOLD_DAMAGE:
            common.LOG.warning("left out: %s", why)
        if self._count == TOLD_DAMAGE:
            common.LOG.warning("further damage is only counted; shep-check names all of it")


def _dry(source: Source, asked: Asked) -> dict[str, Any]:
    told = {"state": source.state, "since": source.since}
    counts = {"documents": source.items - source.gone_items, "gone": source.gone_items, "bucket bytes": source.bucket_bytes}
    return told | {"format": asked.wish.format, "choice": export_choice.words(asked.choice, asked.selection), "counts": counts}


def _status(told: dict[str, Any], as_json: bool | None = None) -> int:
    """Tell what came of it; the exit status."""
    if as_json is None:
        as_json = bool(click.get_current_context().params["as_json"])
    if as_json:
        common.emit_json(told)
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in told["counts"].items() if count)
        since = f" since state {told['since']}" if told.get("since") else ""
        common.LOG.info("state %d%s: %s", told["state"], since, counts or "nothing")
        for file in told.get("files", ()):
            common.LOG.info("  %s%s", file["name"], f"  {shared.size(file['bytes'])}" if file["bytes"] is not None else "/")
    return Corruption.exit_status if told["counts"].get("damaged") else 0


# --- exports that go on ------------------------------------------------------------------------------------------


def _with_cursor(database: Database, asked: Asked, name: str, config: Config, dry_run: bool) -> int:
    """Go on from where the cursor stands; one of the configuration passes through every closed state that it has not come to."""
    from shepherd.store import cursors

    words = export_choice.words(asked.choice, asked.selection)
    at = cursors.read(database.log_path, name)
    if at is not None and at.choice != words:
        raise UsageError(
            f"the cursor {name} goes on with another choice of documents than this one; give the same selectors as then, "
            "or another name"
        )
    numbers = _to_come(database, asked, at, name in config.export.cursors)
    if not numbers:
        raise NothingToDo(f"nothing is new since state {at.state if at else 0}, to which the cursor {name} has come")
    status = 0
    for number in numbers:
        at = at or cursors.Cursor(name, 0, words)
        with database.reading("shep-export", shared.clock_ms(), number) as state:
            tell = Told()
            source = _source(asked, state, cursors.opened(database, at) if at.state else None, tell)
            if dry_run:
                _status(_dry(source, asked))
                at = replace(at, state=number)  # here alone: what comes next is counted against this
                continue
            told = _export(source, asked, tell, again=True)
            one = _status(told)
            if one and not asked.past_damage:
                raise Corruption(
                    f"the cursor {name} stays where it was, at state {at.state}: mend the damage (shep-check names it), "
                    "or go on without what was left out by --past-damage"
                )
            cursors.advance(database, at, state)
            at, status = replace(at, state=number), status or one
    return status


def _to_come(database: Database, asked: Asked, at: Cursor | None, every: bool) -> list[int]:
    """The states to export, oldest first."""
    last = database.closed(asked.number).number
    come = at.state if at is not None else 0
    if not every:
        return [last] if last > come else []
    return [name.number for name in database.states() if name.closed and come < name.number <= last]


def main() -> None:
    common.run(command)
