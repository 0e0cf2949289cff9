"""The clock is wrong for a cycle: nobody is asked sooner than its delay, and nobody is silenced; by the log of the server.

The server looks at a clock that nobody sets.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shepherd.config import Politeness
from shepherd.politeness.delays import longest_lookup_s, longest_robots_s
from shepherd.store.state.database import Database
from tests.crash.test_politeness import PAGE, Garden, garden
from tests.support import sampling
from tests.support.origin import Answer
from tests.support.programs import call

pytestmark = pytest.mark.waits

HOUR_S, DAY_S = 3_600, 86_400
SHIFTS_S = (30 * DAY_S, 28_876 * DAY_S, -HOUR_S, -30 * DAY_S)
DELAY_S = 1.0
PAGES: dict[str, Answer] = {f"a.example/{n}": PAGE for n in range(3)}


def run(one: Garden, ahead_s: int, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    db, cf = str(one.home / "db"), str(one.home / "cf")
    return call(program, *args, CLOCK_AHEAD_S=str(ahead_s), SHEPHERD_DB=db, SHEPHERD_CF=cf)


def cycle(one: Garden, ahead_s: int, *refresh: str) -> int:
    """A cycle by a clock that is so far ahead, after these URLs were asked for anew; how often the server was asked."""
    before = len(one.origin.spans)
    if refresh:
        assert run(one, ahead_s, "shep", "refresh", *refresh).returncode == 0
        for phase in ("merge", "select", "record"):
            assert run(one, ahead_s, f"shep-{phase}", "-q").returncode == 0, phase
    for phase in ("plan", "reap", "cork"):
        done = run(one, ahead_s, f"shep-{phase}", "-q", *(("--seconds", "30") if phase == "reap" else ()))
        assert done.returncode == 0, f"{phase}: {done.stderr}"
    return len(one.origin.spans) - before


@pytest.mark.parametrize("ahead_s", sampling.of_the_day(SHIFTS_S, 2, "clocks"))
def test_server_is_neither_hurried_nor_silenced_there_and_back(tmp_path: Path, ahead_s: int) -> None:
    """A cycle at the true time, one by the wrong clock, and two at the true time: each asks the server again."""
    with garden(tmp_path, PAGES, delay_s=DELAY_S) as one:
        one.must("shep-init", "-q")
        one.plan("http://a.example/0")
        one.must("shep-reap", "--seconds", "30")
        one.must("shep-cork", "-q")
        for now_ahead_s in (ahead_s, 0, 0):
            assert cycle(one, now_ahead_s, "http://a.example/0") >= 1
            unsure_s = Database(one.home / "db").closed().control.unsure // 1000
            assert unsure_s, "the reap did not see that the clock was set"
        assert min(one.origin.gaps_s()) >= DELAY_S
        state = Database(one.home / "db").closed()
        now, politeness = state.control.now, Politeness()
        assert state.servers["next_ms"].value(0) <= now * 1000 + 5_000
        assert state.index["checked"][0 : state.index.rows].max() <= now
        assert state.sites["robots_next"].value(0) <= now + longest_robots_s(politeness)
        assert state.sites["qkey_next"].value(0) <= now + longest_lookup_s(politeness)
