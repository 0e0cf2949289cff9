"""Whose turn it is: what a program of the cycle says when it is not its own (docs/cycle.md has the table)."""

from __future__ import annotations

from typing import Final

from shepherd.errors import NothingToDo, ShepherdError
from shepherd.formats.control import CLOSED
from shepherd.store.state import harvest
from shepherd.store.state.directory import State

NEXT: Final = {
    CLOSED: "shep-merge or shep-plan comes next",
    "reap": "shep-reap comes next, then shep-cork",
    "merged": "shep-equiv or shep-select comes next",
    "equiv": "shep-select comes next",
    "selected": "shep-record comes next",
}
HARVESTED: Final = "shep-cork comes next"


def not_now(state: State, why: str) -> NothingToDo:
    """The reason, where the cycle stands, and what comes next."""
    following = HARVESTED if _is_harvested(state) else NEXT.get(state.name.phase, "another version made it")
    return NothingToDo(f"{why}, and the newest state is {state.name}: {following}; `shepherd cycle` runs them in their order")


def _is_harvested(state: State) -> bool:
    """Whether a reap has ended; what cannot be looked at is for shep-reap and shep-cork to report."""
    try:
        has_ended = [harvest.inspect(path).ended for path in state.harvests()]
    except ShepherdError:
        return False
    return bool(has_ended) and all(has_ended)
