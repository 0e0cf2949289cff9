"""Processes that belong together: how one of our programs starts another, and sees to it that none outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def command(program: str, *arguments: str) -> list[str]:
    """What starts another program of ours. It sees the same modules as we do: `python -I`, as bin/ has it, or not."""
    isolated = ["-I"] if sys.flags.isolated else []
    return [sys.executable, *isolated, "-m", "shepherd.cli", program, *arguments]


def dying_with_us() -> Callable[[], None]:
    """For a child to call between fork and exec."""
    parent = os.getpid()
    return lambda: die_with(parent)


def die_with(parent: int, number: int = signal.SIGTERM) -> None:
    """Have the system send this process a signal when its parent ends; at once, if it has ended already.

    Where the system cannot (it is Linux that can), a connection or pipe that ends must do.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
