"""shep-mirror: a backup of a database over the network, which is itself a database."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd.config import Config
from shepherd.console import common, phase, progress, remote
from shepherd.console.shared import many, size
from shepherd.errors import NoSpace, PeerLost, PeerRefused
from shepherd.master.children import Signals

if TYPE_CHECKING:
    from shepherd.store.disk.names import StateName
    from shepherd.store.mirror.drive import MirrorOptions, MirrorResult, StateServer
    from shepherd.store.state.database import Writer

NAME: Final = "shep-mirror"
MOST_JOBS: Final = 8
LEAST_RATE: Final = 10_000  # what is slower looks like a source that stands still
TRIES: Final = 4  # of a request, as long as the source has never answered
LATER_TRIES: Final = 8  # it may be restarted: over half a minute
LOOK_S: Final = 0.2  # how often a pause looks for a signal
LONGEST_S: Final = 600.0  # between two looks at a source that is away


@click.command()
@click.option("--from", "url", required=True, metavar="URL", help="The shep-serve of the database to mirror: https://HOST:PORT.")
@remote.with_token
@remote.with_authorities
@common.database
@common.configured
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Closed states to keep.  [default: store.keep_states]")
@click.option(
    "--jobs", type=click.IntRange(1, MOST_JOBS), default=2, show_default=True, metavar="N", help="Files to fetch at a time."
)
@click.option("--limit-rate", type=click.IntRange(LEAST_RATE), metavar="BYTES", help="Fetch at most so many bytes a second.")
@click.option("--watch", type=click.FloatRange(1), metavar="SECONDS", help="Keep running, and look for a newer state this often.")
@click.option("--verify", is_flag=True, help="Read every byte here, and fetch damaged files again.")
@click.option("--adopt", is_flag=True, help="DIR is a copy of the source's database, made by hand: make a mirror of it.")
@click.option("--dry-run", is_flag=True, help="Print what would be fetched, and change nothing.")
@common.jsonable
@common.standard
def command(
    url: str,
    token: str,
    ca_file: Path | None,
    db: Path,
    config: Config,
    keep: int | None,
    jobs: int,
    limit_rate: int | None,
    watch: float | None,
    verify: bool,
    adopt: bool,
    dry_run: bool,
    as_json: bool,
) -> int | None:
    """Copy the newest state of a database on another machine into DIR, which is then a database, ready to use.

    It fetches only files that no state in DIR has, and checks each before the state gets its name. If it breaks off or is killed,
    run the same command again: it continues. To restore, give DIR to any program as --db. Once a program has made a state there,
    DIR is not a mirror any more, and shep-mirror refuses it.

    \b
    Examples:
      shep-mirror --from https://db.example.org:8731 --token-file cf/mirror.token --db /backup/db
      shep-mirror --from http://127.0.0.1:8731 --token-file cf/mirror.token --db standby --watch 60
    """
    from shepherd.client.mirror_source import MirrorSource
    from shepherd.client.server import Server as HttpServer

    signals = None if dry_run else _Signals()
    pause = _pause_until_stopped(signals) if signals else time.sleep
    with HttpServer(url, token, ca=ca_file, tries=TRIES, later_tries=LATER_TRIES, pause=pause) as http:
        source = MirrorSource(http)
        on_result = _ResultPrinter(source.where, db, as_json)
        if signals is None:
            on_result(_rehearse(db, source, adopt), dry_run=True)
            return None
        way = _way(db, config, keep, jobs, limit_rate, signals)
        return _mirror(db, source, replace(way, verify=verify, adopt=adopt), watch, signals, on_result)


def _rehearse(db: Path, source: StateServer, adopt: bool) -> MirrorResult:
    from shepherd.store.mirror import directory as directories
    from shepherd.store.mirror import drive as mirror

    return mirror.rehearse(directories.open_existing(db), source, adopt)


def _mirror(
    db: Path, source: StateServer, way: MirrorOptions, watch: float | None, signals: _Signals, on_result: _ResultPrinter
) -> int:
    """The lock is held all the time: nobody can begin to gather in a standby that is still being written."""
    from shepherd.store.mirror import directory as directories
    from shepherd.store.mirror import drive as mirror
    from shepherd.store.mirror.downloads import Stopped

    if directories.open_existing(db) is None and not _has_answered(source, watch, signals):
        return 0 if watch is not None else signals.exit_status
    with directories.create(db).writing(NAME, tidy=False) as writer, phase.timed(db, NAME):
        try:
            if watch is not None:
                _watch(writer, source, way, watch, signals, on_result)
                return 0
            on_result(mirror.run(writer, source, way))
            return 0
        except Stopped:
            common.LOG.warning("%s: stopped; what was received is kept, and the next run continues", NAME)
            return 0 if watch is not None else signals.exit_status


def _has_answered(source: StateServer, watch: float | None, signals: _Signals) -> bool:
    """Nothing is made here before the source has given a control that may be believed; False where a signal came first."""
    from shepherd.store.mirror import drive as mirror
    from shepherd.store.mirror.downloads import Stopped

    failures = 0
    while not signals.stopping():
        try:
            mirror.rehearse(None, source)
            return True
        except Stopped:
            return False
        except PeerLost as error:
            if watch is None:
                raise
            failures += 1
            signals.pause(_patience_s(error, watch, failures))
    return False


def _patience_s(error: Exception, every_s: float, failures: int) -> float:
    """How long a watch waits after so many failures in a row."""
    wait_s = min(every_s * 2.0 ** min(failures, 20), max(LONGEST_S, every_s))  # weeks of failures would overflow
    common.LOG.warning("%s: %s; the next look is in %.0f s", NAME, error, wait_s)
    return wait_s


def _watch(
    writer: Writer, source: StateServer, way: MirrorOptions, every_s: float, signals: _Signals, on_result: _ResultPrinter
) -> None:
    """Until a signal. A source that is away is waited for; once a round has gone well, also one that refuses, and room."""
    from shepherd.store.mirror import drive as mirror

    state_seen: int | None = None
    failures = 0
    while not signals.stopping():
        wait_s = every_s
        try:
            result = mirror.run(writer, source, way, state_seen)
            if result.fresh or state_seen is None:
                on_result(result)
            state_seen, failures = result.state, 0
        except (PeerLost, PeerRefused, NoSpace) as error:
            if state_seen is None and not isinstance(error, PeerLost):
                raise
            failures += 1
            wait_s = _patience_s(error, every_s, failures)
        signals.pause(wait_s)


def _way(db: Path, config: Config, keep: int | None, jobs: int, rate: int | None, signals: _Signals) -> MirrorOptions:
    from shepherd.store.mirror import drive as mirror

    @contextlib.contextmanager
    def progress_bar(name: StateName, total: int) -> Iterator[Callable[[int], object]]:
        with progress.reporting(db, progress.ProgressJob(NAME, str(name), total, "B")) as work:
            yield work.update

    return mirror.MirrorOptions(
        keep=keep or config.store.keep_states,
        keep_journals=config.store.keep_journals,
        unexported=config.export.cursors,
        jobs=jobs,
        verify=False,
        adopt=False,
        now=lambda: int(time.time()),
        stopping=signals.stopping,
        pause=time.sleep,
        pace=_Pace(rate) if rate else lambda _count: None,
        progress=progress_bar,
    )


def _pause_until_stopped(signals: _Signals) -> Callable[[float], None]:
    """A sleep, in any thread, that ends with Stopped when a signal comes."""
    from shepherd.store.mirror.downloads import Stopped

    def pause(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if signals.stopping():
                raise Stopped
            time.sleep(min(left_s, LOOK_S))

    return pause


class _Pace:
    """Lets bytes through at a rate, whichever thread they come by."""

    def __init__(self, rate: int) -> None:
        self._rate, self._turn = rate, threading.Lock()
        self._next_s = 0.0

    def __call__(self, count: int) -> None:
        with self._turn:
            now_s = time.monotonic()
            self._next_s = max(self._next_s, now_s) + count / self._rate
            wait_s = self._next_s - now_s
        time.sleep(wait_s)


class _Signals(Signals):
    """The first one lets threads stop where they are; the second ends the process, whatever they wait for."""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        super()._handle(number, frame)
        if self.killing():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class _ResultPrinter:
    """Prints what a round has fetched."""

    def __init__(self, where: str, db: Path, as_json: bool) -> None:
        self._where, self._db, self._as_json = where, db, as_json

    def __call__(self, result: MirrorResult, dry_run: bool = False) -> None:
        if self._as_json:
            record: dict[str, Any] = {"program": NAME, "from": self._where, "db": self._db, "dry_run": dry_run}
            common.emit_json(record | vars(result))
            sys.stdout.flush()  # a watch has no end soon
        elif dry_run:
            click.echo(f"{NAME}: {self._text(result, 'would fetch')}")
        else:
            common.LOG.info("%s: %s", NAME, self._text(result, "fetched"))
            if result.deleted:
                common.LOG.info("%s: deleted %s", NAME, ", ".join(map(str, result.deleted)))

    def _text(self, result: MirrorResult, verb: str) -> str:
        if not result.fresh:
            return f"{self._db} has state {result.state} of {self._where} already"
        fetched = f"{result.fetched} of {many(result.files, 'file')} ({size(result.fetched_bytes)} of {size(result.total_bytes)})"
        return f"state {result.state} of {self._where}: {verb} {fetched}, the others are here"


def main() -> None:
    common.run(command)
