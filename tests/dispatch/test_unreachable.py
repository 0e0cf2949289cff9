"""How an unreachable reaper is reported: once and clearly, again when the reason changes, else ever more seldom."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from shepherd.dispatch.log_throttle import FIRST_GAP_S, LONGEST_GAP_S, LogThrottle
from shepherd.dispatch.reaper_sources import LocalReapd
from tests.dispatch.test_fleet import crew, source
from tests.support.driver import run


def test_unreachable_reaper_is_reported_once_with_its_address_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "none"

    async def work() -> None:
        async with crew([source(path)], each=2, local=LocalReapd("--workers=2")) as one:
            async with asyncio.timeout(60):
                while not all(place.failures > 3 for place in one.fleet._places if place.source is not one.fleet._local):
                    await asyncio.sleep(0.05)

    run(work())
    [line] = [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]
    assert line.startswith(f"unix:{path}: no reaper answers: ") and line.count(str(path)) == 1


def test_complaint_comes_again_at_growing_intervals_or_when_it_is_another() -> None:
    one, told = LogThrottle(), []
    for second in range(0, 20_000, 10):
        if one.due("a", "gone", float(second)):
            told.append(second)
    gaps = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert gaps[:2] == [FIRST_GAP_S, 2 * FIRST_GAP_S] and gaps == sorted(gaps) and gaps[-1] == LONGEST_GAP_S
    assert one.due("a", "refused", 20_000.0) and not one.due("a", "refused", 20_001.0)
    assert one.due("b", "gone", 20_001.0)
    one.settled("a")
    assert one.due("a", "gone", 20_002.0)
