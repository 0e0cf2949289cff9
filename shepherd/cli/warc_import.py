"""shep-import: take over an existing crawl from WARC files."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.console import common, phase, progress
from shepherd.console.shared import STDIN, clock_ms, many
from shepherd.errors import NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.importing.account import RecordPlace
    from shepherd.importing.drive import Importer
    from shepherd.importing.reading import ImportFile

PROGRAM: Final = "shep-import"
MOST_REPORTED: Final = 100  # bad records, and those left out, each; the rest is counted
MOST_NAMED: Final = 5  # files that were given up
ROUND: Final = 1_000_000


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE...")
@click.option(
    "--weight", type=click.IntRange(0, 65_535), metavar="N", help="Of documents that are new.  [default: merge.insert_weight]"
)
@click.option("--no-links", is_flag=True, help="Ignore what the documents link to.")
@click.option("--strict", is_flag=True, help="Exit status 2 if a record could not be read or used.")
@click.option(
    "--round",
    "round_records",
    type=click.IntRange(1),
    default=ROUND,
    metavar="N",
    help="Take in so many records at a time: a killed import loses the last of these.  [default: 1000000]",
)
@phase.batch
def command(
    files: tuple[str, ...], weight: int | None, no_links: bool, strict: bool, round_records: int, options: phase.PhaseOptions
) -> None:
    """Import WARC files (1.0 or 1.1, plain or gzip; - is stdin) as if their documents had been gathered when they were recorded.

    Responses become documents, redirects and errors; a robots.txt becomes that of its site; a revisit says that a document was
    unchanged. The newest record of a URL counts; records that the database has already, or that the filter rejects, are skipped.
    Links become new URLs, which the next cycle takes in. Nobody is contacted.

    It takes the lock, and makes closed states. A record that cannot be read or used is reported with file and offset, and
    skipped. A file in which too much is damaged is given up; when the others are taken in, the exit status is 2. If it is
    killed, run the same command again: it continues. The first Ctrl-C or SIGTERM takes in what has been read, the second ends
    at once. Exit status 4 if there was nothing new.

    \b
    Examples:
      shep-import --db db crawl-*.warc.gz
      curl https://archive.example/part.warc.gz | shep-import --db db -
      shep-import --db db --dry-run --json crawl.warc
    """
    from shepherd.filters import load_filter
    from shepherd.importing.drive import Importer
    from shepherd.importing.gather import Options
    from shepherd.store.state.database import Database

    if not files:
        raise click.UsageError("give WARC files, or - for stdin")
    database, config = Database(options.db), options.config
    import_options = Options(config.merge.insert_weight if weight is None else weight, round_records, not no_links, options.jobs)
    reporter = _RecordReporter(options.as_json)
    importer = Importer(config, load_filter(config.filter_path), import_options, reporter, options.now)
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            state = stack.enter_context(database.reading(PROGRAM, clock_ms()))
        else:
            writer = stack.enter_context(database.writing(PROGRAM, phase.inherited_lock()))
            stack.enter_context(phase.timed(options.db, PROGRAM))
            state = writer.furthest()
        job = progress.ProgressJob(PROGRAM, str(state.name), _size(files), "B")
        work = stack.enter_context(progress.reporting(None if options.dry_run else options.db, job))
        sources = _sources(files, work.update)
        stack.enter_context(_stopping(importer))
        if options.dry_run:
            importer.rehearse(state, sources)
        else:
            importer.run(writer, sources, lambda: database.new_item_name(clock_ms()))
    reporter.end()
    _print_result(importer.account.report(), options, importer.stopping)
    if strict and importer.account.bad_records:
        raise UsageError(f"{many(importer.account.bad_records, 'record')} could not be used, for the reasons above")


class _RecordReporter:
    """Reports bad records with their places; those left out only with -v."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._bad = as_json, 0

    def on_bad(self, place: RecordPlace, why: str) -> None:
        self._bad += 1
        if self._as_json:
            common.emit_json({"bad": why, "file": common.escape(place.file), "offset": place.offset})
        elif self._bad <= MOST_REPORTED:
            common.LOG.warning("%s at %d: %s", place.file, place.offset, why)

    def on_left_out(self, place: RecordPlace, why: str) -> None:
        common.LOG.debug("%s at %d: skipped: %s", place.file, place.offset, why)

    def end(self) -> None:
        if self._bad > MOST_REPORTED and not self._as_json:
            common.LOG.warning("and %s more that cannot be used", many(self._bad - MOST_REPORTED, "record"))


def _sources(files: tuple[str, ...], tick: Callable[[int], object]) -> list[ImportFile]:
    """Each is opened when its turn comes: there may be more than a process can have open."""
    from shepherd.importing.reading import ImportFile

    def named(file: str) -> ImportFile:
        if file == STDIN:
            return ImportFile("stdin", lambda: open(sys.stdin.fileno(), "rb", closefd=False), False, tick)
        return ImportFile(os.path.basename(file), lambda: open(file, "rb"), stat.S_ISREG(os.stat(file).st_mode), tick)

    return [named(file) for file in files]


def _size(files: tuple[str, ...]) -> int | None:
    """Bytes of all files; None where that cannot be known."""
    return None if STDIN in files else sum(os.stat(file).st_size for file in files)


@contextlib.contextmanager
def _stopping(importer: Importer) -> Iterator[None]:
    """The first signal takes in what has been read, the second ends at once."""

    def stop(_number: int, _frame: object) -> None:
        importer.stopping = True
        common.LOG.info("%s: asked to stop; what has been read is taken in", PROGRAM)
        for number in before:
            signal.signal(number, signal.default_int_handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_result(report: dict[str, Any], options: phase.PhaseOptions, stopped: bool) -> None:
    records_taken = sum(report["taken"].values())
    text = _words(report, records_taken, options.dry_run)
    if options.as_json:
        common.emit_json({"program": PROGRAM, "dry_run": options.dry_run, "stopped": stopped, **report})
    elif options.dry_run:  # here this is the result, not a remark
        click.echo(f"{PROGRAM}: {text}")
    elif records_taken:
        common.LOG.info("%s: %s", PROGRAM, text)
    if given_up := report["given_up"]:
        raise UsageError(
            f"{many(len(given_up), 'file')} not read to the end, because too much is damaged: {', '.join(given_up[:MOST_NAMED])}"
            f"{', ...' * (len(given_up) > MOST_NAMED)}; get {'it' if len(given_up) == 1 else 'them'} anew"
        )
    if not records_taken and not options.dry_run:
        raise NothingToDo(f"nothing new to import: {text}")


def _words(report: dict[str, Any], records_taken: int, dry_run: bool) -> str:
    parts = [f"{name} {count}" for part in ("taken", "left_out") for name, count in report[part].items() if count]
    parts += [f"{name} {report[name]}" for name in ("bad", "links") if report[name]]
    state_text = f", state {report['states'][-1]}" if report["states"] else ""
    counts = f" ({', '.join(parts)})" if parts else ""
    records = many(sum(report["records"].values()), "record")
    return f"{records_taken:,} of {records} {'would be ' * dry_run}taken in{state_text}{counts}"


def main() -> None:
    common.run(command)
