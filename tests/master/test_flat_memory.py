"""A master runs for years: what it holds does not grow with its cycles, nor with the logs that they fill."""

from __future__ import annotations

import gc
import json
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from shepherd.config import Config
from shepherd.console import common, phase
from shepherd.master import cleanup_due
from shepherd.master.cycle_run import CycleOptions, CycleRun
from shepherd.master.cycle_table import CLEANUP, PLAN, RANK
from shepherd.report import logbook
from shepherd.store.disk import names
from shepherd.store.state import database
from shepherd.store.state.database import Database
from tests.master.test_master import ROOT, Unsignalled
from tests.support.sound import KEY, NOW

FEW, MANY = 60, 600  # cycles in a log of some pieces, and in one of as many times more
WARM, COUNTED = 10, 20
MOST_BLOCKS = 20  # of memory, that a cycle may seem to leave: the interpreter has caches of its own


def fill_logs(log: Path, cycles: int) -> None:
    """As that many cycles leave them, each with reports of some kB."""
    log.mkdir(parents=True)
    report = {f"counter {number}": number for number in range(200)}
    steps = [{"step": step, "seconds": 1.0, "status": 0, "report": report} for step in ("shep-reap", "shep-merge")]
    for name, line in ((logbook.CYCLES, {"start": NOW, "status": 0, "steps": steps}), (logbook.REAPS, report)):
        (log / name).write_bytes((json.dumps(line).encode() + b"\n") * cycles)


def peak(log: Path) -> int:
    """The most memory that the questions of one cycle to the logs take."""
    tracemalloc.start()
    try:
        assert cleanup_due.last_try(log, CLEANUP) == 0
        assert logbook.cycles_since(log, RANK, 9) == 9
        assert phase.last_reap(log.parent)["counter 7"] == 7
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_long_logs_take_no_more_memory_than_short_ones(tmp_path: Path) -> None:
    peaks: list[int] = []
    for cycles in (FEW, FEW, MANY):  # the first warms up
        log = tmp_path / str(len(peaks)) / names.LOGS
        fill_logs(log, cycles)
        assert (log / logbook.CYCLES).stat().st_size > 3 * logbook.PIECE_BYTES
        peaks.append(peak(log))
    assert peaks[2] < peaks[1] * 1.2, peaks


@pytest.mark.parametrize("status", [4, 1])
def test_cycles_leave_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Idle ones, and ones that fail and log a line each."""
    database.create(tmp_path / "db", KEY, NOW, 0)
    monkeypatch.setattr(common.LOG, "disabled", True)  # whoever runs tests keeps what is logged
    monkeypatch.setattr(CycleRun, "_start", lambda _self, step: status if step == PLAN else 4)
    config = Config(directory=ROOT / "cf")
    with Database(tmp_path / "db").writing("a test") as writer:
        held = os.open(tmp_path / "db" / names.LOCK, os.O_RDWR)
        options = CycleOptions(config, Unsignalled(), held, on_reap=lambda: None)

        def cycles(count: int) -> int:
            for _ in range(count):
                assert CycleRun(writer, options).run() == status
            gc.collect()
            return sys.getallocatedblocks()

        before = cycles(WARM)
        assert cycles(COUNTED) - before < COUNTED * MOST_BLOCKS
        os.close(held)


def test_line_that_is_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    lines = [{"a": "x" * logbook.PIECE_BYTES * 5}, {"b": 1}, {"c": "y" * logbook.PIECE_BYTES}]
    (tmp_path / "log").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert list(logbook.newest_first(tmp_path / "log")) == lines[::-1]
    assert list(logbook.newest_first(tmp_path / "log", logbook.PIECE_BYTES * 2)) == lines[:0:-1]
