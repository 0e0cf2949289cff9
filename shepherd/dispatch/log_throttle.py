"""When to say that a source cannot be had: at once, at once again if the reason is another, and else at growing intervals.

Its places try again on their own, each with its own pause; a log that told every attempt would hide everything else.
"""

from __future__ import annotations

from typing import Final

FIRST_GAP_S: Final = 60.0
LONGEST_GAP_S: Final = 3_600.0


class LogThrottle:
    def __init__(self) -> None:
        self._next: dict[str, dict[str, tuple[float, float]]] = {}  # by source and reason: when next, and the gap after that

    def due(self, name: str, why: str, now_s: float) -> bool:
        """Whether to say this now; if so, it counts as said."""
        next_times = self._next.setdefault(name, {})
        at_s, gap_s = next_times.get(why, (now_s, FIRST_GAP_S))
        if now_s < at_s:
            return False
        next_times[why] = (now_s + gap_s, min(2 * gap_s, LONGEST_GAP_S))
        return True

    def settled(self, name: str) -> None:
        """It can be had: whatever is wrong with it later is news."""
        self._next.pop(name, None)
