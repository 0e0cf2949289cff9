"""What every program's command line shares: options, exit status, logging, progress bars and JSON.

A program is a module with a click command named `command` and this entry point:

    @click.command()
    @common.database
    @common.configured
    @common.standard
    def command(db: Path, config: Config) -> None: ...

    def main() -> None:
        common.run(command)

Results go to stdout; logs, bars and errors go to stderr. No exception leaves `run`: it becomes one sentence and the
exit status of docs/operations.md. Start-up counts, so nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import click

import shepherd
from shepherd import __version__
from shepherd import config as configuration
from shepherd.console import cf_place, completion, streams
from shepherd.errors import FileFaults, IoFailed, NoSpace, NothingToDo, ShepherdError, UsageError, too_few_descriptors
from shepherd.text import LATEST_S as LATEST_S
from shepherd.text import escape as escape
from shepherd.text import plain
from shepherd.text import with_advice as with_advice

if TYPE_CHECKING:
    from tqdm import tqdm

R = TypeVar("R")

LOG = logging.getLogger("shepherd")
DIRECTORY = click.Path(file_okay=False, path_type=Path)

CF_DEFAULT = "[default: $SHEPHERD_CF, else cf of the database, else cf]"
ALL_OF_CF = f"The directory of shepherd.toml, filter and url-equiv.  {CF_DEFAULT}"

LOCK_WAIT = "SHEPHERD_LOCK_WAIT_S"  # how long a program waits for the lock of the leases
MOST_LOCK_WAIT_S = 86_400
MOST_FAULTS = 20  # of a file, a line each
USAGE = 2
BROKEN_PIPE = 141  # what a shell shows for a program that died of SIGPIPE
INTERRUPTED = 130  # and of SIGINT
TERMINATED = 143  # and of SIGTERM
NARROW = "{desc}: {n_fmt}/{total_fmt}|{bar}| {elapsed}<{remaining}, {rate_noinv_fmt}{postfix}"  # of a bar


# --- options ----------------------------------------------------------------------------------------------------


def database(function: Callable[..., R]) -> Callable[..., R]:
    """--db DIR, as `db: Path`."""

    def find(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path:
        return cf_place.find_db(context, path)

    text = "The database directory.  [default: $SHEPHERD_DB, else db]"
    # Eager: the configuration that is meant hangs on it, in whichever order they are given.
    return click.option("--db", type=DIRECTORY, callback=find, is_eager=True, metavar="DIR", help=text)(function)


def database_of_cf(function: Callable[..., R]) -> Callable[..., R]:
    """--db DIR for a command that takes nothing but its configuration from there."""

    def find(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
        cf_place.find_db(context, path)

    text = "The database whose configuration is meant.  [default: $SHEPHERD_DB, else db]"
    option = click.option("--db", type=DIRECTORY, callback=find, is_eager=True, expose_value=False, metavar="DIR", help=text)
    return option(function)


def configured(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR, read and checked, as `config: Config`."""
    return _cf(function, ALL_OF_CF, lambda path: configuration.load(path), name="config")


def unconfigured(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR for a command that needs none: one set of options serves all, and a bad setting keeps nobody from looking."""

    def look(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
        if path is not None and not path.is_dir():
            raise click.BadParameter(f"{path} is not a directory", context)

    text = "Accepted, but not needed here."
    option = click.option("--cf", type=DIRECTORY, callback=look, expose_value=False, metavar="DIR", help=text)
    return option(function)


def filtered(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR, as `cf: Path`, for a command that may need its filter, and nothing else of it."""
    return _cf(function, f"The directory of the filter, which strips the URLs that you name.  {CF_DEFAULT}", lambda path: path)


def filter_directory(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR, as `cf: Path`, for a command that shows or changes its filter, and reads nothing else of it."""
    return _cf(function, f"The directory of the filter.  {CF_DEFAULT}", lambda path: path)


def examined(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR, as `cf: Path`, for a command that takes from it what it can: a bad setting keeps nobody from looking."""
    return _cf(function, f"The directory of shepherd.toml.  {CF_DEFAULT}", lambda path: path)


def configuration_directory(function: Callable[..., R]) -> Callable[..., R]:
    """--cf DIR, not read, as `cf: Path`: for programs that write it."""
    return _cf(function, ALL_OF_CF, lambda path: path, must_exist=False)


def _cf(
    function: Callable[..., R], text: str, read: Callable[[Path], object], name: str = "cf", must_exist: bool = True
) -> Callable[..., R]:
    def find(context: click.Context, _parameter: click.Parameter, path: Path | None) -> object:
        return read(cf_place.find(context, path, must_exist).directory)

    return click.option("--cf", name, type=DIRECTORY, callback=find, metavar="DIR", help=text)(function)


def timed(function: Callable[..., R]) -> Callable[..., R]:
    """--now SECONDS, as `now: int`."""

    def read(_context: click.Context, _parameter: click.Parameter, seconds: int | None) -> int:
        return int(time.time()) if seconds is None else seconds

    text = "Work as if the clock showed this many seconds since 1970: the same input and --now give the same bytes."
    kind = click.IntRange(0, LATEST_S)
    return click.option("--now", type=kind, callback=read, metavar="SECONDS", help=text)(function)


def jsonable(function: Callable[..., R]) -> Callable[..., R]:
    """--json, as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON lines.")(function)


def versioned(function: Callable[..., R]) -> Callable[..., R]:
    """--version alone, for a group, whose commands have the rest."""
    return click.version_option(__version__, message="%(prog)s %(version)s")(function)


def standard(function: Callable[..., R]) -> Callable[..., R]:
    """--version, -q and -v, which every program has. The function gets none of them: logging is set up by them."""

    @functools.wraps(function)
    def logging_first(*args: Any, quiet: bool, verbose: bool, **kwargs: Any) -> R:
        setup_logging(quiet, verbose)
        cf_place.report()
        return function(*args, **kwargs)

    quietly = click.option("-q", "--quiet", is_flag=True, help="Print only results, warnings and errors; no progress bars.")
    verbosely = click.option("-v", "--verbose", is_flag=True, help="Print more; for a bug, the traceback.")
    return quietly(verbosely(versioned(logging_first)))


def default_files() -> Path:
    """The commented default shepherd.toml, filter and url-equiv: cf/ of a source tree, or where `pip install .` put it."""
    package = Path(shepherd.__file__).parent
    installed = package / "defaults"
    return installed if installed.is_dir() else package.parent / "cf"


# --- running ----------------------------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """SIGTERM where it is to do what Ctrl-C does."""


def run(command: click.Command) -> NoReturn:
    """Run a program's command with the process's arguments, and exit with its status."""
    name = os.path.basename(sys.argv[0])
    streams.open_all()
    try:
        _set_failpoint(os.environ.get("SHEPHERD_FAIL", ""))
        _set_lock_wait(os.environ.get(LOCK_WAIT, ""))
        status = _invoke(command, name)
        sys.stdout.flush()  # a full disk behind a redirection shows here or not at all
    except BrokenPipeError:
        status = BROKEN_PIPE
    except Terminated:
        status = _fail(name, "terminated", TERMINATED)
    except KeyboardInterrupt:
        status = _fail(name, "interrupted", INTERRUPTED)
    except ShepherdError as error:
        status = _failed(name, error)
    except OSError as error:
        status = _failed(name, _disk_error(error))
    except Exception as error:
        status = _fail(name, "interrupted", INTERRUPTED) if _is_of_interrupt(error) else _bug(name, error)
    streams.settle(sys.stdout)
    streams.settle(sys.stderr)
    sys.exit(status)


def _set_failpoint(spec: str) -> None:
    """For tests: one call of this process is to fail."""
    if spec:
        from shepherd.store.disk import failpoints, fsio

        fsio.use(failpoints.FailingOps(failpoints.parse_failpoint(spec)))


def _set_lock_wait(text: str) -> None:
    if text:
        from shepherd.store.disk import locks

        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MOST_LOCK_WAIT_S:
            raise UsageError(f"{LOCK_WAIT}={escape(text)}: allowed is a number of seconds from 0 to {MOST_LOCK_WAIT_S}")
        locks.wait_at_most(seconds)


def _invoke(command: click.Command, name: str) -> int:
    try:
        if instruction := os.environ.get(completion.variable(name)):
            return completion.answer(command, name, instruction)
        with command.make_context(name, sys.argv[1:]) as context:
            result = command.invoke(context)
            return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return _fail(name, "interrupted", INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else name
        text = error.format_message()
        if isinstance(error, click.MissingParameter):  # all of it is click's, which puts choices on lines of their own
            text = " ".join(text.split())
        return _fail(where, f"{text} (see {where} --help)", USAGE)
    except click.ClickException as error:
        return _fail(name, error.format_message(), USAGE)


def _failed(name: str, error: ShepherdError) -> int:
    LOG.debug("where it happened", exc_info=error)
    if isinstance(error, NothingToDo) and _quiet():
        return error.exit_status
    if isinstance(error, FileFaults):
        return _fail(name, error.faults, error.exit_status)
    return _fail(name, with_advice(error), error.exit_status)


def _fail(name: str, messages: str | tuple[str, ...], status: int) -> int:
    lines = (messages,) if isinstance(messages, str) else messages
    with contextlib.suppress(BrokenPipeError):  # nobody reads it: the status still says so
        for message in lines[:MOST_FAULTS]:
            print(f"{name}: {escape(message)}", file=sys.stderr)
        if len(lines) > MOST_FAULTS:
            print(f"{name}: and {len(lines) - MOST_FAULTS} more: shepherd check-config lists all", file=sys.stderr)
    return status


def _disk_error(error: OSError) -> ShepherdError:
    what = error.strerror or str(error) or type(error).__name__
    where = f" at {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"no space is left{where} ({what}): make room and run the same command again")
    if (too_few := too_few_descriptors(error)) is not None:
        return too_few
    advice = {errno.EIO: "; look at the disk, then run shep-check", errno.EACCES: "; run this as the user whose database it is"}
    return IoFailed(f"the system reported an error{where}: {what}{advice.get(error.errno or 0, '')}")


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether it was raised while an interrupt went its way: a loop that was interrupted in a callback cannot even be closed."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _bug(name: str, error: Exception) -> int:
    if LOG.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    kind = type(error).__name__
    return _fail(name, f"this is a bug, please report it: {kind}: {error} (-v shows the traceback)", ShepherdError.exit_status)


# --- logging ----------------------------------------------------------------------------------------------------


class _Handler(logging.Handler):
    """Log lines on stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        bars = sys.modules.get("tqdm")
        if bars is None:
            print(line, file=sys.stderr, flush=True)
        else:
            bars.tqdm.write(line, file=sys.stderr)


class _Formatter(logging.Formatter):
    """One line per record, whatever bytes of the web are in it; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape(super().formatMessage(record))


def setup_logging(quiet: bool, verbose: bool) -> None:
    """Warnings only if quiet, everything if verbose; -v wins over -q."""
    handler = _Handler()
    handler.addFilter(lambda record: bool(record.msg % record.args if record.args else record.msg))  # an event without a text
    handler.setFormatter(_Formatter("%(asctime)s %(name)s: %(message)s" if verbose else "%(message)s"))
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    LOG.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)


def _quiet() -> bool:
    return LOG.level == logging.WARNING


class NoBar:
    """A bar that nobody sees: loading the real one takes a tenth of the time that a program needs to start."""

    initial: float = 0
    n: float = 0
    last_print_n: float = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def refresh(self) -> None:
        pass

    def update(self, _more: float) -> None:
        pass

    def clear(self) -> None:
        pass

    def set_postfix_str(self, _text: str) -> None:
        pass


def progress(total: int | None, desc: str, unit: str, narrow: bool = False) -> tqdm[NoReturn] | NoBar:
    """A progress bar on stderr; one that shows nothing where there is no terminal, or with -q.

    A `narrow` one leaves room for 28 columns of figures behind it, on a terminal of 80.
    """
    if _quiet() or not sys.stderr.isatty():
        return NoBar()
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=desc,
        unit=unit,
        unit_scale=narrow or unit == "B",  # 1.2 MB, but 1234 rows
        bar_format=NARROW if narrow else None,
        dynamic_ncols=True,
        leave=False,
    )


def emit_json(value: Any) -> None:
    """One line of JSON on stdout, in ASCII, so that nothing in it can steer a terminal."""
    sys.stdout.write(json.dumps(value, default=plain, separators=(", ", ": ")) + "\n")
