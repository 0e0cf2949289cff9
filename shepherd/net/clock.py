"""Time that cannot be set back: a step of the wall clock must neither hurry nor delay a contact."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock_ms() -> Callable[[], int]:
    """The wall clock as it is now, plus the time that passes from here on, in whole milliseconds that have passed."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000


def agreeing_clock_ms(ours: Callable[[], int], their_ms: int, late_ms: int) -> Callable[[], int]:
    """Our clock, made to agree with another's, which showed `their_ms` at most `late_ms` ago.

    Where ours is behind it is wrong. Where it is ahead, what we were told may only have been under way for a while; so ours
    holds, unless it is ahead by more than that.
    """
    ahead_ms = ours() - their_ms
    return ours if 0 <= ahead_ms <= late_ms else lambda: ours() - ahead_ms


def end_of(now_ms: int) -> int:
    """When something that ends in this millisecond is surely over: a delay counted from its beginning would be short."""
    return now_ms + 1
