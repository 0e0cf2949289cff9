"""Whether a master is to run a cleanup after a cycle: `reason` is the decision, and it is pure; `measure` reads what it needs.

How much a cleanup would free is known by the columns alone, and looked at only when enough time has passed since the last one:
12 bytes a row, of files that the cycle has just written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.config import Cleanup, Config
from shepherd.report import logbook

if TYPE_CHECKING:
    from shepherd.store.state.database import Database


@dataclass(frozen=True)
class CleanupFacts:
    """All in bytes of segments; times in seconds since 1970."""

    now: int
    since: int  # the last cleanup, or the last try of one; if there was none, the first cycle
    size: int  # of all segments
    needed: int  # of them
    freed: int  # of them, by a cleanup now


def is_too_soon(now: int, since: int, settings: Cleanup) -> bool:
    """Also where the clock was set back: it will catch up."""
    return now - since < settings.pause_s


def reason(facts: CleanupFacts, settings: Cleanup) -> str:
    """Why a cleanup is due, in words; nothing where it is not."""
    if is_too_soon(facts.now, facts.since, settings):
        return ""
    limit = settings.size_bytes
    if limit and facts.size > limit and (facts.freed or facts.needed > limit):
        return f"the bucket file has {facts.size} bytes, more than cleanup.size_bytes ({limit})"
    if settings.garbage and facts.freed * 100 > facts.size * settings.garbage:
        return f"{facts.freed} of {facts.size} bytes can be freed, more than cleanup.garbage ({settings.garbage} %)"
    if settings.every_s and facts.now - facts.since >= settings.every_s:
        return f"the last one was {facts.now - facts.since} s ago, longer than cleanup.every_s ({settings.every_s})"
    return ""


def due(database: Database, config: Config, now: int, step: str) -> str:
    """Why a cleanup of the newest closed state is due; `step` is the name that the log has for it."""
    state = database.furthest()
    since = max(state.control.cleaned, last_try(database.log_path, step))
    since = since or logbook.first_start(database.log_path) or now
    if not state.name.closed or is_too_soon(now, since, config.cleanup):
        return ""
    return reason(measure(database, config, now, since), config.cleanup)


def measure(database: Database, config: Config, now: int, since: int) -> CleanupFacts:
    from shepherd.cycle.cleanup import shakedown
    from shepherd.cycle.cleanup.survey import fill_by_columns

    fill = fill_by_columns(database.furthest(), config.store.partition_rows)
    places = shakedown.choose(fill, config.cleanup, config.store.segment_bytes).places
    freed = int((fill.length - fill.bytes)[places].sum())
    return CleanupFacts(now, since, int(fill.length.sum()), int(fill.bytes.sum()), freed)


def last_try(log: Path, step: str) -> int:
    """When a cycle last ran a cleanup, however it ended, as far back as the newest lines of the log go."""
    lately = filter(logbook.is_cycle, logbook.newest_first(log / logbook.CYCLES, logbook.TAIL_BYTES))
    tries = (cycle["start"] for cycle in lately if any(entry.get("step") == step for entry in cycle["steps"]))
    return int(next(tries, 0))
