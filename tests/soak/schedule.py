"""What happens to a soaked farm, and when: a list that a seed and a length decide.

The seconds are those of the soak, which stand still at quiet points. Which process is struck is drawn when it is struck, because
only then is it known which there are; but the numbers that it is drawn by come from here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    KILL = "kill"  # SIGKILL for some process
    FULL = "full"  # the disk is full for a while
    LOST = "lost"  # all reapers are gone for a while
    FROZEN = "frozen"  # one reaper stands still for a while, as behind a partition
    INSERT = "insert"
    DELETE = "delete"
    REFRESH = "refresh"
    READ = "read"  # somebody leases the newest state for a while
    WATCH = "watch"  # what the reap that runs has acknowledged is written down
    LOOK = "look"  # an operator asks how things stand
    CLEAN = "clean"  # an operator wants a cleanup
    HANG_UP = "hang up"  # cf/ is to be read again
    WEB = "web"  # pages change
    QUIET = "quiet"  # everything stops, and is judged


@dataclass(frozen=True)
class Often:
    """So many seconds between two, and so many that each lasts; both are drawn from a range."""

    gap_s: tuple[float, float]
    lasts_s: tuple[float, float] = (0, 0)


HOW_OFTEN = {
    What.KILL: Often((2, 6)),
    What.FULL: Often((60, 110), (4, 10)),
    What.LOST: Often((60, 120), (4, 12)),
    What.FROZEN: Often((40, 90), (1, 9)),
    What.INSERT: Often((4, 9)),
    What.DELETE: Often((15, 30)),
    What.REFRESH: Often((8, 16)),
    What.READ: Often((8, 15), (3, 30)),
    What.WATCH: Often((2, 5)),
    What.LOOK: Often((5, 12)),
    What.CLEAN: Often((40, 80)),
    What.HANG_UP: Often((30, 60)),
    What.WEB: Often((90, 150)),
    What.QUIET: Often((50, 90)),
}
SOONER = 0.15  # the first of each: a short soak has some of everything, too


@dataclass(frozen=True)
class Event:
    at_s: float
    what: What
    lasts_s: float
    number: int  # to draw by


def schedule(seed: int, length_s: float) -> list[Event]:
    """In the order of time; at least one of each but quiet points, of which the end has one of its own."""
    found = [event for what in What for event in _of(what, random.Random(f"{seed} {what}"), length_s)]
    return sorted(found, key=lambda event: event.at_s)


def _of(what: What, draw: random.Random, length_s: float) -> Iterator[Event]:
    often = HOW_OFTEN[what]
    at_s = min(draw.uniform(*often.gap_s) * SOONER, length_s / 2)
    if what is What.QUIET:
        at_s = draw.uniform(*often.gap_s)
    while at_s < length_s:
        yield Event(at_s, what, draw.uniform(*often.lasts_s), draw.getrandbits(32))
        at_s += draw.uniform(*often.gap_s)
