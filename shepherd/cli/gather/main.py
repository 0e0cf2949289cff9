"""gather: the first run in one command. Gathers a few sites, or the toy web, and shows what came of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shepherd import config as configuration
from shepherd.cli.gather import cf as gather_cf
from shepherd.cli.gather import scope as gather_scope
from shepherd.config import Config
from shepherd.console import cf_files, common
from shepherd.console.shared import clock_ms, many, redact
from shepherd.errors import BadUrl, UsageError

if TYPE_CHECKING:
    from shepherd.cli.gather.scope import Scope
    from shepherd.urls import Url

OWN_CF: Final = "cf"  # in a database: what gather wrote for it alone
PAGES: Final = 200
MOST_PAGES: Final = 1_000_000_000
MOST_MINUTES: Final = 525_600  # a year
WHY: Final = "Written by gather for this database: your own settings, and what is left of the limits of the last run."


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
    type=click.Choice(gather_scope.KINDS),
    default=gather_scope.SITE,
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

    It makes the database if there is none. If you run it again it continues where it stopped, and the sites of earlier runs are
    still allowed; with --db and no URL it continues with those alone. It reads your own cf/ but does not change it: settings for
    this database alone go to a cf/ of its own. Servers are asked only as often as [politeness] allows, so a single site needs
    patience. Ctrl-C ends it in good order and still shows the summary.

    \b
    Examples:
      gather
      gather --pages 50 --contact me@example.org https://example.org/
      gather --scope subdomains --contact me@example.org https://example.org/
      gather --db db
    """
    from shepherd.cli.gather import toy as gather_toy

    if not url_texts and (db is None or not gather_scope.read(db / OWN_CF)):
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
    from shepherd.equiv import load_equiv
    from shepherd.filters import load_filter
    from shepherd.master.children import Signals

    lock = claim(db)
    user_cf, own_cf = gather_cf.user_directory(), db / OWN_CF
    user = configuration.load(user_cf)
    load_filter(user.filter_path)  # its faults are reported with its own line numbers
    equiv_text = load_equiv(user.equiv_path).text
    scope = gather_scope.read(own_cf).with_sites((url.norm for url in urls), kind)
    contact = _contact(scope, user, contact or user.identity.contact or gather_cf.earlier_contact(own_cf))
    filter_text = scope.filter_text(cf_files.read_filter(user_cf))
    hrefs = _accepted(urls, filter_text, user_cf / cf_files.FILTER)
    settings = _settings(user_cf, user, contact)
    if lock is not None:
        _refuse_strangers(db, scope)

    def configure(pages: int, seconds: int) -> Path:
        limits = {"plan": {"max_pages": pages, "reap_s": seconds}}
        cf_files.write(own_cf, gather_cf.overlay(settings, limits), filter_text, WHY, equiv_text)
        return own_cf

    lock = lock or create(db, filter_text)
    gather_scope.write(own_cf, scope)
    if hrefs:
        insert(db, hrefs, user.merge.insert_weight)
    common.LOG.info("gathering %s into %s: one fetch in %g s from each server", scope, db, user.politeness.delay_s)
    gatherer = Gatherer(db, lock, pages, seconds, Signals())
    return finish(gatherer, gatherer.until_done(configure), own_cf, (hrefs or [f"http://{scope.norms[0]}/"])[0], refreshed=False)


def _refuse_strangers(db: Path, scope: Scope) -> None:
    """A filter keeps new URLs out but not known ones: pages outside the scope would be gathered or refreshed, too."""
    import numpy as np

    from shepherd.formats.tables import Flag, RowType
    from shepherd.store.state.database import Database
    from shepherd.urls import norm_of

    with Database(db).reading("gather", clock_ms()) as state:
        inside = {
            name for name in (raw_name.decode() for raw_name in state.site_names(0, state.sites.rows)) if scope.has(norm_of(name))
        }
        norms = np.array([state.prints.norm(name) for name in sorted(inside)], np.uint64)
        rows = state.index.slice(0, state.index.rows, ("norm", "type", "flags"))
        pages = (rows["type"] != RowType.FORGOTTEN) & ((rows["flags"] & Flag.ROBOTS) == 0)
        strange = int(np.count_nonzero(pages & ~np.isin(rows["norm"], norms)))
    if strange:
        raise UsageError(
            f"{db} has {many(strange, 'page')} of other sites, and gather would ask for them, too: give another --db, "
            "or --scope any, or use `shepherd cycle`"
        )


def _contact(scope: Scope, user: Config, contact: str) -> str:
    """Who answers for this gatherer; asked for before anything but loopback is gathered."""
    if not contact and not all(gather_cf.is_loopback(f"http://{norm}", user) for norm in scope.norms):
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


def _accepted(urls: list[Url], filter_text: str, source: Path) -> list[str]:
    from shepherd.filters import parse_filter

    filters = parse_filter(filter_text, f"{source}, behind the scope of gather")
    hrefs = [filters.strip(url.href) for url in urls]
    for href in hrefs:
        verdict = filters.judge(href)
        if not verdict.accepted:
            raise UsageError(f"{href}: {source} rejects it: {verdict.text}; change that line, or leave the URL out")
    return hrefs


def _settings(user_cf: Path, user: Config, contact: str) -> dict[str, dict[str, Any]]:
    """The user's settings, as they hold from another directory."""
    changes: dict[str, dict[str, Any]] = {"identity": {"contact": contact}} if contact else {}
    named = {
        "network": {"static": user.static_path, "hosts": user.hosts_path, "proxy_auth": user.proxy_auth_path},
        "fetch": {"ca_file": user.ca_path},
    }
    for section, paths in named.items():
        if resolved := {key: str(path.resolve()) for key, path in paths.items() if path is not None}:
            changes[section] = resolved
    return gather_cf.overlay(cf_files.read_tree(user_cf), changes)


def main() -> None:
    common.run(command)
