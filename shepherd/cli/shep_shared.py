"""What the subcommands of `shep` share: a leased state, URLs as an operator gives them, times and sizes as text."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from shepherd.cli import common
from shepherd.cli.common import LATEST_S
from shepherd.errors import BadUrl, UsageError

if TYPE_CHECKING:
    from shepherd.store.state import State
    from shepherd.urls import Url

R = TypeVar("R")

STDIN = "-"
MOST_SHOWN = 200  # characters of a line that is refused
_PASSWORD = re.compile(r"^(\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]*[^/\\?#@:]*):(?!\d*[/\\?#]).*@", re.IGNORECASE | re.DOTALL)
_BOM = b"\xef\xbb\xbf"
_AGE_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))


# --- the state --------------------------------------------------------------------------------------------------


def state_number(function: Callable[..., R]) -> Callable[..., R]:
    """--state N, as `number: int | None`."""
    text = "Read this closed state.  [default: the newest]"
    return click.option("--state", "number", type=click.IntRange(1), metavar="N", help=text)(function)


@contextlib.contextmanager
def reading(db: Path, number: int | None) -> Iterator[State]:
    """A closed state, leased in the name of the running subcommand."""
    from shepherd.store.database import Database

    with Database(db).reading(click.get_current_context().command_path, clock_ms(), number) as state:
        yield state


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


# --- URLs as given ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A URL as an operator wrote it, and where: `FILE:LINE`, or nothing on the command line."""

    text: str
    where: str = ""


def given_lines(file: str) -> Iterator[Given]:
    """The URLs of a file, or of stdin for `-`: one a line; blank lines and those that begin with # are comments."""
    with open(file, "rb") if file != STDIN else contextlib.nullcontext(sys.stdin.buffer) as stream:
        for number, line in enumerate(stream, 1):
            line = line.removeprefix(_BOM) if number == 1 else line
            text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            if text.strip() and not text.startswith("#"):
                yield Given(text, f"{'stdin' if file == STDIN else file}:{number}")


def each_given(given: tuple[str, ...], as_json: bool, show: Callable[[str], None]) -> None:
    """Show each URL of the arguments, and for `-` of stdin; bad ones are told with their reasons, and a UsageError at the end."""
    total = bad = 0
    for one in itertools.chain.from_iterable(given_lines(STDIN) if text == STDIN else [Given(text)] for text in given):
        total += 1
        try:
            show(one.text)
        except BadUrl as error:
            bad += 1
            if as_json:
                common.emit_json({"given": common.escape(shown(one.text)), "where": one.where, "error": str(error)})
            else:
                common.LOG.warning("%s%s: %s", f"{one.where}: " if one.where else "", shown(one.text), error)
    if bad:
        raise UsageError(f"{bad} of {many(total, 'URL')} cannot be used, for the reasons above")


def parse_given(text: str) -> Url:
    """What an operator wrote, strictly read; BadUrl gives the reason."""
    from shepherd import urls

    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadUrl("not UTF-8") from None
    return urls.parse(text, strict=True)


def shown(text: str) -> str:
    """What was refused, as it may stand in a message or a log: without a password, and cut where it is long."""
    text = _PASSWORD.sub(r"\1:...@", text)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


# --- times and sizes as text ------------------------------------------------------------------------------------


def iso(seconds: int) -> str:
    """A time, in UTC; nothing for 0, which is never. One that no column could hold is shown as the latest that can."""
    return datetime.fromtimestamp(min(seconds, LATEST_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def span(seconds: int) -> str:
    """A duration, in the largest unit of which it has at least two."""
    unit, name = next((unit, name) for least, unit, name in _AGE_UNITS if seconds >= least)
    return f"{seconds // unit} {name}"


def moment(seconds: int, now: int) -> str:
    """A time and how far it is from now."""
    if not seconds:
        return "never"
    return f"{iso(seconds)} ({span(now - seconds)} ago)" if seconds <= now else f"{iso(seconds)} (in {span(seconds - now)})"


def many(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes, in the unit that keeps the number short."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:.1f} TB"
