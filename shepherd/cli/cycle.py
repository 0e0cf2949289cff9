"""One cycle as a table: what stands in the database -> the program to run next (docs/cycle.md).

`next_step` is the whole decision, and it is pure; `look` reads what it needs; master.py runs what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.store.database import Database

PLAN: Final = "shep-plan"
REAP: Final = "shep-reap"
CORK: Final = "shep-cork"
MERGE: Final = "shep-merge"
SELECT: Final = "shep-select"
RECORD: Final = "shep-record"


@dataclass(frozen=True)
class Found:
    """What stands in the database, once leftovers are tidied away."""

    name: str  # of the finished directory that is furthest along
    phase: str  # what made it
    harvested: bool = False  # of a .reap: there are harvests, and all have ended
    waiting: bool = False  # for a merge: requests in the inbox, contributions, or a filter that has changed


# (phase, whether what it waits for is there) -> the next program. What a phase waits for: see _ready.
MOVES: Final[dict[tuple[str, bool], str]] = {
    ("closed", True): MERGE,
    ("closed", False): PLAN,
    ("reap", False): REAP,
    ("reap", True): CORK,
    ("merged", False): SELECT,
    ("selected", False): RECORD,
}


def next_step(found: Found, done: Sequence[str]) -> str | None:
    """The program to run next, after those that this cycle has `done`; None when the cycle is complete.

    A cycle is complete when what it reaped is recorded, or corked without contributing anything. Each program runs once in it,
    but merge, select and record twice if something waited at the start: so requests that keep coming cannot hold it up.
    """
    step = MOVES.get((found.phase, _ready(found)))
    if step is None:
        raise UsageError(f"{found.name}: this version has no program that goes on from there; use the one that made it")
    if CORK in done:
        merged = MERGE in done[done.index(CORK) :]
        return None if step == PLAN or (step == MERGE and merged) else step
    if step == MERGE and MERGE in done:
        return PLAN
    return step


def _ready(found: Found) -> bool:
    if found.phase == "closed":
        return found.waiting
    return found.phase == "reap" and found.harvested


def look(database: Database, filter_version: int) -> Found:
    """What stands there now. For the holder of the lock: nobody else changes it meanwhile."""
    from shepherd.store import harvest

    state = database.furthest()
    harvests = state.harvests()
    return Found(
        name=str(state.name),
        phase=state.name.phase,
        harvested=bool(harvests) and all(harvest.inspect(path).ended for path in harvests),
        waiting=bool(state.numbered("contrib"))
        or bool(database.inbox.waiting(state.control.applied))
        or state.control.filter != filter_version,
    )
