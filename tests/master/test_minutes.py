"""The line a minute that a reap leaves for the status page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shepherd.dispatch.statistics import Figures
from shepherd.master.minutes import Minutes
from shepherd.report.logbook import MINUTES


def lines(db: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (db / "log" / MINUTES).read_text().splitlines()]


def test_every_page_is_counted_in_one_minute(tmp_path: Path) -> None:
    minutes = Minutes(tmp_path, "000003.reap")
    for second in range(1, 131):
        minutes.show(Figures(10 * second, 1_000 * second, second // 10, 4, float(second)))
    minutes.end(Figures(1_350, 135_000, 13, 0, 135.5))
    found = lines(tmp_path)
    assert [(one["seconds"], one["pages"], one["wire_bytes"], one["errors"]) for one in found] == [
        (60, 600, 60_000, 6),
        (60, 600, 60_000, 6),
        (15.5, 150, 15_000, 1),
    ]
    assert {one["state"] for one in found} == {"000003.reap"} and found[0]["active"] == 4


def test_reap_of_less_than_a_minute_leaves_one_line(tmp_path: Path) -> None:
    minutes = Minutes(tmp_path, "000003.reap")
    minutes.end(Figures(7, 70, 0, 0, 0.5))
    minutes.end(Figures(7, 70, 0, 0, 0.5))
    assert [one["pages"] for one in lines(tmp_path)] == [7]


def test_log_that_cannot_be_written_does_not_end_the_reap(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no directory")
    Minutes(tmp_path, "000003.reap").end(Figures(7, 70, 0, 0, 0.5))
