"""The soak: master, three reapers and the toy web, while a random process is killed every few seconds, the disk is full now and
then, and reapers vanish and come back; judged at quiet points and at the end by invariants I1 to I10.

Too long for every day, so its name is none that pytest looks for: `bin/test --soak MINUTES` names it, and says how long it lasts.
SHEPHERD_SOAK_SEED chooses another schedule.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.soak.schedule import What, schedule
from tests.soak.soaking import CLASSES, Soak
from tests.soak.stage import stage

MINUTES = float(os.environ.get("SHEPHERD_TEST_SOAK") or 2)
SEED = int(os.environ.get("SHEPHERD_SOAK_SEED") or 1)
LONG_S = 600  # then everything must have happened


def test_farm_keeps_all_its_promises_while_its_processes_are_killed(
    capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    began_s = time.monotonic()

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"soak {time.monotonic() - began_s:6.0f} s  {text}", flush=True)

    with stage() as one:
        soak = Soak(one, say)
        soak.run(schedule(SEED, MINUTES * 60), MINUTES * 60)
        soak.finish()
        record_property("score", ("soak: kills", [sum(soak.kills.values()), len(soak.violations), 0]))
        assert soak.violations == []
        assert soak.kills.total() > MINUTES * 60 / 10, "hardly anything was killed: nothing was tested"
        assert soak.ledger.inserted and soak.ledger.gathered and soak.ledger.reads, "nobody was told anything"
        assert soak.episodes[What.FULL] and soak.episodes[What.LOST] and soak.episodes[What.FROZEN]
        if MINUTES * 60 >= LONG_S:
            assert set(soak.kills) == set(CLASSES)
            assert one.master.statuses[12], "the full disk was not noticed"
