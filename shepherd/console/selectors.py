"""Selectors: the options that say which rows a command means. Every one narrows what the others leave.

    @click.command("list")
    @selectors.selecting
    ...
    def command(selection: Selection, db: Path) -> None:
        with shared.reading(db, None) as state:
            for rows in selectors.selected_rows(state, selection): ...

selection_rows.py finds the rows.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from shepherd import sections
from shepherd.console import common, selector_words, shared
from shepherd.console.selection_rows import selected_rows
from shepherd.console.selector_words import REASONS, TYPES
from shepherd.console.shared import GivenUrl

__all__ = ["FILE", "Selection", "selected_rows", "selecting"]

R = TypeVar("R")

FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


@dataclass(frozen=True)
class Selection:
    """What the options say; None and empty leave nothing out."""

    urls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    site: str | None = None
    server: int | None = None
    types: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[range, ...] = ()
    sections: tuple[int, ...] = ()
    older: int | None = None  # seconds before `now`
    newer: int | None = None
    weights: tuple[int, int] | None = None
    glob: str | None = None
    now: int = 0

    @property
    def by_url(self) -> bool:
        return bool(self.urls or self.files)

    @property
    def by_selector(self) -> bool:
        """Whether rows are meant that nobody has named."""
        return bool(self.words()) and not self.by_url

    def given_urls(self) -> Iterator[GivenUrl]:
        """The URLs of the command line and of the files."""
        yield from map(GivenUrl, self.urls)
        for file in self.files:
            yield from shared.given_lines(file)

    def words(self) -> list[str]:
        """The selectors as somebody would write them again; not the URLs."""
        words = []
        for option in OPTIONS:
            value = getattr(self, option.name)
            for item in value if option.many else () if value is None else (value,):
                words += [option.flag, selector_words.written(option.flag, item)] if option.name != "files" else []
        return words


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """An option whose text is read by a function that raises ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{shared.redact(value)!r}: {error}", param, ctx)


SECTION = Parsed("section", sections.section_number)


@dataclass(frozen=True)
class _Option:
    flag: str
    name: str
    type: Any
    metavar: str
    help: str
    many: bool = False


_AGE, _GLOB, _SERVER = (Parsed(name, getattr(selector_words, f"read_{name}")) for name in ("age", "glob", "server"))
_STATUS, _WEIGHTS = (Parsed(name, getattr(selector_words, f"read_{name}")) for name in ("status", "weights"))
_AGAIN = "; may be repeated"
OPTIONS = (
    _Option("--site", "site", None, "HOST|URL", "Only this site; scheme and www. make no difference."),
    _Option("--server", "server", _SERVER, "ADDRESS", "Only sites on this server."),
    _Option("--type", "types", click.Choice(TYPES), "TYPE", f"Only rows of this type: {', '.join(TYPES)}{_AGAIN}.", True),
    _Option("--reason", "reasons", click.Choice(REASONS), "REASON", f"Only this reason, such as robots-denied{_AGAIN}.", True),
    _Option("--status", "statuses", _STATUS, "N|Nxx", f"Only this HTTP status, or class of them: 404, 5xx{_AGAIN}.", True),
    _Option("--section", "sections", SECTION, "NAME", f"Only this section, by name or number{_AGAIN}.", True),
    _Option("--older", "older", _AGE, "AGE", "Only URLs last checked longer ago than this: 45s, 90m, 12h, 30d, 2w."),
    _Option("--newer", "newer", _AGE, "AGE", "Only URLs last checked not longer ago than this."),
    _Option("--weight", "weights", _WEIGHTS, "MIN..MAX", "Only these weights; you may leave out one end."),
    _Option("--glob", "glob", _GLOB, "PATTERN", "Only URLs that match: * is any text, ? is one character."),
    _Option("--file", "files", FILE, "FILE", f"Only the URLs of this file, one a line; - is stdin{_AGAIN}.", True),
)  # fmt: skip


def selecting(function: Callable[..., R]) -> Callable[..., R]:
    """[URL]..., the options, and --now for the ages, as `selection: Selection`."""

    @functools.wraps(function)
    def selected(*args: Any, urls: tuple[str, ...], now: int | None, **kwargs: Any) -> R:
        values = {option.name: kwargs.pop(option.name) for option in OPTIONS}
        selection = Selection(urls=urls, now=int(time.time()) if now is None else now, **values)
        return function(*args, selection=selection, **kwargs)

    text = "Count ages as if the clock showed this many seconds since 1970."
    decorated = click.option("--now", type=click.IntRange(0, common.LATEST_S), metavar="SECONDS", help=text)(selected)
    for option in reversed(OPTIONS):
        flags = ("-f", option.flag) if option.name == "files" else (option.flag,)
        decorated = click.option(
            *flags, option.name, multiple=option.many, type=option.type, metavar=option.metavar, help=option.help
        )(decorated)
    return click.argument("urls", nargs=-1, metavar="[URL]...")(decorated)
