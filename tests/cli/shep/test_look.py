"""shep stats and top, run as a user runs them, on a small database of known content."""

from __future__ import annotations

import pytest

from shepherd.cli.shep.stats import bars
from tests.support.page_states import Herd, Run, objects, stdout_of

# --- stats


def test_stats_count_what_is_there(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "stats", "--json", "--now", str(herd.now)))
    assert (found["rows"], found["pages"], found["robots_files"]) == (11, 10, 1)
    assert found["types"] == {"sleeping": 1, "ungathered": 2, "gathered": 4, "error": 2, "forgotten": 1}
    assert found["statuses"] == {"none": 4, "200": 3, "301": 1, "404": 1, "410": 1}
    assert found["reasons"]["client-error"] == 1
    assert found["sections"] == {"none": 10}
    assert found["checked"] == {"under a week": 6, "never": 4}
    assert sum(found["weights"].values()) == 10
    assert (found["sites"], found["sites_resolved"], found["servers"], found["sites_robots_unreachable"]) == (3, 1, 1, 1)
    assert found["sites_not_looked_up"] == 2
    assert found["stored_bytes"] == found["segment_bytes"] > 0


@pytest.mark.parametrize(
    ("args", "types"),
    [
        (["--site", "b.example"], {"gathered": 1}),
        (["--status", "4xx"], {"error": 2}),
        (["--glob", "*e*", "--weight", "49000.."], {"ungathered": 1, "gathered": 3}),
        (["http://a.example/gone", "http://a.example/asleep"], {"error": 1, "sleeping": 1}),
        (["--section", "pdf"], {}),
    ],
)
def test_stats_of_what_selectors_choose(herd: Herd, shep: Run, args: list[str], types: dict[str, int]) -> None:
    (found,) = objects(shep(herd, "stats", "--json", *args))
    assert found["types"] == types
    assert found["pages"] == sum(types.values())
    assert "sites" not in found  # of which nobody said which are meant
    text = stdout_of(shep(herd, "stats", *args))
    assert f"{found['rows']} row{'s' * (found['rows'] != 1)} chosen: " in text


def test_stats_of_an_unknown_url_are_status_2(herd: Herd, shep: Run) -> None:
    answer = shep(herd, "stats", "http://a.example/gone", "http://a.example/\x1b[2Jnever")
    assert "1 row chosen: 1 page and 0 robots files" in stdout_of(answer, 2)
    assert "\\x1b[2Jnever: " in answer.stderr.decode()
    assert b"\x1b" not in answer.stderr


def test_stats_draw_bars_within_80_columns(herd: Herd, shep: Run) -> None:
    text = stdout_of(shep(herd, "stats", "--now", str(herd.now)))
    assert "11 rows: 10 pages and 1 robots file\n" in text
    assert "3 sites: 2 not looked up yet, 0 without an address that may be asked,\n  1 with an unreachable robots.txt\n" in text
    assert "\n  gathered    4   40.0%  " + 40 * "#" + "\n" in text
    assert "\n  error       2   20.0%  " + 20 * "#" + "\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_bars_of_long_labels_and_large_counts_fit() -> None:
    title, *lines = bars("reason", {"x" * 38: 123_456_789_012, "short": 1, "none": 0})
    assert title == "reason"
    assert len(lines[0]) == 80
    assert lines[0].endswith("100.0%  " + 13 * "#")
    assert lines[1].endswith("0.0%  #")  # what is there at all is seen
    assert lines[2].endswith("0.0%")
    assert len({line.index("%") for line in lines}) == 1


def test_stats_of_an_empty_state(herd: Herd, shep: Run) -> None:
    assert "0 rows: 0 pages and 0 robots files" in stdout_of(shep(herd, "stats", "--state", "1"))
    (found,) = objects(shep(herd, "stats", "--state", "1", "--json"))
    assert (found["types"], found["checked"], found["weights"]) == ({}, {}, {})
