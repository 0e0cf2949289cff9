"""How much of each sweep a run takes: a sample that changes daily, a larger one with `bin/test --all`, everything with `--crash`.

The seed of the day is printed at the head of a run; `bin/test --seed N` repeats what was run with it. The processes of xdist
inherit it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

SEED: Final = int(os.environ.setdefault("SHEPHERD_TEST_SEED", time.strftime("%Y%m%d")))
IS_SWEEP: Final = bool(os.environ.get("SHEPHERD_TEST_CRASH"))
IS_ALL: Final = IS_SWEEP or bool(os.environ.get("SHEPHERD_TEST_ALL"))
IS_QUICK: Final = bool(os.environ.get("SHEPHERD_TEST_QUICK"))
EXAMPLES: Final = 200 if IS_SWEEP else 50 if IS_ALL else 10 if IS_QUICK else 20  # of each property


def examples(count: int) -> int:
    """For a property that has its own count of examples, which is that of `bin/test --all`."""
    return max(10, count * EXAMPLES // 50)


def dice(name: str) -> random.Random:
    """Chance for this sweep: the same all day, and another for each sweep."""
    return random.Random(f"{SEED} {name}")


def sample(points: Sequence[T], count: int, name: str, count_of_all: int = 0) -> list[T]:
    """Some of the points in their order: all of them in a full sweep, with --all `count_of_all` of them, else `count`."""
    wanted = max(count, count_of_all) if IS_ALL else count
    if IS_SWEEP or wanted >= len(points):
        return list(points)
    return [points[n] for n in sorted(dice(name).sample(range(len(points)), wanted))]


def of_the_day(cases: Iterable[T], count: int, name: str) -> list[T]:
    """Some of the cases of one promise that is proved for each of them alike, others every day: all of them with --all."""
    every = list(cases)
    return sample(every, count, name, len(every))


def step(sample_step: int, all_step: int = 0) -> int:
    """How far apart the points of a sweep are that counts through all of them: 1 in a full sweep."""
    return 1 if IS_SWEEP else (all_step or sample_step) if IS_ALL else sample_step


def first(steps: int, name: str) -> int:
    """Where a sweep in such steps begins: below the step, so that the days between them meet every point."""
    return dice(name).randrange(steps)
