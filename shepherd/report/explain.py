"""The whole story of one URL, from its spelling to the sentence that says why it is or is not gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shepherd.formats import kinds
from shepherd.report import facts, history, ranks, robots, verdict
from shepherd.report import one_row as onerow
from shepherd.report.spelling import steps

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.store.state.database import Database

JOURNALS_S: Final = 0.1  # for looking through journals, which are not sorted by URL, where nobody wants to wait


@dataclass(frozen=True)
class Asking:
    """Who asks, as others see it in the lease, and when. `now` is what the story is told by, `now_ms` what the lease begins at;
    journals are looked through for so many seconds of the clock, or to the end."""

    purpose: str
    now: int
    now_ms: int
    clock_s: Callable[[], float]
    journals_s: float = JOURNALS_S

    def over(self) -> history.Over:
        """Says from now on whether that time has passed."""
        end_s = self.clock_s() + self.journals_s
        return lambda: self.clock_s() >= end_s


@dataclass(frozen=True)
class Story:
    facts: facts.Facts
    standings: list[ranks.Standing]
    cycles: list[history.Cycle]
    outlook: str
    verdict: str


def explain(database: Database, config: Config, url: str, asking: Asking, number: int | None = None) -> Story:
    """By a closed state, the newest by default; UsageError if this is no URL."""
    from shepherd.filters import load_filter

    with database.reading(asking.purpose, asking.now_ms, number) as state:
        found = facts.collect(database, state, config, load_filter(config.filter_path), url)
        section = found.row["section"] if found.row is not None else found.section.section
        row = found.sought.rows[0] if found.sought.rows else None
        stands = ranks.standings(state, config, found.sought.norm, row, found.server, section)
    cycles = history.cycles(database, found.sought, asking.purpose, asking.now_ms, asking.over())
    told = verdict.outlook(found, stands, asking.now), verdict.verdict(found, config, asking.now)
    return Story(found, stands, cycles, *told)


def as_object(story: Story) -> dict[str, Any]:
    """As `shep explain --json` has it."""
    from shepherd.formats.tables import KINDS

    found, sought, judged = story.facts, story.facts.sought, story.facts.verdict
    section, class_ = found.section, found.equivalence
    return {
        "given": sought.given,
        "rules": [vars(step) for step in steps(sought.given, sought.parsed)],
        "normalised": sought.parsed.href,
        "strips": [{"parameter": one, "line": line.line, "text": line.text} for one, line in found.strips],
        "stripped": sought.stripped.href,
        "site": sought.stripped.site,
        "path": sought.stripped.path,
        "normalised_site": class_.norm,
        "equivalence": vars(class_) | {"next": class_.next or None},
        "footprint": {name: kinds.FOOTPRINT.json(getattr(sought, name)) for name in ("norm", "path", "site")},
        "state": found.state,
        "waiting": found.waiting or None,
        "row": onerow.as_object(found.row, found.head) if found.row is not None else None,
        "filter": {
            "accepted": judged.accepted,
            "file": found.filter_path,
            "line": judged.line,
            "text": judged.text,
            "pattern": found.pattern or None,
        },
        "section": {"name": kinds.SECTION.json(section.section), "line": section.line, "text": section.text},
        "robots": robots.as_object(found.robots),
        "standings": [one.as_object() for one in story.standings],
        "site_row": _site_object(found),
        "server": found.server and kinds.row_as_json(KINDS["servers"], found.server),
        "cycles": [one.as_object() for one in story.cycles],
        "outlook": story.outlook or None,
        "verdict": story.verdict,
    }


def _site_object(found: facts.Facts) -> dict[str, Any] | None:
    from shepherd.formats.tables import KINDS

    if found.site is None:
        return None
    return kinds.row_as_json(KINDS["sites"], found.site) | {"name": found.site_name}
