"""shep robots: what a robots.txt says of a URL, and by which group and line: the one that is stored, or a file at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shepherd import config as configuration
from shepherd.config import Config
from shepherd.console import common, shared

if TYPE_CHECKING:
    from shepherd.filters import Filter
    from shepherd.report.robots import RobotsVerdict
    from shepherd.store.state.directory import State

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
MOST_SITEMAPS: Final = 20  # that are shown as text


def _agent(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and (fault := configuration.agent_fault(name)):
        raise click.BadParameter(f"{name!r} {fault}")
    return name


@click.command("robots")
@click.argument("url_texts", nargs=-1, required=True, metavar="URL...")
@click.option("--file", "file", type=FILE, metavar="FILE", help="Judge by this file, not by those in the database.")
@click.option("--agent", callback=_agent, metavar="NAME", help="Judge for this product token.  [default: identity.name]")
@common.database
@common.configured
@shared.state_number
@common.jsonable
@common.standard
def command(
    url_texts: tuple[str, ...], file: Path | None, agent: str | None, db: Path, config: Config, number: int | None, as_json: bool
) -> None:
    """Show whether robots.txt allows a URL. The output says which file, group and line decide.

    The file is the stored one of the URL's own site: http and https, with and without www., each have their own. The output has
    its version (when it was last checked and stored, its status and digest), the User-agent line of the group that applies, the
    line that decides, its Crawl-delay and its sitemaps. Nobody is contacted.

    With --file it needs no database, and judges the URLs by that file, as if their sites had it.

    With `-` it reads URLs from stdin, one a line. A bad URL is reported with its reason and the others are processed, with exit
    status 2 at the end.

    \b
    Examples:
      shep robots https://example.org/private/x
      shep robots --file robots.txt --agent examplebot https://example.org/a https://example.org/b
      shep robots --json - < urls.txt | jq -r 'select(.verdict == "denied") | .url'
    """
    token = config.identity.name if agent is None else agent
    if file is not None:
        body = file.read_bytes()
        shared.each_given(url_texts, as_json, lambda text: _show(_by_file(text, file, body, token), as_json))
        return
    from shepherd.filters import load_filter

    filter_ = load_filter(config.filter_path)
    with shared.reading(db, number) as state:
        shared.each_given(url_texts, as_json, lambda text: _show(_by_state(text, state, filter_, token), as_json))


def _by_file(text: str, file: Path, body: bytes, agent: str) -> RobotsVerdict:
    from shepherd.report.robots import digest_of, judge
    from shepherd.robots import MAX_BYTES

    cut = {"note": f"only its first {MAX_BYTES} bytes count"} if len(body) > MAX_BYTES else {}
    return judge(shared.parse_given(text), agent, {"file": file, "bytes": len(body), "digest": digest_of(body)} | cut, body)


# --- by what is stored ------------------------------------------------------------------------------------------


def _by_state(text: str, state: State, filter_: Filter, agent: str) -> RobotsVerdict:
    from shepherd import urls
    from shepherd.report.robots import of_state

    return of_state(urls.parse(filter_.strip(shared.parse_given(text).href)), state, filter_, agent)


# --- telling ----------------------------------------------------------------------------------------------------


def _show(verdict: RobotsVerdict, as_json: bool) -> None:
    from shepherd.report.robots import as_object, file_lines

    if as_json:
        common.emit_json(as_object(verdict))
        return
    more = len(verdict.sitemaps) - MOST_SITEMAPS
    pairs: list[tuple[str, str]] = [("url", verdict.url), ("agent", verdict.agent)]
    if verdict.file is not None:
        pairs += [("file", ", ".join(file_lines(verdict.file)))]
    for name, value in (("group", verdict.group), ("line", verdict.line)):
        pairs += [(name, f"line {value[0]}: {value[1]}")] if value else []
    pairs += [("crawl delay", f"{verdict.crawl_delay_s:g} s")] if verdict.crawl_delay_s is not None else []
    pairs += [("sitemap", sitemap) for sitemap in verdict.sitemaps[:MOST_SITEMAPS]]
    pairs += [("sitemap", f"and {more} more")] if more > 0 else []
    pairs += [("verdict", f"{verdict.verdict}: {verdict.why}")]
    for label, text in pairs:
        click.echo(f"{label:<11}  {common.escape(text)}")
    click.echo()
