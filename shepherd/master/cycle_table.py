"""One cycle as a table: what stands in the database -> the program to run next (docs/cycle.md).

`next_step` and `after` are the whole decision, and they are pure; `look` reads what they need; cycle_run.py runs the programs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shepherd.errors import Corruption, NoSpace, NothingToDo, RecoveryNeeded

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.store.state.database import Database

FEEDBACK: Final = "shep-feedback"
PLAN: Final = "shep-plan"
REAP: Final = "shep-reap"
CORK: Final = "shep-cork"
MERGE: Final = "shep-merge"
EQUIV: Final = "shep-equiv"
SELECT: Final = "shep-select"
RECORD: Final = "shep-record"
CLEANUP: Final = "shep-cleanup"
RANK: Final = "shep-rank"
RECOVER: Final = "shep-recover"


@dataclass(frozen=True)
class CyclePosition:
    """What stands in the database, once leftovers are tidied away."""

    name: str  # of the finished directory that is furthest along
    phase: str  # what made it
    harvested: bool = False  # of a .reap: there are harvests, and all have ended
    waiting: bool = False  # for a merge: requests, or contributions
    has_requests: bool = False  # requests in the inbox, a filter or a url-equiv that has changed
    feedback: bool = False  # an indexer's uploads wait
    harvests: bool = False  # harvests from elsewhere wait
    unselected: bool = False  # weights, or limits of [select], are others than those that the last select went by
    unequal: bool = False  # the norms are not by the url-equiv that cf/ has now
    cleanup_requested: bool = False  # somebody wants a cleanup now
    full: str = ""  # why a reap could store nothing, in words


# (phase, whether what it waits for is there) -> the next program. What a phase waits for: see _ready.
MOVES: Final[dict[tuple[str, bool], str]] = {
    ("reap", False): REAP,
    ("reap", True): CORK,
    ("merged", True): EQUIV,
    ("merged", False): SELECT,
    ("equiv", False): SELECT,
    ("selected", False): RECORD,
}


def next_step(position: CyclePosition, steps_run: Sequence[str], rounds: int = 1) -> str | None:
    """The program to run next, after the `steps_run` of this cycle; None when the cycle is complete.

    What is half way is finished first. In a closed state a cleanup that is wanted, or that could make room, comes before all
    else. `rounds` is how often the cycle plans, reaps and corks before it merges.
    """
    if position.phase != "closed":
        return MOVES[position.phase, _ready(position)]
    if (position.cleanup_requested or position.full) and CLEANUP not in steps_run:
        return CLEANUP
    step = _after_cork(position, steps_run, rounds) if CORK in steps_run else _before_cork(position, steps_run)
    if step == PLAN and position.full:
        raise NoSpace(f"{position.full}; a cleanup has freed what it could, and nothing is planned until there is room")
    return step


def _before_cork(position: CyclePosition, steps_run: Sequence[str]) -> str | None:
    """What was inserted is merged first, and once: requests that keep coming cannot hold the cycle up.

    Where nothing is due, harvests from elsewhere take the place of a reap; and a select that is wanted does not wait for one.
    """
    if position.waiting and MERGE not in steps_run:
        return MERGE
    if PLAN not in steps_run:
        return FEEDBACK if position.feedback and FEEDBACK not in steps_run else PLAN
    if position.harvests:
        return CORK
    return MERGE if position.unselected and MERGE not in steps_run else None


def _after_cork(position: CyclePosition, steps_run: Sequence[str], rounds: int) -> str | None:
    """Further rounds, but none while somebody waits for a merge; then merge, once; then the cycle is complete."""
    since = steps_run[len(steps_run) - 1 - list(reversed(steps_run)).index(CORK) :]
    if MERGE in since:
        return None
    if steps_run.count(CORK) < rounds and PLAN not in since and not position.has_requests:
        return PLAN
    return MERGE if position.waiting or position.unselected else None


def _ready(position: CyclePosition) -> bool:
    ready = {"reap": position.harvested, "merged": position.unequal}
    return ready.get(position.phase, False)


# --- what an exit status means ----------------------------------------------------------------------------------


class Move(enum.Enum):
    CONTINUE = "continue"
    CLEAN = "continue, and clean up as soon as a state is closed"
    MEND = "run shep-recover, then continue"
    STOP = "stop"


CAN_FIND_NOTHING: Final = (FEEDBACK, MERGE, PLAN, CLEANUP)  # it was taken already, or cannot be taken; nothing is due
# A bug, a hook, too few descriptors, a reaper: what may be better the next time, as is a program that was killed.
PASSING: Final = (1, 5, 14, 20, 21)


def after(step: str, status: int, position: CyclePosition, steps_run: Sequence[str], recover: bool = True) -> Move:
    """What follows from a program's exit status, with the `position` after it; it is itself in `steps_run`."""
    if step == RANK:
        return Move.CONTINUE  # however it ended: gathering does not depend on weights
    if status == 0 or (status == NothingToDo.exit_status and step in CAN_FIND_NOTHING):
        return Move.CONTINUE
    if status == Corruption.exit_status and step == CORK and position.phase == "closed":
        return Move.CONTINUE  # it has said which harvest of the inbox cannot be taken; ours are sound
    if status == RecoveryNeeded.exit_status and recover and step != RECOVER and RECOVER not in steps_run:
        return Move.MEND
    closed_soon = position.phase == "closed" or (step == REAP and position.harvested)
    if status == NoSpace.exit_status and closed_soon and CLEANUP not in steps_run:
        return Move.CLEAN
    return Move.STOP


def is_passing(status: int) -> bool:
    """Whether a cycle that ended so is worth another try a little later."""
    return status in PASSING or status > 128


# --- what stands there ------------------------------------------------------------------------------------------


def look(database: Database, config: Config, cleanup_requested: bool = False) -> CyclePosition:
    """What stands there now. For the holder of the lock: nobody else changes it meanwhile."""
    from shepherd.cycle.common.limits import wants_select
    from shepherd.cycle.common.norms import version_of
    from shepherd.dispatch.disk_budget import DiskBudget
    from shepherd.equiv import load_equiv
    from shepherd.filters import load_filter
    from shepherd.store.state import harvest, inbox

    state = database.furthest()
    harvests = state.harvests()
    unequal = state.control.equiv != version_of(load_equiv(config.equiv_path))
    requests = database.inbox.waiting(state.control.applied)
    has_requests = bool(requests) or state.control.filter != load_filter(config.filter_path).version or unequal
    return CyclePosition(
        name=str(state.name),
        phase=state.name.phase,
        harvested=bool(harvests) and all(harvest.inspect(path).ended for path in harvests),
        waiting=has_requests or bool(state.numbered("contrib")),
        has_requests=has_requests,
        feedback=bool(database.inbox.waiting(state.control.applied, inbox.FEEDBACK)),
        harvests=bool(database.inbox.waiting(state.control.applied, inbox.HARVEST)),
        unselected=wants_select(state.control, config),
        unequal=unequal,
        cleanup_requested=cleanup_requested,
        full=DiskBudget(state, config.reap).full(0),
    )
