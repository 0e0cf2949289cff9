"""Every task that a phase makes can be run by a process that was not forked from it: by name, and to the same bytes.

So tasks may be given to other machines that share the directory of the database. A task goes through pickle to a process that was
started anew, and its result comes back through pickle.
"""

from __future__ import annotations

import ast
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shepherd.arrays.pool import Task
from shepherd.config import Config, load
from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.cork import drive as cork
from shepherd.cycle.equiv import drive as equiv
from shepherd.cycle.feedback import drive as feedback
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.plan import drive as plan
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.store.disk import names
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State
from shepherd.urls import ROBOTS_PATH
from tests.support import many_rows

PHASES: dict[str, Callable[[Writer, Config, int, Callable[[int], object]], State]] = {
    "cork": cork.run,
    "merge": merge.run,
    "equiv": equiv.run,
    "select": partial(select.run, force=True),  # weights are made up, and the brake would be right to stop it
    "record": record.run,
    "feedback": feedback.run,
    "cleanup": cleanup.run,
    "plan": plan.run,
}
# Limits of servers and sections, hard and soft, and of space, so that every pass of select has something to do; and room in the
# plan, so that something is anticipated.
CF = f"""
[store]
partition_rows = {many_rows.ROWS // 4}
[select]
gathered = {many_rows.ROWS}
sleeping = {many_rows.ROWS // 20}
space_bytes = 1_000_000
average_bytes = 1_000
server_share = 1
hard_factor = 3
[sections]
none = 200
html = 200
[plan]
refresh_s = 2_000_000
anticipate = 60
[cleanup]
reserve_bytes = 0
sparse = 99
"""
WORKER = """
import pickle, sys
while True:
    try:
        task = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    pickle.dump(task.run(), sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


@contextmanager
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Meanwhile every task is run by a process of its own; the names of the functions that were run."""
    functions: list[str] = []
    with subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        to_worker, from_worker = process.stdin, process.stdout

        def run(task: Task[Any, Any, Any]) -> Any:
            functions.append(f"{task.function.__module__}.{task.function.__qualname__}")
            pickle.dump(task, to_worker)
            to_worker.flush()
            return pickle.load(from_worker)

        with monkeypatch.context() as patch:
            patch.setattr(Task, "run", run)
            yield functions
        to_worker.close()
        assert process.wait(60) == 0


def run_phase(home: Path, name: str) -> dict[str, bytes]:
    """Run one phase in this process; the files of the state that it has made."""
    with Database(home / "db").writing("a test") as writer:
        state = PHASES[name](writer, load(home / "cf"), many_rows.NOW, lambda _rows: None)
    assert not [entry for entry in state.path.parent.iterdir() if names.is_leftover(entry.name)], "scratch files are left"
    return {str(path.relative_to(state.path)): path.read_bytes() for path in sorted(state.path.rglob("*")) if path.is_file()}


def functions_of_tasks() -> set[str]:
    """Every function that the source of the phases makes tasks of."""
    functions = set()
    for path in sorted((many_rows.ROOT / "shepherd" / "cycle").rglob("*.py")):
        module = ".".join(path.relative_to(many_rows.ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tasks":
                assert isinstance(node.args[0], ast.Name), f"{module}: a task is of a function of its module"
                functions.add(f"{module}.{node.args[0].id}")
    return functions


def test_tasks_of_all_phases_give_the_same_bytes_in_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    here = many_rows.make(tmp_path / "here", CF)
    delete_some(here)
    seen: set[str] = set()
    for name in PHASES:
        if name == "plan":
            (here / "cf" / "filter").write_text("reject ext zip\ndefault accept\n")  # by which no cleanup has judged yet
        there = shutil.copytree(here, tmp_path / name, symlinks=True)
        expected = run_phase(here, name)
        with fresh_process(monkeypatch) as functions:
            assert run_phase(there, name) == expected, name
        assert len(functions) > 1, f"{name} made no tasks"
        seen.update(functions)
        shutil.rmtree(there)
    assert seen == functions_of_tasks()


def delete_some(home: Path) -> None:
    """An operator deletes a few documents, so that a cleanup has tombstones to look for."""
    database = Database(home / "db")
    pages = (document.url for document in database.closed().documents() if not document.url.endswith(ROBOTS_PATH))
    database.inbox.drop(database.new_item_name(many_rows.NOW * 1000), [{"op": "delete", "url": next(pages)} for _ in range(3)])
