"""The whole story of one URL, from its spelling to the sentence that says why it is or is not gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shepherd.formats import kinds
from shepherd.report import facts, history, ranks, robots, verdict
from shepherd.report import one_row as onerow
from shepherd.report.spelling import steps

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.store.state.database import Database

JOURNAL_BYTES: Final = 64 << 20  # that are looked through where nobody wants to wait: journals are not sorted by URL


@dataclass(frozen=True)
class Asker:
    """Who asks, as others see it in the lease, and when. `now` is the time of the story, `now_ms` the start of the lease."""

    purpose: str
    now: int
    now_ms: int
    journal_bytes: float = JOURNAL_BYTES


@dataclass(frozen=True)
class UrlStory:
    facts: facts.UrlFacts
    standings: list[ranks.Standing]
    cycles: list[history.CycleEntry]
    outlook: str
    verdict: str


def explain(database: Database, config: Config, url: str, asker: Asker, number: int | None = None) -> UrlStory:
    """By a closed state, the newest by default; UsageError if this is no URL."""
    from shepherd.filters import load_filter

    with database.reading(asker.purpose, asker.now_ms, number) as state:
        url_facts = facts.collect(database, state, config, load_filter(config.filter_path), url)
        section = url_facts.row["section"] if url_facts.row is not None else url_facts.section.section
        row = url_facts.position.rows[0] if url_facts.position.rows else None
        stands = ranks.standings(state, config, url_facts.position.norm, row, url_facts.server, section)
    cycles = history.cycles(database, url_facts.position, asker.purpose, asker.now_ms, history.ReadBudget(asker.journal_bytes))
    sentences = verdict.outlook(url_facts, stands, asker.now), verdict.verdict(url_facts, config, asker.now)
    return UrlStory(url_facts, stands, cycles, *sentences)


def as_object(story: UrlStory) -> dict[str, Any]:
    """As `shep explain --json` has it."""
    from shepherd.formats.tables import KINDS

    url_facts, position, filter_verdict = story.facts, story.facts.position, story.facts.verdict
    section, class_ = url_facts.section, url_facts.equivalence
    return {
        "given": position.text,
        "rules": [vars(step) for step in steps(position.text, position.parsed)],
        "normalised": position.parsed.href,
        "strips": [{"parameter": name, "line": line.line, "text": line.text} for name, line in url_facts.strips],
        "stripped": position.stripped.href,
        "site": position.stripped.site,
        "path": position.stripped.path,
        "normalised_site": class_.norm,
        "equivalence": vars(class_) | {"next": class_.next or None},
        "footprint": {name: kinds.FOOTPRINT.json(getattr(position, name)) for name in ("norm", "path", "site")},
        "state": url_facts.state,
        "waiting": url_facts.waiting or None,
        "row": onerow.as_object(url_facts.row, url_facts.head) if url_facts.row is not None else None,
        "filter": {
            "accepted": filter_verdict.accepted,
            "file": url_facts.filter_path,
            "line": filter_verdict.line,
            "text": filter_verdict.text,
            "pattern": url_facts.pattern or None,
        },
        "section": {"name": kinds.SECTION.json(section.section), "line": section.line, "text": section.text},
        "robots": robots.as_object(url_facts.robots),
        "standings": [standing.as_object() for standing in story.standings],
        "site_row": _site_object(url_facts),
        "server": url_facts.server and kinds.row_as_json(KINDS["servers"], url_facts.server),
        "asks": url_facts.asks,
        "cycles": [cycle.as_object() for cycle in story.cycles],
        "outlook": story.outlook or None,
        "verdict": story.verdict,
    }


def _site_object(url_facts: facts.UrlFacts) -> dict[str, Any] | None:
    from shepherd.formats.tables import KINDS

    if url_facts.site is None:
        return None
    return kinds.row_as_json(KINDS["sites"], url_facts.site) | {"name": url_facts.site_name}
