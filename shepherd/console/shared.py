"""What the subcommands of `shep` share: a leased state, URLs as an operator gives them, the words of shepherd.report."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from shepherd.console import common
from shepherd.errors import BadUrl, UsageError
from shepherd.text import iso as iso
from shepherd.text import many as many
from shepherd.text import moment as moment
from shepherd.text import parse_given as parse_given
from shepherd.text import redact as redact
from shepherd.text import size as size
from shepherd.text import span as span

if TYPE_CHECKING:
    from shepherd.store.state.directory import State

R = TypeVar("R")

STDIN = "-"
HEARD_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


# --- the state --------------------------------------------------------------------------------------------------


def state_number(function: Callable[..., R]) -> Callable[..., R]:
    """--state N, as `number: int | None`."""
    text = "Read this closed state.  [default: the newest]"
    return click.option("--state", "number", type=click.IntRange(1), metavar="N", help=text)(function)


@contextlib.contextmanager
def reading(db: Path, number: int | None) -> Iterator[State]:
    """A closed state, leased in the name of the running subcommand."""
    from shepherd.store.state.database import Database

    with Database(db).reading(click.get_current_context().command_path, clock_ms(), number) as state:
        yield state


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


# --- URLs as given ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenUrl:
    """A URL as an operator wrote it, and where: `FILE:LINE`, or nothing on the command line."""

    text: str
    where: str = ""


def given_lines(file: str, on_bytes: Callable[[int], object] = lambda _count: None) -> Iterator[GivenUrl]:
    """The URLs of a file, or of stdin for `-`: one a line; blank lines and those that begin with # are comments. `on_bytes` gets
    the number of bytes read since the last call."""
    unheard = 0
    with open(file, "rb") if file != STDIN else contextlib.nullcontext(sys.stdin.buffer) as stream:
        for number, line in enumerate(stream, 1):
            unheard += len(line)
            if unheard >= HEARD_BYTES:
                on_bytes(unheard)
                unheard = 0
            line = line.removeprefix(_BOM) if number == 1 else line
            text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            if text.strip() and not text.startswith("#"):
                yield GivenUrl(text, f"{'stdin' if file == STDIN else file}:{number}")


def each_given(texts: tuple[str, ...], as_json: bool, show: Callable[[str], None]) -> None:
    """Show each URL of the arguments, and for `-` of stdin; bad ones are reported, and are a UsageError at the end."""
    total = bad = 0
    for url in itertools.chain.from_iterable(given_lines(STDIN) if text == STDIN else [GivenUrl(text)] for text in texts):
        total += 1
        try:
            show(url.text)
        except BadUrl as error:
            bad += 1
            if as_json:
                common.emit_json({"given": common.escape(redact(url.text)), "where": url.where, "error": str(error)})
            else:
                common.LOG.warning("%s%s: %s", f"{url.where}: " if url.where else "", redact(url.text), error)
    if bad:
        raise UsageError(f"{bad} of {many(total, 'URL')} cannot be used, for the reasons above")
