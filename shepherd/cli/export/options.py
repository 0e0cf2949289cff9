"""What the command line of shep-export asks for, and what of it makes no sense together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shepherd.cli.export import choice as export_choice
from shepherd.config import Config
from shepherd.console import selectors, shared
from shepherd.console.selectors import Selection
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.export.run import Wish
    from shepherd.readers.choice import Choice

R = TypeVar("R")

FORMATS = ("warc", "jsonl", "buckets", "stream", "parquet", "parquet-urls", "files", "tar.gz")
INLINE = ("jsonl", "buckets", "stream")  # what is gone stands among the documents; they may go to stdout
STDOUT = "-"


@dataclass(frozen=True)
class ExportOptions:
    """What the command line says, but for where the documents come from."""

    output: str
    prefix: str
    overwrite: bool
    selection: Selection
    choice: Choice
    wish: Wish
    number: int | None
    since: int | None
    cursor: str | None
    past_damage: bool
    dry_run: bool
    as_json: bool
    cf: Path


OPTIONS = (
    click.option(
        "--part",
        type=export_choice.PART,
        default="1/1",
        metavar="I/N",
        help="Only part I of N, cut by site: for readers in parallel.",
    ),
    click.option("--best", type=click.IntRange(1), metavar="N", help="Only the N documents of most weight."),
    click.option("--since", type=click.IntRange(1), metavar="N", help="Only what is new since this state, and what is gone."),
    click.option("--format", "format_", type=click.Choice(FORMATS), required=True, help="What to write."),
    click.option("-o", "--output", required=True, metavar="DIR|-", help="Where to; - is stdout, for jsonl, buckets and stream."),
    click.option(
        "--prefix", default="shepherd", show_default=True, metavar="NAME", help="What the names of the files begin with."
    ),
    click.option(
        "--split-bytes",
        type=click.IntRange(0),
        default=1 << 30,
        metavar="N",
        help="Begin a new file after so many bytes; 0 = never.  [default: 1 GiB]",
    ),
    click.option("--cdxj", is_flag=True, help="Write a sorted CDXJ index beside the WARC files."),
    click.option("--digest", type=click.Choice(("sha1", "sha256")), default="sha1", show_default=True, help="Of WARC records."),
    click.option("--body/--no-body", "bodies", default=True, help="Whether jsonl and parquet have the bodies."),
    click.option("--robots", is_flag=True, help="Also robots.txt files; WARC has them anyway."),
    click.option("--redirects", is_flag=True, help="Also pages that only redirect; WARC has them anyway."),
    click.option("--cursor", metavar="NAME", help="Only what is new since the last export with this name; remember this one."),
    click.option("--past-damage", is_flag=True, help="Advance the cursor although damaged documents were skipped."),
    click.option("--overwrite", is_flag=True, help="Replace an export of the same name."),
    click.option("--dry-run", is_flag=True, help="Count, and write nothing."),
)


def export_options(function: Callable[..., R]) -> Callable[..., R]:
    """All of that as `options: ExportOptions`, for a command that also has --cf, --state and --json."""

    @functools.wraps(function)
    def with_options(
        *args: Any,
        selection: Selection,
        config: Config,
        part: tuple[int, int],
        best: int | None,
        robots: bool,
        redirects: bool,
        format_: str,
        split_bytes: int,
        bodies: bool,
        cdxj: bool,
        digest: str,
        **kwargs: Any,
    ) -> R:
        from shepherd.export.run import Wish

        all_of_it = format_ == "warc"
        choice = export_choice.choice_of(selection, part, best, robots or all_of_it, redirects or all_of_it)
        wish = Wish(format_, split_bytes, bodies, cdxj, digest == "sha256")
        own = ("output", "prefix", "overwrite", "number", "since", "cursor", "past_damage", "dry_run", "as_json")
        options = ExportOptions(
            selection=selection, choice=choice, wish=wish, cf=config.directory, **{name: kwargs.pop(name) for name in own}
        )
        return function(*args, options=options, config=config, **kwargs)

    decorated: Callable[..., R] = with_options
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return selectors.selecting(decorated)


def refuse(options: ExportOptions) -> None:
    """What makes no sense together."""
    format_ = options.wish.format
    if options.output == STDOUT and format_ not in INLINE:
        raise UsageError(f"{format_} cannot go to stdout: give -o a directory")
    if options.output == STDOUT and options.cursor is not None:
        raise UsageError("what went to stdout may be lost, so a cursor cannot continue it: give -o a directory")
    if options.cursor is not None and options.since is not None:
        raise UsageError("--cursor knows the state itself: leave out --since")
    if options.cursor is not None or options.since is not None:
        export_choice.refuse_columns(options.selection)
    if options.wish.cdxj and format_ != "warc":
        raise UsageError("--cdxj is an index of WARC files")
    if not options.prefix or "/" in options.prefix or options.prefix.startswith(".") or not options.prefix.isprintable():
        raise UsageError(f"--prefix {shared.redact(options.prefix)}: it must be the beginning of the name of a file")
    if format_ == "parquet-urls" and (
        options.cursor is not None or options.since is not None or options.choice.parts > 1 or options.choice.best
    ):
        raise UsageError(
            "parquet-urls is of all rows that the selectors choose: --cursor, --since, --part and --best are of documents"
        )
    if format_.startswith("parquet"):
        from shepherd.export import parquet

        parquet.load()


def refuse_remote(options: ExportOptions, token: str | None) -> None:
    """What a server cannot be asked for."""
    if token is None:
        raise UsageError("--from needs --token-file, with the token that shep-serve token add printed there")
    if options.wish.format in ("parquet-urls", "buckets"):
        raise UsageError(f"{options.wish.format} describes the database itself: run shep-export there")
    if export_choice.asks_columns(options.selection):
        raise UsageError(
            "a server chooses by --site, --section, --weight, --part, --best and --since alone: for the other selectors run "
            "shep-export where the database is"
        )
