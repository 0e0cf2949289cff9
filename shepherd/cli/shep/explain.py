"""shep explain: the whole story of one URL, from its spelling to the sentence that says why it is or is not gathered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shepherd.cli.shep.servers import asked_by
from shepherd.config import Config
from shepherd.console import common, shared
from shepherd.formats import kinds
from shepherd.report import one_row as onerow
from shepherd.report.explain import JOURNAL_BYTES
from shepherd.report.one_row import Line

if TYPE_CHECKING:
    from shepherd.report.explain import UrlStory
    from shepherd.report.facts import UrlFacts

LABEL = 14
WAITS = {
    "inbox": ", but an insert waits in the inbox",
    "purge": ", and a purge waits in the inbox",
    "contrib": ", but a link to it waits to be merged",
}


@click.command("explain")
@click.argument("url", metavar="[URL]", required=False)
@click.option("--why-not", "prefix", metavar="PREFIX", help="Instead count all URLs under this URL prefix by reason.")
@click.option("--deep", is_flag=True, help=f"Search all journals, not only the newest {JOURNAL_BYTES >> 20} MiB of them.")
@common.database
@common.configured
@shared.state_number
@common.timed
@common.jsonable
@common.standard
def command(
    url: str | None,
    prefix: str | None,
    deep: bool,
    db: Path,
    config: Config,
    number: int | None,
    now: int,
    as_json: bool,
) -> None:
    """Explain why a URL is, or is not, gathered. It need not be known.

    It goes step by step: as given, normalised rule by rule, stripped by which lines of the filter; its class of sites, by which
    line of url-equiv; its footprint; what is known of it; the filter line that decides; which version of robots.txt, and which
    group and line of it; the limits of its site, server, section and of the whole, and its rank against them; its server and the
    next contact; what each recorded cycle did with it; and a sentence at the end that sums it up. Of an unknown URL it shows what
    would happen to it.

    With --why-not it counts all URLs under a prefix by type and reason, with some examples of each. The prefix has a whole host;
    http and https, with and without www., make no difference. If it has a path, too, the text of each URL of the site is read.

    \b
    Examples:
      shep explain 'http://www.example.org/a?utm_source=x'
      shep explain --json https://example.org/ | jq .robots.verdict
      shep explain --why-not http://example.org/shop/
    """
    if (url is None) == (prefix is None):
        raise click.UsageError("give a URL, or a prefix with --why-not")
    if prefix is not None:
        from shepherd.cli.shep.whynot import show

        with shared.reading(db, number) as state:
            show(state, prefix, as_json)
        return
    assert url is not None
    from shepherd.report import explain
    from shepherd.store.state.database import Database

    purpose, journal_bytes = click.get_current_context().command_path, float("inf") if deep else JOURNAL_BYTES
    asker = explain.Asker(purpose, now, shared.clock_ms(), journal_bytes)
    story = explain.explain(Database(db), config, url, asker, number)
    if as_json:
        common.emit_json(explain.as_object(story))
        return
    for label, text in _lines(story, now):
        click.echo(f"{label:<{LABEL - 2}}  {common.escape(text)}")


# --- text -------------------------------------------------------------------------------------------------------


def _lines(story: UrlStory, now: int) -> Iterator[Line]:
    facts = story.facts
    yield from _spelling(facts)
    yield from _row(facts, now)
    yield from _filter(facts)
    yield from _robots(facts)
    yield from (entry.line() for entry in story.standings)
    yield from _site(facts, now)
    yield from _server(facts, now)
    yield from (entry.line() for entry in story.cycles)
    if story.outlook:
        yield "if it came", story.outlook
    yield "verdict", story.verdict


def _spelling(facts: UrlFacts) -> Iterator[Line]:
    from shepherd.report.spelling import steps

    position, class_ = facts.position, facts.equivalence
    yield "given", position.text
    yield from (("by rule", f"{step.rule}: {step.text}") for step in steps(position.text, position.parsed))
    yield "normalised", position.parsed.href
    for parameter, line in facts.strips:
        yield "by filter", f"without {parameter}: {facts.filter_path}, line {line.line}: {line.text}"
    if facts.strips:
        yield "stripped", position.stripped.href
    yield "site", position.stripped.site
    by = f"{class_.path}, line {class_.line}: {class_.text}" if class_.line else "http and https, with and without www., are one"
    yield "class", f"{class_.norm}: {by}"
    if class_.next:
        yield "next class", f"{class_.next}: {class_.path} has changed, and the next shep-equiv goes by it"
    yield "footprint", "{} {}, of the site {}".format(*map(kinds.FOOTPRINT.text, (position.norm, position.path, position.site)))


def _row(facts: UrlFacts, now: int) -> Iterator[Line]:
    row, head = facts.row, facts.head
    if row is None:
        yield "known", f"no{WAITS.get(facts.waiting, '')} (state {facts.state})"
        return
    yield "known", f"{onerow.type_name(row)} (state {facts.state}, last changed in state {row['touched']})"
    if head is not None and head.url != facts.position.stripped.href:
        yield "stored as", head.url
    yield from onerow.lines(row, head, now)


def _filter(facts: UrlFacts) -> Iterator[Line]:
    verdict = facts.verdict
    line = f"line {verdict.line}" if verdict.line else "no line decides"
    pattern = f" ({facts.pattern})" if facts.pattern else ""
    yield "filter", f"{'accepted' if verdict.accepted else 'rejected'}: {facts.filter_path}, {line}: {verdict.text}{pattern}"
    if facts.section.line:
        of = facts.section
        yield "section", f"{kinds.SECTION.text(of.section)}: {facts.filter_path}, line {of.line}: {of.text}"


def _robots(facts: UrlFacts) -> Iterator[Line]:
    from shepherd.report.robots import file_lines
    from shepherd.urls import ROBOTS_PATH

    verdict = facts.robots
    yield "robots.txt", ", ".join(file_lines(verdict.file)) if verdict.file is not None else f"{verdict.site}{ROBOTS_PATH}"
    for name, value in (("group", verdict.group), ("line", verdict.line)):
        if value:
            yield f"its {name}", f"line {value[0]}: {value[1]}"
    yield "it says", f"{verdict.verdict} for {verdict.agent}: {verdict.why}"


def _site(facts: UrlFacts, now: int) -> Iterator[Line]:
    from shepherd.formats.tables import NO_LIMIT

    site = facts.site
    if site is None:
        yield "site row", f"none: {facts.site_name} is not known"
        return
    yield "site row", f"{facts.site_name}: {shared.many(site['documents'], 'document')}, {site['gathered']} gathered"
    limits = [f"{name.replace('_', ' ')} {site[name]}" for name in ("soft_limit", "hard_limit") if site[name] != NO_LIMIT]
    limits += [f"delay {site['delay_ms']} ms"] if site["delay_ms"] != NO_LIMIT else []
    if limits:
        yield "set", ", ".join(limits) + " by the filter"
    if site["crawl_delay_ms"]:
        yield "crawl delay", f"{site['crawl_delay_ms']} ms by its robots.txt"
    if site["pause_end"] > now:
        yield "pause", f"it asked to be left alone for {site['pause_s']} s, until {shared.moment(site['pause_end'], now)}"
    yield "queue key", f"{kinds.QUEUE_KEY.text(site['qkey'])}, looked up {shared.moment(site['qkey_checked'], now)}"


def _server(facts: UrlFacts, now: int) -> Iterator[Line]:
    server = facts.server
    if server is None:
        yield "server", "never asked"
        return
    backoff = f", backed off {2 ** server['backoff']}x" if server["backoff"] else ""
    yield (
        "server",
        f"delay {server['delay_ms']} ms{backoff}, {shared.many(server['documents'], 'document')}, "
        f"{shared.many(server['fetches'], 'contact')}, {server['errors']} failed",
    )
    next_ms = facts.next_contact_ms(now)
    if facts.asks:
        yield "asked by", asked_by(facts.asks)
    yield "next contact", f"not before {shared.moment(-(-next_ms // 1_000), now)}" if next_ms else "at any time"
