"""A worker that is stuck in native code, where no handler and no event loop runs, and nobody watches: the system ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.driver import HTML, LINKS
from tests.support.origin import Answer, ok
from tests.support.reaping import ROOT, BoardView, Home, planned, scripted_reapd
from tests.support.waiting import PATIENCE_S, children, wait_until

pytestmark = pytest.mark.waits

STUCK = b"<p>a page at which the parser never ends</p>"
PARSE_S, SPARE_S = 1.0, 1.0
# As bin/reapd, with a parser that has a bug: at one page it never comes back.
REAPD = f"""
import re, sys
from pathlib import Path
from shepherd.addresses import UnixAddress
from shepherd.reaper.document import extract
from shepherd.reaper.process import reapd, worker
from shepherd.reaper.process.limits import WorkerLimits
whole = extract.extract
def stuck(body, *rest):
    if body == {STUCK!r}:
        re.fullmatch("(a*)*b", "a" * 60)  # for hours, and never back in the interpreter
    return whole(body, *rest)
extract.extract = stuck
worker.SPARE_CPU_S = {SPARE_S}
reapd.main(UnixAddress(Path(sys.argv[1])), WorkerLimits(workers=2, parse_s={PARSE_S}), None, "nobody")
"""
SPINNER = """
import time
from shepherd.reaper.process import confine
def spin(until):
    while time.process_time() < until:
        pass
for second in (0.5, 1.0, 1.5):
    confine.allow_cpu(1)
    spin(second)
print("alive", flush=True)
spin(30)
"""


def test_process_that_raises_its_limit_lives_and_one_that_cannot_is_killed() -> None:
    spinner = subprocess.run(
        [sys.executable, "-c", SPINNER], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert spinner.stdout == "alive\n"
    assert spinner.returncode == -signal.SIGXCPU


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until_dead(pid: int) -> None:
    """Its parent, who is stopped, has not buried it."""
    wait_until(lambda: state_of(pid) == "Z")


def test_worker_that_is_stuck_while_the_watchdog_is_stopped_dies_and_its_page_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    homes: list[Home] = []

    def last(connection: socket.socket) -> None:
        """When the other page has been answered."""
        while "other.example/y" not in homes[0].request_counts():
            time.sleep(0.01)
        time.sleep(0.3)
        connection.sendall(ok(STUCK, HTML))

    routes: dict[str, Answer] = {"stuck.example/x": last, "other.example/y": ok(LINKS, HTML)}
    urls = [f"http://{route}" for route in routes]
    reapers = [f"unix:{path}"]
    with scripted_reapd(path, REAPD) as process, planned(tmp_path, routes, urls, reapers, servers=2, timeout_s=60) as made:
        homes.append(made)
        board = BoardView(process.pid, workers=2)
        reaping = made.start("shep-reap", "-q")
        while not (board.busy() and made.request_counts()["stuck.example/x"] and made.request_counts()["other.example/y"]):
            assert reaping.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGSTOP)
        (doomed,) = children(process.pid)
        wait_until_dead(doomed)
        used = sum(map(int, Path(f"/proc/{doomed}/stat").read_text().rpartition(")")[2].split()[11:13]))
        assert used / os.sysconf("SC_CLK_TCK") >= SPARE_S + PARSE_S - 1, "something else ended it"
        os.kill(process.pid, signal.SIGCONT)
        _, log = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode == 0, log
        made.must("shep-cork", "-q")
        fates = made.fates()
        assert fates["http://stuck.example/x"] == ("error", "parser")
        assert fates["http://other.example/y"] == ("gathered", "gathered")
