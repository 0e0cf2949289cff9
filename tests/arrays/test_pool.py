"""Several processes return what one would return, in its order, and none of them outlives the work."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from shepherd.arrays.pool import Task, ordered, tasks
from shepherd.errors import Corruption, ShepherdError
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State

ROOT = Path(__file__).resolve().parents[2]


OTHERS: set[int] = set()  # children that other tests of this process have


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


@pytest.fixture
def state(tmp_path: Path) -> State:
    return Database.create(tmp_path / "db", bytes(16), 1).closed()


def children() -> list[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found if int(pid) not in OTHERS]


def arrays_of(_state: State, pause_s: float, part: int) -> dict[str, object]:
    time.sleep(pause_s * (part % 3))  # so that workers overtake each other
    return {"part": part, "column": np.arange(part * 1000, dtype=np.uint64), "flags": np.zeros(part, np.bool_)}


def fail_at(_state: State, bad: int, part: int) -> int:
    if part == bad:
        raise Corruption("index/norm at 0: the block is damaged")
    return part


def die_at(_state: State, bad: int, part: int) -> int:
    if part == bad:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def zeros(_state: State, count: int, _part: int) -> npt.NDArray[np.float64]:
    return np.zeros(count)


def state_object(state: State, _shared: None, _part: int) -> int:
    return id(state)


def rows_in(state: State, table: str, _part: int) -> int:
    rows: int = getattr(state, table).rows
    return rows


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
def test_results_come_unchanged_and_in_order(state: State, jobs: int) -> None:
    results = list(ordered(tasks(arrays_of, state, 0.01, range(10)), jobs))
    assert [result["part"] for result in results] == list(range(10))
    for part, result in enumerate(results):
        column = result["column"]
        assert isinstance(column, np.ndarray)
        assert column.dtype == np.uint64
        assert column.tolist() == list(range(part * 1000))
        column[:1] = 7  # results are the caller's own
    assert children() == []


def test_no_parts_give_no_results(state: State) -> None:
    assert list(ordered(tasks(zeros, state, 1, []), 4)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_error_of_a_worker_reaches_the_caller(state: State, jobs: int) -> None:
    results = ordered(tasks(fail_at, state, 3, range(8)), jobs)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Corruption, match="index/norm at 0"):
        next(results)
    assert children() == []


def test_killed_worker_is_reported_as_an_error(state: State) -> None:
    with pytest.raises(ShepherdError, match=r"worker process was killed, .* memory ran short.* lower store\.partition_rows"):
        list(ordered(tasks(die_at, state, 2, range(4)), 2))
    assert children() == []


def test_workers_end_when_the_caller_stops_early(state: State) -> None:
    results = ordered(tasks(zeros, state, 1 << 20, range(100)), 3)
    next(results)
    assert len(children()) == 3
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert children() == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_worker_has_what_its_parent_has_opened(state: State, jobs: int) -> None:
    assert set(ordered(tasks(state_object, state, None, range(4)), jobs)) == {id(state)}


def test_task_that_was_passed_on_opens_the_state_once(tmp_path: Path) -> None:
    """Here as in a process that has nothing open."""
    path = Database.create(tmp_path / "db", bytes(16), 1).closed().path
    passed_on = [pickle.loads(pickle.dumps(Task(state_object, path, None, part))) for part in range(3)]
    assert len({task.run() for task in passed_on}) == 1
    assert Task(rows_in, path, "index", 0).run() == 0


def test_workers_end_when_their_parent_is_killed(state: State) -> None:
    script = """
import os, sys, time
from pathlib import Path
from shepherd.arrays.pool import Task, ordered
def work(state, shared, part):
    if part:
        time.sleep(60)
    return os.getpid()
for pid in ordered([Task(work, Path(sys.argv[1]), None, part) for part in range(8)], 2):
    print(pid, flush=True)
"""
    command = [sys.executable, "-c", script, str(state.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")
