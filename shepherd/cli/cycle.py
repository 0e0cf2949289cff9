"""One cycle as a table: what stands in the database -> the program to run next (docs/cycle.md).

`next_step` is the whole decision, and it is pure; `look` reads what it needs; master.py runs what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.store.database import Database

FEEDBACK: Final = "shep-feedback"
PLAN: Final = "shep-plan"
REAP: Final = "shep-reap"
CORK: Final = "shep-cork"
MERGE: Final = "shep-merge"
EQUIV: Final = "shep-equiv"
SELECT: Final = "shep-select"
RECORD: Final = "shep-record"


@dataclass(frozen=True)
class Found:
    """What stands in the database, once leftovers are tidied away."""

    name: str  # of the finished directory that is furthest along
    phase: str  # what made it
    harvested: bool = False  # of a .reap: there are harvests, and all have ended
    waiting: bool = False  # for a merge: requests in the inbox, contributions, a filter or a url-equiv that has changed
    feedback: bool = False  # an indexer's uploads wait
    harvests: bool = False  # harvests from elsewhere wait
    unequal: bool = False  # the norms are not by the url-equiv that cf/ has now


# (phase, whether what it waits for is there) -> the next program. What a phase waits for: see _ready.
MOVES: Final[dict[tuple[str, bool], str]] = {
    ("closed", True): MERGE,
    ("closed", False): PLAN,  # or feedback before it, where some waits
    ("reap", False): REAP,
    ("reap", True): CORK,
    ("merged", True): EQUIV,
    ("merged", False): SELECT,
    ("equiv", False): SELECT,
    ("selected", False): RECORD,
}


def next_step(found: Found, done: Sequence[str]) -> str | None:
    """The program to run next, after those that this cycle has `done`; None when the cycle is complete.

    A cycle is complete when what it reaped is recorded, or corked without contributing anything; where plan has found nothing
    due, harvests from elsewhere take the place of a reap. Each program runs once in it, but merge, select and record twice if
    something waited at the start: so requests that keep coming cannot hold it up.
    """
    step = MOVES.get((found.phase, _ready(found)))
    if step is None:
        raise UsageError(f"{found.name}: this version has no program that goes on from there; use the one that made it")
    if CORK in done:
        merged = MERGE in done[done.index(CORK) :]
        return None if step == PLAN or (step == MERGE and merged) else step
    if step == MERGE and MERGE in done:
        step = PLAN
    if step == PLAN and PLAN in done:
        return CORK if found.harvests else None
    return FEEDBACK if step == PLAN and found.feedback and found.phase == "closed" and FEEDBACK not in done else step


def _ready(found: Found) -> bool:
    ready = {"closed": found.waiting, "reap": found.harvested, "merged": found.unequal}
    return ready.get(found.phase, False)


def look(database: Database, config: Config) -> Found:
    """What stands there now. For the holder of the lock: nobody else changes it meanwhile."""
    from shepherd.batch.norms import version_of
    from shepherd.equiv import load_equiv
    from shepherd.filters import load_filter
    from shepherd.store import harvest, inbox

    state = database.furthest()
    harvests = state.harvests()
    unequal = state.control.equiv != version_of(load_equiv(config.equiv_path))
    return Found(
        name=str(state.name),
        phase=state.name.phase,
        harvested=bool(harvests) and all(harvest.inspect(path).ended for path in harvests),
        waiting=bool(state.numbered("contrib"))
        or bool(database.inbox.waiting(state.control.applied))
        or state.control.filter != load_filter(config.filter_path).version
        or unequal,
        feedback=bool(database.inbox.waiting(state.control.applied, inbox.FEEDBACK)),
        harvests=bool(database.inbox.waiting(state.control.applied, inbox.HARVEST)),
        unequal=unequal,
    )
