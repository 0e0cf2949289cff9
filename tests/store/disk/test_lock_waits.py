"""Who waits for a lock says for whom, and does not wait for ever: a stopped process keeps its locks for as long as it likes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd import clock
from shepherd.errors import Locked
from shepherd.store.disk import locks, names
from tests.support.programs import ROOT, call
from tests.support.segment_states import fill
from tests.support.serving import flock, serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.waits

HOLD = """
import os, signal, sys
from pathlib import Path
from shepherd.store.disk import locks

lock = locks.lock(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextlib.contextmanager
def stopped_holder(path: Path, what: str = "a reader or deleter") -> Iterator[int]:
    """A process that has the lock, and was stopped; it is killed with the block."""
    command = [sys.executable, "-c", HOLD, str(path), what]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    fill(tmp_path, flock(3))
    (tmp_path / "cf").mkdir(exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("program", [("shep", "list"), ("shepherd", "cycle"), ("shep-recover",), ("shep", "lock", "newest")])
def test_program_that_waits_for_a_stopped_one_says_so_and_gives_up(home: Path, program: tuple[str, ...]) -> None:
    db = home / "db"
    with stopped_holder(db / names.LEASES / names.LOCK) as pid:
        place = ("--db", str(db), *(("--cf", str(home / "cf")) if program != ("shep", "lock", "newest") else ()))
        done = call(*program, *place, SHEPHERD_LOCK_WAIT_S="2.5")
    assert done.returncode == Locked.exit_status, done
    who = rf"lease/lock is held by a reader or deleter, pid {pid} on [^ ]+ \(stopped by a signal: kill -CONT {pid} continues it\)"
    waits, gives_up = (re.search(who + rest, done.stderr) for rest in (r", since 20\S+Z; waiting", r", since 20\S+, and did not"))
    assert waits and gives_up and waits.start() < gives_up.start(), done.stderr


def test_holder_of_the_lock_of_the_database_is_described(home: Path) -> None:
    with stopped_holder(home / "db" / names.LOCK, "shep-merge") as pid:
        done = call("shep-merge", "--db", str(home / "db"))
    assert done.returncode == 3 and f"held by shep-merge, pid {pid} on" in done.stderr
    assert f"kill -CONT {pid}" in done.stderr and "wait for it to end, or stop it" in done.stderr


def test_server_says_that_it_cannot_take_a_lease_now(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHEPHERD_LOCK_WAIT_S", "0.2")
    with serving(home) as served, stopped_holder(home / "db" / names.LEASES / names.LOCK):
        refused = served.ask("/v1/leases", "POST", data='{"purpose": "x"}')
        assert refused.status_code == 503 and int(refused.headers["Retry-After"]) > 0
        assert any("did not come free" in event.get("text", "") for event in served.events())


def test_waiter_gets_the_lock_when_the_stopped_process_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lock"
    taken: list[locks.FileLock] = []
    with caplog.at_level(logging.WARNING, "shepherd"), stopped_holder(path) as pid:
        waiter = threading.Thread(target=lambda: taken.append(locks.lock(path, "us", wait=True)))
        waiter.start()
        wait_until(lambda: f"pid {pid} on" in caplog.text)
        os.kill(pid, signal.SIGCONT)  # it comes to its end
        waiter.join()
    assert f"us, pid {os.getpid()} on" in locks.text_of(path)
    taken[0].release()


def test_wait_that_is_no_number_is_refused(home: Path) -> None:
    for text in ("x", "-1", "nan", "inf"):
        done = call("shep", "list", "--db", str(home / "db"), SHEPHERD_LOCK_WAIT_S=text)
        assert done.returncode == 2 and "SHEPHERD_LOCK_WAIT_S" in done.stderr


def test_something_is_tried_once_and_at_the_end_of_its_time() -> None:
    assert list(clock.tries(0.0)) == [0.0]
    passed_s = list(clock.tries(0.05))
    assert passed_s == sorted(passed_s) and len(passed_s) > 2 and passed_s[-2] < 0.05 <= passed_s[-1]
