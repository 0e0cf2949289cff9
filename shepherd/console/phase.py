"""What the programs of the cycle share: the lock that a master passes on, the log of timings, the database and its phase."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import click

from shepherd.config import Config
from shepherd.console import common, machine, progress
from shepherd.console.cf_place import LOCK_FD as LOCK_FD
from shepherd.console.shared import clock_ms, many, redact
from shepherd.errors import IoFailed, Locked, UsageError
from shepherd.report import logbook
from shepherd.store.disk import fsio

if TYPE_CHECKING:
    from shepherd.store.state.database import Database, Writer
    from shepherd.store.state.directory import State

    Drive: TypeAlias = Callable[[Writer, Config, int, Callable[[int], object], int], State]

R = TypeVar("R")

MOST_JOBS = 256


def inherited_lock() -> int | None:
    """The descriptor of db/lock that the master has passed on, if there is one."""
    text = os.environ.get(LOCK_FD, "")
    if not text:
        return None
    if not text.isdigit():
        raise UsageError(f"{LOCK_FD}={text!r}: must be the number of an open descriptor; unset it")
    return int(text)


@contextlib.contextmanager
def timed(db: Path, program: str) -> Iterator[None]:
    """Append how long the program took to log/timings.jsonl, never where a link leads: timings are never part of a state."""
    start, wall = time.time(), time.monotonic()
    yield
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    line = {
        "program": program,
        "start": round(start, 3),
        "wall_s": round(time.monotonic() - wall, 3),
        "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 3),
    }
    try:
        with fsio.open_to_append(db / "log" / "timings.jsonl") as file:
            file.write(json.dumps(line).encode() + b"\n")
    except OSError as error:
        common.LOG.warning("the timing could not be logged: %s", error)


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """One more line of a log; a line that a crash cut short stays a line of its own. What is no log costs only the line."""
    try:
        path.parent.mkdir(exist_ok=True)
        with fsio.open_to_append(path) as file:
            end = file.seek(0, 2)
            file.seek(max(end - 1, 0))
            torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * torn + json.dumps(entry).encode() + b"\n")
    except (FileExistsError, FileNotFoundError) as error:
        common.LOG.warning("a line of the log is lost: %s; shep-recover moves aside what is no log", error)


def last_reap(db: Path) -> dict[str, Any]:
    """The last report in the log of reaps; empty if there is none."""
    try:
        return next(logbook.newest_first(db / "log" / logbook.REAPS), {})
    except (OSError, IoFailed):
        return {}


@dataclass(frozen=True)
class PhaseOptions:
    """How a batch phase is to be run: the options that all of them have."""

    db: Path
    config: Config
    now: int
    jobs: int
    dry_run: bool
    as_json: bool


def batch(function: Callable[..., R]) -> Callable[..., R]:
    """--db, --cf, --now, --jobs, --dry-run, --json and what every program has, as one `options: PhaseOptions`."""

    @functools.wraps(function)
    def gathered(*args: Any, **kwargs: Any) -> R:
        machine.tune()  # numpy comes with the phase, which the function imports
        phase_options = PhaseOptions(**{field.name: kwargs.pop(field.name) for field in dataclasses.fields(PhaseOptions)})
        return function(*args, options=phase_options, **kwargs)

    processes = click.option(
        "--jobs",
        type=click.IntRange(1, MOST_JOBS),
        default=1,
        metavar="N",
        help="Compute in N processes; the result is the same.  [default: 1]",
    )
    rehearse = click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
    decorators = (common.database, common.configured, common.timed, processes, rehearse, common.jsonable, common.standard)
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(decorators), gathered)


def run(
    program: str, drive: Drive, options: PhaseOptions, describe: Callable[[Mapping[str, Any]], Iterator[str]] | None = None
) -> None:
    """Run a batch phase under the lock, with a bar over the rows, and report what it made, in the words of `describe`."""
    from shepherd.store.state.database import Database

    database = Database(options.db)
    signal.signal(signal.SIGTERM, terminated)
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            writer: Writer = stack.enter_context(rehearsal(database, program))
        else:
            writer = stack.enter_context(database.writing(program, inherited_lock()))
            stack.enter_context(timed(options.db, program))
        state_before = writer.furthest()
        job = progress.ProgressJob(program, str(state_before.name), state_before.index.rows, "row")
        with progress.reporting(None if options.dry_run else options.db, job) as work:
            state = drive(writer, options.config, options.now, work.update, options.jobs)
    report = state.report()
    if options.as_json:
        common.emit_json({"program": program, "state": str(state.name), "dry_run": options.dry_run, "report": report})
        return
    if inherited_lock() is None:  # else the master reports it
        for what, count, first in refused(report):
            common.LOG.warning("%s: %s refused, the first: %s", program, many(count, what), redact(first))
    counts = ", ".join((describe or _counts_in_words)(report))
    summary = f"{'would make ' if options.dry_run else ''}{state.name}{f' ({counts})' if counts else ''}"
    if options.dry_run:  # here this is the result, not a remark
        click.echo(f"{program}: {summary}")
    else:
        common.LOG.info("%s: %s", program, summary)


def terminated(_number: int, _frame: object) -> NoReturn:
    """Unwinds the program, so that what it has half made is removed, and does not fill the disk."""
    raise common.Terminated


def refused(report: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """What a phase could not use, how much of it, and the reason for the first, as far as the report has it."""
    reasons = list(report.get("bad", []))
    for what in ("request", "upload", "line"):
        count = report.get(f"bad {what}s", 0)
        if count:
            yield what, count, reasons[0] if reasons else "the report has no room for it"
        reasons = reasons[count:]
    harvests = report.get("refused harvests", {})
    for name, why in list(harvests.items())[:1]:
        yield "harvest", len(harvests), f"{name}.harvest: {why}"


def _counts_in_words(counters: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for key, value in counters.items():
        if isinstance(value, Mapping):
            yield from _counts_in_words(value, f"{within}{key}: ")
        elif isinstance(value, int) and value:
            yield f"{within}{key} {value}"


@contextlib.contextmanager
def rehearsal(database: Database, program: str) -> Iterator[Writer]:
    """On the newest closed state, without the lock: a cycle may begin meanwhile. Only an unfinished directory that is further
    needs it, for nothing else keeps that one; if somebody has it, or we may only read, it is the newest closed one after all."""
    from shepherd.store.state.database import UNLEASABLE
    from shepherd.store.state.dry_run import DryRun

    with contextlib.ExitStack() as stack:
        state = None
        if not database.furthest().name.closed:
            try:
                stack.enter_context(database.writing(f"{program} --dry-run", inherited_lock(), tidy=False))
                state = database.furthest()
            except (Locked, IoFailed) as error:
                cause = error.__cause__
                if isinstance(error, IoFailed) and not (isinstance(cause, OSError) and cause.errno in UNLEASABLE):
                    raise
        if state is None or state.name.closed:
            state = stack.enter_context(database.reading(program, clock_ms()))
        yield DryRun(database, state)
