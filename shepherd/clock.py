"""Time that cannot be set back: a step of the wall clock must neither hurry nor delay a contact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.05
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SAMPLES: Final = 5
UNSTEADY_MS: Final = 50  # two readings of a clock that nobody has set may differ by this much


def steady_clock_ms() -> Callable[[], int]:
    """The wall clock as it is now, plus the time that passes from here on, in whole milliseconds that have passed."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000


class ClockReading(NamedTuple):
    """How far the wall clock is ahead of the time since a boot: it stays so until somebody sets the clock."""

    boot: str
    lead_ms: int

    def set_by_ms(self, earlier: ClockReading | None) -> int:
        """By how much the clock was set since; 0 = not at all, or nobody can tell."""
        if earlier is None or earlier.boot != self.boot:
            return 0
        step_ms = self.lead_ms - earlier.lead_ms
        return step_ms if abs(step_ms) > UNSTEADY_MS else 0


def read_clock() -> ClockReading:
    """The best of some tries: a process may be put aside between looking at the one clock and at the other."""
    tries = []
    for _ in range(SAMPLES):
        before_ns, wall_ns, after_ns = _since_boot_ns(), time.time_ns(), _since_boot_ns()
        tries.append((after_ns - before_ns, wall_ns - before_ns))
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return ClockReading(boot, min(tries)[1] // 1_000_000)


def _since_boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class AgreedClock:
    """Another's clock, in milliseconds, as far as it can be known from here; until the first answer, our own.

    It is shown in answer to a question, and its time was no later when we asked. We assume that it was: so ours is never
    behind it, and ahead of it by no more than question and answer took. Of several answers the quickest counts.
    """

    def __init__(self, ours: Callable[[], int]) -> None:
        self._ours = ours
        self._asked_ms = 0
        self._lead_ms: int | None = None  # of theirs over ours, at most

    def __call__(self) -> int:
        return self._ours() + (self._lead_ms or 0)

    def ask(self) -> None:
        """The question is on its way; every earlier one is answered."""
        self._asked_ms = self._ours()

    def on_answer(self, their_ms: int) -> int:
        """It showed this. Returns by how much ours is surely ahead of it; negative: behind; 0 where nothing is sure."""
        lead_ms = their_ms - self._asked_ms
        self._lead_ms = lead_ms if self._lead_ms is None else min(lead_ms, self._lead_ms)
        return max(0, -lead_ms) + min(0, self._ours() - their_ms)


def tries(limit_s: float) -> Iterator[float]:
    """For something that is tried until it works: how many seconds it took so far, with pauses between, that grow. One try is
    always made, and one more when the time is over."""
    began_s, pause_s, passed_s = time.monotonic(), FIRST_PAUSE_S, 0.0
    yield passed_s
    while passed_s < limit_s:
        time.sleep(min(pause_s, limit_s - passed_s))
        pause_s, passed_s = min(2 * pause_s, LONGEST_PAUSE_S), time.monotonic() - began_s
        yield passed_s


def end_of(now_ms: int) -> int:
    """When something that ends in this millisecond is surely over: a delay counted from its beginning would be short."""
    return now_ms + 1
