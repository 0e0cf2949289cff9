"""shep scope: what is in scope, shown and changed: the `only` lines of the filter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.console import cf_place, common
from shepherd.console.shared import many
from shepherd.errors import NothingToDo, UsageError

if TYPE_CHECKING:
    from shepherd.filters.scope_lines import ScopeWord


@click.group("scope")
def command() -> None:
    """Show and change what is in scope, in the filter of a database's configuration.

    HOST is a site, under http and https, with and without www.; HOST:PORT is it on that port; *.HOST is the host and all below
    it. URL is all that begins so; SURT is the same with the name backwards: http://(org,example, is example.org and all below it.
    """


@command.command("list")
@common.database_of_cf
@common.filter_directory
@common.jsonable
@common.standard
def list_command(cf: Path, as_json: bool) -> None:
    """List what is in scope: each word of an `only` line, with its line. Exit status 4 if the filter does not say.

    \b
    Example:
      shep scope list --db db
    """
    from shepherd.filters import load_filter
    from shepherd.filters.scope_lines import read_words

    path, text = _read(cf)
    filters = load_filter(path)
    for word in read_words(text, str(path)):
        if as_json:
            common.emit_json({"kind": word.kind, "pattern": word.word, "file": str(path), "line": word.line})
        else:
            click.echo(common.escape(f"{word}  ({path}, line {word.line})"))
    if not filters.is_bounded:
        raise NothingToDo(f"{path} {cf_place.UNBOUNDED}")
    if filters.scope is None:
        common.LOG.info("%s has no `only` line: all that its other lines accept is in scope", path)


@command.command("add")
@click.argument("texts", nargs=-1, required=True, metavar="HOST|URL|SURT...")
@common.database_of_cf
@common.filter_directory
@common.standard
def add(texts: tuple[str, ...], cf: Path) -> None:
    """Put hosts, beginnings of URLs or SURT prefixes in scope. From then on nothing outside of what was added is gathered.

    \b
    Examples:
      shep scope add --db db example.org '*.example.net'
      shep scope add --db db https://example.com/docs/ 'http://(edu,example,'
    """
    from shepherd.filters.scope_lines import with_words

    _change(cf, texts, with_words, "in scope already")


@command.command("remove")
@click.argument("texts", nargs=-1, required=True, metavar="HOST|URL|SURT...")
@common.database_of_cf
@common.filter_directory
@common.standard
def remove(texts: tuple[str, ...], cf: Path) -> None:
    """Take out of scope what was added, as `shep scope list` shows it or as it was given. Exit status 4 if nothing was there.

    \b
    Example:
      shep scope remove --db db example.org
    """
    from shepherd.filters.scope_lines import without_words

    _change(cf, texts, without_words, "not in an `only` line")


def _change(cf: Path, texts: tuple[str, ...], edit: Callable[[str, list[ScopeWord]], str], why_none: str) -> None:
    from shepherd.filters import parse_filter
    from shepherd.filters.scope_lines import parse_word, read_words
    from shepherd.store.disk import fsio

    words = [parse_word(text) for text in texts]
    path, text = _read(cf)
    before = parse_filter(text, str(path))
    changed = edit(text, words)
    if changed == text:
        raise NothingToDo(f"{path}: {', '.join(texts)}: {why_none}")
    filters = parse_filter(changed, str(path))
    fsio.replace_file(path, changed.encode())
    common.LOG.info("%s: %s now, from the next cycle on", path, many(len(read_words(changed, str(path))), "place") + " in scope")
    if before.scope is not None and not filters.is_bounded:
        common.LOG.warning("%s %s", path, cf_place.UNBOUNDED)


def _read(cf: Path) -> tuple[Path, str]:
    from shepherd.console import cf_files

    if not cf.is_dir():
        raise UsageError(f"{cf}: no such directory; name that of the filter with --cf, or make one with shep-init")
    return cf / cf_files.FILTER, cf_files.read_filter(cf)
