"""Answers that are kept for a while, so that a page which many look at costs no more than one.

What took long is kept longer: however often it is asked for, looking takes at most a share of one core. What belongs to a
closed state is kept until there is a newer one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

MOST: Final = 64  # answers
SHARE: Final = 20  # times as long as it took to find out


@dataclass
class _Answer:
    turn: threading.Lock
    value: Any = None
    of: Hashable = None
    until_s: float = float("-inf")


class Cache:
    """For threads: of several that want the same answer at a time, one works, and the others wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Hashable, _Answer] = {}
        self._turn = threading.Lock()

    def get(self, key: Hashable, least_s: float, find: Callable[[], Any], of: Hashable = None) -> Any:
        """What `find` returns, or returned a moment ago for the same `of`."""
        answer = self._answer(key)
        with answer.turn:
            began_s = self._clock()
            if answer.of != of or began_s >= answer.until_s:
                answer.value, answer.of = find(), of
                took_s = self._clock() - began_s
                answer.until_s = began_s + max(least_s, SHARE * took_s)
            return answer.value

    def _answer(self, key: Hashable) -> _Answer:
        with self._turn:
            answer = self._answers.pop(key, None) or _Answer(threading.Lock())
            self._answers[key] = answer  # the last that was asked for stands last
            if len(self._answers) > MOST:
                del self._answers[next(iter(self._answers))]
            return answer
