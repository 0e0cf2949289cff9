"""Several processes return what one would return, in its order, and none of them outlives the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shepherd.arrays.pool import ordered
from shepherd.errors import Corruption, ShepherdError

ROOT = Path(__file__).resolve().parents[2]


OTHERS: set[int] = set()  # children that other tests of this process have


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


def children() -> list[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found if int(pid) not in OTHERS]


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
def test_results_come_unchanged_and_in_order(jobs: int) -> None:
    def work(part: int) -> dict[str, object]:
        time.sleep(0.01 * (part % 3))  # so that workers overtake each other
        return {"part": part, "column": np.arange(part * 1000, dtype=np.uint64), "flags": np.zeros(part, np.bool_)}

    found = list(ordered(work, range(10), jobs))
    assert [one["part"] for one in found] == list(range(10))
    for part, one in enumerate(found):
        column = one["column"]
        assert isinstance(column, np.ndarray)
        assert column.dtype == np.uint64
        assert column.tolist() == list(range(part * 1000))
        column[:1] = 7  # results are the caller's own
    assert children() == []


def test_no_parts_give_no_results() -> None:
    assert list(ordered(lambda part: part, [], 4)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_error_of_a_worker_reaches_the_caller(jobs: int) -> None:
    def work(part: int) -> int:
        if part == 3:
            raise Corruption("index/norm at 0: the block is damaged")
        return part

    results = ordered(work, range(8), jobs)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Corruption, match="index/norm at 0"):
        next(results)
    assert children() == []


def test_killed_worker_is_reported_as_an_error() -> None:
    def work(part: int) -> int:
        if part == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    with pytest.raises(ShepherdError, match="a worker process died"):
        list(ordered(work, range(4), 2))
    assert children() == []


def test_workers_end_when_the_caller_stops_early() -> None:
    results = ordered(lambda part: np.zeros(1 << 20), range(100), 3)
    next(results)
    assert len(children()) == 3
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert children() == []


def test_workers_end_when_their_parent_is_killed() -> None:
    script = """
import os, time
from shepherd.arrays.pool import ordered
def work(part):
    if part:
        time.sleep(60)
    return os.getpid()
for pid in ordered(work, range(8), 2):
    print(pid, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")
