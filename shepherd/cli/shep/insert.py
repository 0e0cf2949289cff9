"""shep insert: leave URLs in the inbox, to be taken in by the next merge."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli.shep import change_log as changelog
from shepherd.cli.shep.edit_requests import NEXT_CYCLE
from shepherd.config import Config
from shepherd.console import cf_place, common, shared
from shepherd.console.selectors import FILE, SECTION
from shepherd.console.shared import GivenUrl
from shepherd.errors import BadUrl, NothingToDo, UsageError

if TYPE_CHECKING:
    from typing import NoReturn

    from tqdm import tqdm

    from shepherd.filters import Filter

    Bar = tqdm[NoReturn] | common.NoBar


REMEMBERED = 1_000_000  # URLs that are not written twice; a merge takes equal ones for one


@dataclass
class _InsertCounts:
    """What became of the URLs so far."""

    total: int = 0
    inserted: int = 0
    refused: int = 0


@click.command("insert")
@click.argument("url_texts", nargs=-1, metavar="[URL]...")
@click.option(
    "-f", "--file", "files", multiple=True, type=FILE, metavar="FILE", help="Read URLs from this file, one a line; - is stdin."
)
@click.option(
    "--sitemap",
    "sitemaps",
    multiple=True,
    metavar="URL",
    help="Insert a sitemap, a sitemap index, a feed or a list of URLs, pinned; may be repeated.",
)
@click.option(
    "--weight", type=click.IntRange(0, 65_535), metavar="N", help="0 worst, 65535 best.  [default: merge.insert_weight]"
)
@click.option("--section", type=SECTION, metavar="NAME", help="By name or number.  [default: by the filter]")
@click.option("--pinned", is_flag=True, help="Exempt them from all limits.")
@click.option("--dry-run", is_flag=True, help="Judge and count the URLs; leave nothing in the inbox.")
@common.database
@common.configured
@common.jsonable
@common.standard
def command(
    url_texts: tuple[str, ...],
    files: tuple[str, ...],
    sitemaps: tuple[str, ...],
    weight: int | None,
    section: int | None,
    pinned: bool,
    dry_run: bool,
    db: Path,
    config: Config,
    as_json: bool,
) -> None:
    """Insert URLs.

    It needs no lock, and works while a cycle runs: it leaves one item in the inbox, which the next cycle takes in when it starts.
    A URL that is bad, or that the filter rejects, is reported with its reason; the others are inserted, with exit status 2 at the
    end. In a file, blank lines and lines that begin with # are skipped. A known URL that is an error becomes due.

    A sitemap is gathered as a document, and stays pinned, so it is read again whenever it is due. The merge after the reap that
    has read it adds the URLs that it lists, like links: with a weight a little below that of the sitemap, as far as filter and
    limits allow. So they are gathered a cycle later.

    \b
    Examples:
      shep insert https://example.org/
      shep insert --sitemap https://example.org/sitemap.xml --weight 50000
      shep insert --pinned --weight 60000 -f seeds.txt
      generate-urls | shep insert -f - --dry-run
    """
    from shepherd.filters import load_filter
    from shepherd.store.state.database import Database
    from shepherd.store.state.inserts import InsertDraft

    if not url_texts and not files and not sitemaps:
        raise click.UsageError("give URLs, or a file of URLs with -f FILE, or a sitemap with --sitemap URL")
    by, filter_ = changelog.who(), load_filter(config.filter_path)
    database, counts, is_kept = Database(db), _InsertCounts(), False
    item = database.new_item_name(shared.clock_ms())
    weight = config.merge.insert_weight if weight is None else weight
    with _bar(files) as bar:
        accepted = _accepted_ones(_all(url_texts, files, sitemaps, bar), filter_, config, as_json, counts)
        leaving = (
            contextlib.nullcontext() if dry_run else InsertDraft(database.inbox.directory, item, database.key(), filter_, by)
        )
        with leaving as draft:
            for site, href, is_sitemap in accepted:
                if draft is not None:
                    draft.add(site, href, weight=weight, section=section, pinned=pinned or is_sitemap)
            if not counts.total:
                raise NothingToDo("no URL was given")
            if counts.inserted and draft is not None:
                draft.keep()
                is_kept = True
    if counts.inserted and not filter_.is_bounded:
        common.LOG.warning("%s %s", config.filter_path, cf_place.UNBOUNDED)
    if is_kept:
        words = [word for url in sitemaps for word in ("--sitemap", url)]
        settings = {"weight": weight} | ({} if section is None else {"section": section}) | {"pinned": pinned}
        changelog.note(db, "insert", settings, words, url_texts, files, counts.inserted, item)
    _print_result(counts, item if is_kept else None, dry_run, as_json)


def _bar(files: tuple[str, ...]) -> contextlib.AbstractContextManager[Bar]:
    """A bar over the bytes of the files; without a total where one of them has no length."""
    if not files:
        return contextlib.nullcontext(common.NoBar())
    lengths = [os.stat(file).st_size if os.path.isfile(file) else None for file in files]
    total = None if None in lengths else sum(length or 0 for length in lengths)
    return common.progress(total, "shep insert", "B")


def _all(
    url_texts: tuple[str, ...], files: tuple[str, ...], sitemaps: tuple[str, ...], bar: Bar
) -> Iterator[tuple[GivenUrl, bool]]:
    """All URLs as they were given, and whether each is that of a sitemap."""
    for url in url_texts:
        yield GivenUrl(url), False
    for file in files:
        for line in shared.given_lines(file, bar.update):
            yield line, False
    for url in sitemaps:
        yield GivenUrl(url), True


def _accepted_ones(
    urls: Iterator[tuple[GivenUrl, bool]], filter_: Filter, config: Config, as_json: bool, counts: _InsertCounts
) -> Iterator[tuple[str, str, bool]]:
    """The good ones, once each, with their sites; the others are reported."""
    hrefs_seen: set[str] = set()
    for url, is_sitemap in urls:
        counts.total += 1
        try:
            site, href = _accepted(url.text, filter_, config.filter_path)
        except BadUrl as error:
            counts.refused += 1
            if as_json:
                common.emit_json({"refused": common.escape(shared.redact(url.text)), "where": url.where, "reason": str(error)})
            else:
                common.LOG.warning("%s%s: %s", f"{url.where}: " if url.where else "", shared.redact(url.text), error)
            continue
        if href not in hrefs_seen:
            if len(hrefs_seen) >= REMEMBERED:
                hrefs_seen.clear()
            hrefs_seen.add(href)
            counts.inserted += 1
            yield site, href, is_sitemap


def _accepted(text: str, filter_: Filter, source: Path) -> tuple[str, str]:
    """Site and stripped href of a URL; BadUrl if it is none, or if the filter rejects it."""
    url = shared.parse_given(text)
    href = filter_.clean(url.href)
    if href is None:
        verdict = filter_.judge(filter_.strip(url.href))
        line = f"line {verdict.line}" if verdict.line else "no line accepts it"
        raise BadUrl(f"rejected by the filter, {source}, {line}: {verdict.text}")
    return url.site, href


def _print_result(counts: _InsertCounts, item: str | None, dry_run: bool, as_json: bool) -> None:
    count = counts.inserted
    if as_json:
        effect = NEXT_CYCLE if item else None
        common.emit_json({"inserted": count, "refused": counts.refused, "item": item, "dry_run": dry_run, "takes_effect": effect})
    elif dry_run:
        common.LOG.info("%s would be inserted; nothing was left in the inbox", shared.many(count, "URL"))
    elif count:
        common.LOG.info("%s inserted, to be taken in %s", shared.many(count, "URL"), NEXT_CYCLE)
    if counts.refused:
        raise UsageError(f"{counts.refused} of {shared.many(counts.total, 'URL')} refused, for the reasons above")
