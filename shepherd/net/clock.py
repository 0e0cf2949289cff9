"""Time that cannot be set back: a step of the wall clock must neither hurry nor delay a contact."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock_ms() -> Callable[[], int]:
    """The wall clock as it is now, plus the time that passes from here on, in whole milliseconds that have passed."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000


def agreed_clock_ms(ours: Callable[[], int], asked_ms: int, their_ms: int) -> Callable[[], int]:
    """Another's clock, which showed `their_ms` some time after `asked_ms` of ours: it is never behind that, and ahead of it by
    no more than the time that the question and its answer took."""
    return lambda: ours() - asked_ms + their_ms


def end_of(now_ms: int) -> int:
    """When something that ends in this millisecond is surely over: a delay counted from its beginning would be short."""
    return now_ms + 1
