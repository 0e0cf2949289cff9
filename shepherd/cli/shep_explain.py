"""shep explain: the whole story of one URL, from its spelling to the sentence that says why it is or is not gathered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import common, shep_row
from shepherd.cli import shep_shared as shared
from shepherd.cli.shep_row import Line
from shepherd.config import Config

if TYPE_CHECKING:
    from shepherd.cli.shep_facts import Facts

SITE_TIMES = ("qkey_checked", "qkey_next", "robots_checked", "robots_next", "robots_since")
WAITS = {
    "inbox": ", but an insert waits in the inbox",
    "purge": ", and a purge waits in the inbox",
    "contrib": ", but a link to it waits to be merged",
}


@click.command("explain")
@click.argument("url", metavar="URL")
@common.database
@common.configured
@shared.state_number
@common.timed
@common.jsonable
@common.standard
def command(url: str, db: Path, config: Config, number: int | None, now: int, as_json: bool) -> None:
    """Tell why a URL is, or is not, gathered: also one that was never stored.

    Goes step by step: as given, normalised, stripped by the filter, its site and footprint, the filter line that decides, what is
    known of the URL, its site and its server, and one sentence at the end that sums it up.

    \b
    Example:
      shep explain 'http://www.example.org/a?utm_source=x'
    """
    from shepherd.cli.shep_facts import collect
    from shepherd.cli.shep_verdict import verdict
    from shepherd.filters import load_filter
    from shepherd.store.database import Database

    with shared.reading(db, number) as state:
        facts = collect(Database(db), state, load_filter(config.filter_path), config.filter_path, url)
    closing = verdict(facts, config, now)
    if as_json:
        common.emit_json(_json(facts, closing))
        return
    for label, text in (*_spelling(facts), *_row(facts, now), *_site(facts, now), *_server(facts, now), ("verdict", closing)):
        click.echo(f"{label:<12}  {common.escape(text)}")


# --- text -------------------------------------------------------------------------------------------------------


def _spelling(facts: Facts) -> Iterator[Line]:
    sought, judged = facts.sought, facts.verdict
    yield "given", sought.given
    yield "normalised", sought.parsed.href
    if sought.removed:
        yield "stripped", f"{sought.stripped.href} (the filter strips {' '.join(sought.removed)})"
    yield "site", f"{sought.stripped.site}, normalised {sought.stripped.norm}"
    yield "footprint", f"{sought.norm:016x} {sought.path:016x}, of the site {sought.site:016x}"
    line = f"line {judged.line}" if judged.line else "no line decides"
    yield "filter", f"{'accepted' if judged.accepted else 'rejected'}: {facts.filter_path}, {line}: {judged.text}"


def _row(facts: Facts, now: int) -> Iterator[Line]:
    row, head = facts.row, facts.head
    if row is None:
        yield "known", f"no{WAITS.get(facts.waiting, '')} (state {facts.state})"
        return
    yield "known", f"{shep_row.type_name(row)} (state {facts.state}, last changed in state {row['touched']})"
    if head is not None and head.url != facts.sought.stripped.href:
        yield "stored as", head.url
    yield from shep_row.lines(row, head, now)


def _site(facts: Facts, now: int) -> Iterator[Line]:
    from shepherd.formats.tables import NO_LIMIT, show_qkey

    site = facts.site
    if site is None:
        yield "site row", f"none: {facts.site_name} is not known"
        return
    yield "site row", f"{facts.site_name}: {shared.many(site['documents'], 'document')}, {site['gathered']} gathered"
    if site["robots_since"]:
        yield "robots.txt", f"unreachable since {shared.moment(site['robots_since'], now)}"
    elif not site["robots_checked"]:
        yield "robots.txt", "not asked yet"
    else:
        yield "robots.txt", f"status {site['robots_status']}, checked {shared.moment(site['robots_checked'], now)}"
    limits = [f"{name.replace('_', ' ')} {site[name]}" for name in ("soft_limit", "hard_limit") if site[name] != NO_LIMIT]
    limits += [f"delay {site['delay_ms']} ms"] if site["delay_ms"] != NO_LIMIT else []
    if limits:
        yield "set", ", ".join(limits) + " by the filter"
    if site["crawl_delay_ms"]:
        yield "crawl delay", f"{site['crawl_delay_ms']} ms by its robots.txt"
    yield "queue key", f"{show_qkey(site['qkey'])}, looked up {shared.moment(site['qkey_checked'], now)}"


def _server(facts: Facts, now: int) -> Iterator[Line]:
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
    ready = server["next_ms"] <= now * 1_000
    yield "next contact", "at any time" if ready else f"not before {shared.moment(-(-server['next_ms'] // 1_000), now)}"


# --- JSON -------------------------------------------------------------------------------------------------------


def _json(facts: Facts, closing: str) -> dict[str, Any]:
    sought, judged = facts.sought, facts.verdict
    return {
        "given": sought.given,
        "normalised": sought.parsed.href,
        "stripped": sought.stripped.href,
        "site": sought.stripped.site,
        "path": sought.stripped.path,
        "normalised_site": sought.stripped.norm,
        "footprint": {"norm": f"{sought.norm:016x}", "path": f"{sought.path:016x}", "site": f"{sought.site:016x}"},
        "filter": {"accepted": judged.accepted, "file": facts.filter_path, "line": judged.line, "text": judged.text},
        "state": facts.state,
        "waiting": facts.waiting or None,
        "row": shep_row.as_object(facts.row, facts.head) if facts.row is not None else None,
        "site_row": _site_json(facts),
        "server": facts.server and facts.server | {"qkey": f"{facts.server['qkey']:016x}"},
        "verdict": closing,
    }


def _site_json(facts: Facts) -> dict[str, Any] | None:
    from shepherd.formats.tables import NO_LIMIT, show_qkey

    site = facts.site
    if site is None:
        return None
    shown: dict[str, Any] = site | {name: f"{site[name]:016x}" for name in ("site", "norm", "robots_oid")}
    shown |= {name: shared.iso(site[name]) or None for name in SITE_TIMES}
    shown |= {name: None for name in ("delay_ms", "soft_limit", "hard_limit") if site[name] == NO_LIMIT}
    return shown | {"name": facts.site_name, "qkey": show_qkey(site["qkey"])}
