"""shep robots: what a robots.txt says of a URL, and by which group and line: the one that is stored, or a file at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd import config as configuration
from shepherd.cli import common
from shepherd.cli import shep_shared as shared
from shepherd.config import Config

if TYPE_CHECKING:
    from shepherd.filters import Filter
    from shepherd.store.state import State
    from shepherd.urls import Url

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
MOST_SITEMAPS: Final = 20  # that are shown as text


def _agent(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None and (fault := configuration.agent_fault(given)):
        raise click.BadParameter(f"{given!r} {fault}")
    return given


@click.command("robots")
@click.argument("given", nargs=-1, required=True, metavar="URL...")
@click.option("--file", "file", type=FILE, metavar="FILE", help="Judge by this file, and not by what the database has stored.")
@click.option("--agent", callback=_agent, metavar="NAME", help="Judge for this product token.  [default: identity.name]")
@common.database
@common.configured
@shared.state_number
@common.jsonable
@common.standard
def command(
    given: tuple[str, ...], file: Path | None, agent: str | None, db: Path, config: Config, number: int | None, as_json: bool
) -> None:
    """Tell whether robots.txt lets a URL be gathered, and which file, group and line decide.

    The file is the one that is stored for the URL's own site: http and https, with and without www., each have their own. Shown
    are its version (when it was last checked and stored, its status and digest), the User-agent line of the group that speaks to
    us, the line that decides, its Crawl-delay and its sitemaps. Nobody is asked anything.

    With --file no database is needed: the URLs are judged by that file, as if their sites had it.

    With `-`, URLs are read from stdin, one a line. A bad one is reported with its reason, the others are still done, and the exit
    status is 2 at the end.

    \b
    Examples:
      shep robots https://example.org/private/x
      shep robots --file robots.txt --agent examplebot https://example.org/a https://example.org/b
      shep robots --json - < urls.txt | jq -r 'select(.verdict == "denied") | .url'
    """
    token = config.identity.name if agent is None else agent
    if file is not None:
        body = file.read_bytes()
        shared.each_given(given, as_json, lambda text: _show(_by_file(text, file, body, token), as_json))
        return
    from shepherd.filters import load_filter

    filter_ = load_filter(config.filter_path)
    with shared.reading(db, number) as state:
        shared.each_given(given, as_json, lambda text: _show(_by_state(text, state, filter_, token), as_json))


@dataclass(frozen=True)
class Judged:
    """`verdict` is allowed, denied, not asked (no robots.txt is known) or not known (a redirect leads elsewhere)."""

    url: str
    site: str
    agent: str
    file: dict[str, Any] | None  # which robots.txt
    verdict: str
    why: str
    group: tuple[int, str] | None = None  # number and text of its User-agent line
    line: tuple[int, str] | None = None  # that decides
    crawl_delay_s: float | None = None
    sitemaps: list[str] = field(default_factory=list)


def _by_file(text: str, file: Path, body: bytes, agent: str) -> Judged:
    from shepherd.net.robots import MAX_BYTES

    cut = {"note": f"only its first {MAX_BYTES} bytes count"} if len(body) > MAX_BYTES else {}
    return judge(shared.parse_given(text), agent, {"file": file, "bytes": len(body), "digest": _digest(body)} | cut, body)


def _digest(body: bytes) -> str:
    import hashlib

    return hashlib.sha256(body).hexdigest()


def judge(url: Url, agent: str, file: dict[str, Any], body: bytes) -> Judged:
    """What a robots.txt says of a URL; `file` is what is to be told of the file itself."""
    from shepherd.net import robots

    rules = robots.parse_robots(body, agent)
    allowed, number, line = rules.decide(url.path)
    headings = robots.headings(body, agent)
    above = [heading for heading in headings if not number or heading[0] < number]
    why = "its longest pattern that matches decides" if number else "no line of its group matches"
    return Judged(
        url=url.href,
        site=url.site,
        agent=agent,
        file=file,
        verdict="allowed" if allowed else "denied",
        why=why if headings else "no group speaks to this agent",
        group=above[-1] if above else None,
        line=(number, line) if number else None,
        crawl_delay_s=rules.crawl_delay_s,
        sitemaps=rules.sitemaps,
    )


# --- by what is stored ------------------------------------------------------------------------------------------


def _by_state(text: str, state: State, filter_: Filter, agent: str) -> Judged:
    from shepherd import urls

    return of_state(urls.parse(filter_.strip(shared.parse_given(text).href)), state, filter_, agent)


def of_state(url: Url, state: State, filter_: Filter, agent: str) -> Judged:
    """What the robots.txt that a state has stored for the URL's own site says of it."""
    from shepherd.store import lookup

    row = lookup.site_row(state, state.prints.half(url.site))
    if row is None:
        return Judged(
            url.href, url.site, agent, None, "not asked", "its site is not known: no page of it was ever inserted or found"
        )
    site = {name: column.at(row) for name, column in ((n, state.sites[n]) for n in _COLUMNS)}
    file: dict[str, Any] = {
        "url": f"{url.site}/robots.txt",
        "state": state.number,
        "status": site["robots_status"] or None,
        "checked": shared.iso(site["robots_checked"]) or None,
        "next": shared.iso(site["robots_next"]) or None,
    }
    ignored = next((line for line in filter_.told(url.site, site["qkey"]) if line.name == "robots" and line.value), None)
    if ignored is not None:
        why = f"line {ignored.line} of the filter ignores its robots.txt: {ignored.text}"
        return Judged(url.href, url.site, agent, file, "allowed", why)
    if site["robots_since"]:
        why = f"it has been unreachable since {shared.iso(site['robots_since'])}, so nothing is gathered until it answers"
        return Judged(url.href, url.site, agent, file, "denied", why)
    if not site["robots_checked"]:
        return Judged(
            url.href, url.site, agent, file, "not asked", "it has not been asked for yet; the first reap of the site does"
        )
    return _by_bucket(url, state, agent, file, site["robots_oid"])


_COLUMNS: Final = ("qkey", "robots_oid", "robots_status", "robots_checked", "robots_next", "robots_since")


def _by_bucket(url: Url, state: State, agent: str, file: dict[str, Any], oid: int) -> Judged:
    from shepherd.formats.tables import CONTRIB_BIT
    from shepherd.net.robots import MAX_BYTES

    status = file["status"] or 0
    if oid >= CONTRIB_BIT:
        if 200 <= status < 300:
            why = "no copy of it is stored; the next reap of the site asks for it"
            return Judged(url.href, url.site, agent, file, "not known", why)
        return Judged(url.href, url.site, agent, file, "allowed", f"status {status} counts as no robots.txt at all")
    stored = state.objects.get(oid)
    file["gathered"] = shared.iso(stored.header.time_ms // 1_000) or None
    if "E" in stored.attributes:
        target = common.escape(stored.attributes["E"])
        return Judged(url.href, url.site, agent, file, "not known", f"it redirects to {target}, which each reap asks for anew")
    body = stored.body(MAX_BYTES)
    file |= {"bytes": len(body), "digest": _digest(body)}
    return judge(url, agent, file, body)


# --- telling ----------------------------------------------------------------------------------------------------


def _show(judged: Judged, as_json: bool) -> None:
    if as_json:
        common.emit_json(as_object(judged))
        return
    more = len(judged.sitemaps) - MOST_SITEMAPS
    pairs: list[tuple[str, str]] = [("url", judged.url), ("agent", judged.agent)]
    if judged.file is not None:
        pairs += [("file", ", ".join(told(judged.file)))]
    for name, value in (("group", judged.group), ("line", judged.line)):
        pairs += [(name, f"line {value[0]}: {value[1]}")] if value else []
    pairs += [("crawl delay", f"{judged.crawl_delay_s:g} s")] if judged.crawl_delay_s is not None else []
    pairs += [("sitemap", one) for one in judged.sitemaps[:MOST_SITEMAPS]]
    pairs += [("sitemap", f"and {more} more")] if more > 0 else []
    pairs += [("verdict", f"{judged.verdict}: {judged.why}")]
    for label, text in pairs:
        click.echo(f"{label:<11}  {common.escape(text)}")
    click.echo()


def as_object(judged: Judged) -> dict[str, Any]:
    """For JSON."""
    lines = {
        name: {"number": value[0], "text": common.escape(value[1])} if value else None
        for name, value in (("group", judged.group), ("line", judged.line))
    }
    return vars(judged) | lines | {"sitemaps": [common.escape(one) for one in judged.sitemaps]}


def told(file: dict[str, Any]) -> list[str]:
    """The version of a robots.txt, in words."""
    first = [str(file[name]) for name in ("url", "file", "note") if file.get(name)]
    return first + [
        f"{name} {file[name]}" for name in ("status", "checked", "gathered", "next", "bytes", "digest") if file.get(name)
    ]
