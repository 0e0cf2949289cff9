"""shep url: what becomes of a URL before anything is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common
from shepherd.cli import shep_shared as shared
from shepherd.cli.shep_shared import Given
from shepherd.errors import BadUrl, UsageError

if TYPE_CHECKING:
    from shepherd.urls import Footprints


@click.command("url")
@click.argument("given", nargs=-1, required=True, metavar="URL...")
@click.option("--db", type=common.DIRECTORY, metavar="DIR", help="Also show the footprints under this database's key.")
@common.jsonable
@common.standard
def command(given: tuple[str, ...], db: Path | None, as_json: bool) -> None:
    """Show each URL as given, as parsed, its site, path and normalised site.

    With `-`, URLs are read from stdin, one a line. A bad one is reported with its reason, the others are still done, and the exit
    status is 2 at the end.

    \b
    Example:
      shep url 'HTTP://www.Example.org:80/a/../b?c#d'
    """
    footprints = _footprints(db) if db is not None else None
    total = bad = 0
    for one in _all(given):
        total += 1
        try:
            _show(_steps(one.text, footprints), as_json)
        except BadUrl as error:
            bad += 1
            if as_json:
                common.emit_json({"given": common.escape(shared.shown(one.text)), "where": one.where, "error": str(error)})
            else:
                common.LOG.warning("%s%s: %s", f"{one.where}: " if one.where else "", shared.shown(one.text), error)
    if bad:
        raise UsageError(f"{bad} of {shared.many(total, 'URL')} cannot be used, for the reasons above")


def _all(given: tuple[str, ...]) -> Iterator[Given]:
    for text in given:
        if text == shared.STDIN:
            yield from shared.given_lines(shared.STDIN)
        else:
            yield Given(text)


def _footprints(db: Path) -> Footprints:
    from shepherd.urls import Footprints

    with shared.reading(db, None) as state:
        return Footprints(state.control.key)


def _steps(text: str, footprints: Footprints | None) -> dict[str, Any]:
    url = shared.parse_given(text)
    steps = {"given": text, "parsed": url.href, "site": url.site, "path": url.path, "normalised site": url.norm}
    if footprints is not None:
        norm, path, site = (f"{half:016x}" for half in footprints.of(url))
        steps |= {"footprint": f"{norm} {path}", "site footprint": site}
    return steps


def _show(steps: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.emit_json({key.replace(" ", "_"): value for key, value in steps.items()})
        return
    for key, value in steps.items():
        click.echo(f"{key:<15}  {common.escape(value)}")
    click.echo()
