"""shep url: a URL as it is parsed, normalised and footprinted, before anything is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.config import Config
from shepherd.console import cf_place, common, shared
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.equiv import Equiv
    from shepherd.urls import Footprints


def _database(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    cf_place.find_db(context, path)
    return path


@click.command("url")
@click.argument("url_texts", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--db",
    type=common.DIRECTORY,
    callback=_database,
    is_eager=True,
    metavar="DIR",
    help="Also show the footprints under this database's key.",
)
@common.configured
@common.jsonable
@common.standard
def command(url_texts: tuple[str, ...], db: Path | None, config: Config, as_json: bool) -> None:
    """Show how a URL is read. The output has the URL as given and as parsed, its site, path and normalised site.

    The normalised site is that of its class, shown with the line of url-equiv that decides. The footprint is that of the
    database: it follows the classes that its newest state was made with.

    With `-` it reads URLs from stdin, one a line. A bad URL is reported with its reason and the others are processed, with exit
    status 2 at the end.

    \b
    Example:
      shep url 'HTTP://www.Example.org:80/a/../b?c#d'
    """
    from shepherd.equiv import load_equiv

    steps = _Steps(load_equiv(config.equiv_path), config.equiv_path, _of_database(db) if db is not None else None)
    shared.each_given(url_texts, as_json, lambda text: _show(steps.of(text), as_json))


def _of_database(db: Path) -> Footprints:
    """Footprints under the key of a database, by the equivalences that made its newest state."""
    with shared.reading(db, None) as state:
        return state.prints


@dataclass(frozen=True)
class _Steps:
    equiv: Equiv
    equiv_path: Path
    footprints: Footprints | None  # by what made the database, which may not be what cf/ says by now

    def of(self, text: str) -> dict[str, Any]:
        url = shared.parse_given(text)
        norm = self.equiv.norm_of(url.site)
        line = self.equiv.line_of(norm)  # a representative stands in the line of its class
        steps: dict[str, Any] = {"given": text, "parsed": url.href, "site": url.site, "path": url.path, "normalised site": norm}
        line_text = self.equiv.text.split("\n")[line - 1].strip() if line else ""
        steps["equivalence"] = {"file": self.equiv_path, "line": line, "text": line_text} if line else None
        if self.footprints is not None:
            halves = [kinds.FOOTPRINT.text(half) for half in self.footprints.of(url)]
            steps |= {"footprint": f"{halves[0]} {halves[1]}", "site footprint": halves[2]}
        return steps


def _show(steps: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.emit_json({key.replace(" ", "_"): value for key, value in steps.items()})
        return
    for key, value in steps.items():
        if key == "equivalence":
            value = value and "{file}, line {line}: {text}".format(**value)
        if value:
            click.echo(f"{key:<15}  {common.escape(value)}")
    click.echo()
