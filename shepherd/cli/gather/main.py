"""gather: the first run in one command. Gathers a few sites, or the toy web, and shows what came of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shepherd import config as configuration
from shepherd.cli.gather import cf as gather_cf
from shepherd.config import OWN_CF, CfPlace, Config
from shepherd.config.places import BY_DATABASE
from shepherd.console import cf_files, cf_place, common
from shepherd.console.shared import redact
from shepherd.errors import BadUrl, UsageError

if TYPE_CHECKING:
    from shepherd.cli.gather.cf import CfDraft
    from shepherd.filters import Filter
    from shepherd.urls import Url

PAGES: Final = 200
MOST_PAGES: Final = 1_000_000_000
MOST_MINUTES: Final = 525_600  # a year


def _minutes(_context: click.Context, _parameter: click.Parameter, minutes: float) -> float:
    if not 0 < minutes <= MOST_MINUTES:  # so written, it refuses what is not a number, too
        raise click.BadParameter(f"{minutes:g} is not more than 0 and at most {MOST_MINUTES:,}")
    return minutes


@click.command()
@click.argument("url_texts", nargs=-1, metavar="[URL]...")
@click.option(
    "--db", type=common.DIRECTORY, metavar="DIR", help="The database.  [default: $SHEPHERD_DB, else db; toy/db for the toy web]"
)
@click.option(
    "--pages",
    type=click.IntRange(1, MOST_PAGES),
    metavar="N",
    help=f"Stop after N pages.  [default: {PAGES}; the toy web has no limit]",
)
@click.option(
    "--minutes",
    type=float,
    callback=_minutes,
    default=5.0,
    show_default=True,
    metavar="N",
    help="Stop after N minutes.",
)
@click.option(
    "--scope",
    type=click.Choice(gather_cf.SCOPES),
    default=gather_cf.SITE,
    show_default=True,
    help="Stay on the sites of the URLs, include their subdomains, or go wherever links lead.",
)
@click.option(
    "--contact", metavar="ADDRESS", help="Mail address or page by which webmasters reach you.  [default: identity.contact]"
)
@common.standard
def command(
    url_texts: tuple[str, ...], db: Path | None, pages: int | None, minutes: float, scope: str, contact: str | None
) -> int:
    """Gather the sites of some URLs, and nothing else, up to a number of pages or minutes; or, without a URL, the toy web.

    It makes the database if there is none, with a cf/ of its own from your settings, which all programs then take for it. If you
    run it again it continues where it stopped, and the sites of earlier runs are still in scope; with --db and no URL it goes on
    with those alone. Its limits are those of one run. Servers are asked only as often as [politeness] allows, so a single site
    needs patience. Ctrl-C ends it in good order and still shows the summary. Exit status 4 if no page came at all.

    \b
    Examples:
      gather
      gather --pages 50 --contact me@example.org https://example.org/
      gather --scope subdomains --contact me@example.org https://example.org/
      gather --db db
    """
    from shepherd.cli.gather import toy as gather_toy

    if not url_texts and (db is None or gather_toy.is_home(db) or not gather_cf.is_there(db / OWN_CF)):
        return gather_toy.gather(db, pages, minutes * 60, contact)
    return _gather(configuration.find_db(db), [_url(text) for text in url_texts], scope, pages or PAGES, minutes * 60, contact)


def _url(text: str) -> Url:
    from shepherd import urls

    try:
        return urls.parse(text, strict=True)
    except BadUrl as error:
        raise UsageError(f"{redact(text)}: {error}") from error


def _gather(db: Path, urls: list[Url], kind: str, pages: int, seconds: float, contact: str | None) -> int:
    from shepherd.cli.gather.run import Gatherer, claim, create, finish, insert
    from shepherd.filters import parse_filter
    from shepherd.master.children import Signals

    lock, own_cf = claim(db), db / OWN_CF
    before = gather_cf.read(own_cf)
    narrowed = before if _has_scope_of_the_user(before, own_cf) else before.with_scope(urls, kind)
    filters = parse_filter(narrowed.filter_text, str(before.source / cf_files.FILTER))
    hrefs = _accepted(urls, filters, before.source / cf_files.FILTER)
    draft = narrowed.with_contact(_contact(urls, filters, before.config, contact or before.config.identity.contact))
    gatherer = Gatherer(db, lock or create(db, draft.filter_text), pages, seconds, Signals())  # a damaged database ends here
    draft.write(own_cf)
    config = configuration.load(own_cf)
    cf_place.note(db, CfPlace(own_cf, BY_DATABASE), config)
    if hrefs:
        insert(db, hrefs, config.merge.insert_weight)
    where = ", ".join(dict.fromkeys(url.norm for url in urls)) or "what is in scope"
    common.LOG.info("gathering %s into %s: one fetch in %g s from each server", where, db, config.politeness.delay_s)
    return finish(gatherer, gatherer.until_done(own_cf), own_cf, hrefs[0] if hrefs else "", refreshed=False)


def _has_scope_of_the_user(draft: CfDraft, own_cf: Path) -> bool:
    """A scope that the user has written for all his databases holds for this one as it stands: what is named must lie in it."""
    from shepherd.filters import parse_filter

    return draft.source != own_cf and parse_filter(draft.filter_text).scope is not None


def _contact(urls: list[Url], filters: Filter, user: Config, contact: str) -> str:
    """Who answers for this gatherer; asked for before anything but loopback is gathered."""
    if not contact and not (filters.scope and all(gather_cf.is_loopback(url.site, user) for url in urls)):
        contact = _ask_for_contact()
    if fault := configuration.contact_fault(contact):
        raise UsageError(f"the contact address {contact!r} {fault}")
    return contact


def _ask_for_contact() -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "a contact address is needed before other people's servers are asked: give --contact ADDRESS, "
            "or set contact in [identity] of cf/shepherd.toml"
        )
    click.echo(
        "Webmasters must be able to reach you: the address goes into every request. `--contact` gives it beforehand.", err=True
    )
    answer = str(click.prompt("Mail address or page", err=True)).strip()
    if not answer:
        raise UsageError("without a contact address no one's server is asked")
    return answer


def _accepted(urls: list[Url], filters: Filter, source: Path) -> list[str]:
    hrefs = [filters.strip(url.href) for url in urls]
    for href in hrefs:
        verdict = filters.judge(href)
        if not verdict.accepted:
            raise UsageError(f"{href}: {source} rejects it: {verdict.text}; change that line, or leave the URL out")
    return hrefs


def main() -> None:
    common.run(command)
