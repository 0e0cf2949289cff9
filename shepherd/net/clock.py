"""Time that cannot be set back: a step of the wall clock must neither hurry nor delay a contact."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock_ms() -> Callable[[], int]:
    """The wall clock as it is now, plus the time that passes from here on."""
    offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
    return lambda: time.monotonic_ns() // 1_000_000 + offset_ms
