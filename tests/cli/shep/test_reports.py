"""shep reports, run as a user runs it, on logs as the programs leave them, and on logs as people leave them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shepherd.report import logbook
from tests.support.page_states import Herd, Run, objects, stdout_of
from tests.worlds import NOW

REAP = {
    "start": NOW,
    "why": "the plan is done",
    "pages": 28,
    "wire_bytes": 279_986,
    "errors": {"client-error": 2, "robots-denied": 1},
    "results": {"stored": 25, "hard": 0},
    "busiest": [{"server": "127.1.0.35"}],
}


def cycle(number: int, **more: Any) -> dict[str, Any]:
    steps = [
        {"step": "shep-plan", "seconds": 1.5, "status": 0, "made": "000003.reap", "report": {"phase": "plan", "pages": 30}},
        {"step": "shep-reap", "seconds": 61.25, "status": 0, "report": REAP},
        {"step": "shep-merge", "seconds": 0.5, "status": 0, "made": "000004.merged", "report": {"new": number, "known": 0}},
        {"step": "shep-select", "seconds": 0.25, "status": 0, "report": {"forgotten": 3, "forgotten by reason": {"filter": 3}}},
    ]
    return {"start": NOW + number, "seconds": 63.5, "status": 0, "state": f"{number:06d}", "steps": steps} | more


def write(herd: Herd, name: str, lines: list[Any], torn: str = "") -> None:
    (herd.db / "log").mkdir(exist_ok=True)
    (herd.db / "log" / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)


def test_a_line_for_each_cycle(own_herd: Herd, shep: Run) -> None:
    write(own_herd, "cycles.jsonl", [cycle(1_000), cycle(2, status=12, stopped=15)])
    title, first, second = stdout_of(shep(own_herd, "reports")).splitlines()
    assert title.split()[:9] == ["begun", "took", "state", "planned", "pages", "errors", "bytes", "new", "forgotten"]
    assert first.split()[1:11] == ["63.5", "s", "001000", "30", "28", "3", "280.0", "kB", "1,000", "3"]
    assert first.endswith("  -  plan 1.5, reap 61.2, merge 0.5, select 0.2")
    assert "  12 stopped  plan" in second
    assert objects(shep(own_herd, "reports", "--json")) == [cycle(1_000), cycle(2, status=12, stopped=15)]


def test_newest_are_shown_and_the_newest_is_last(own_herd: Herd, shep: Run) -> None:
    write(own_herd, "cycles.jsonl", [cycle(n) for n in range(50)])
    assert [one["start"] - NOW for one in objects(shep(own_herd, "reports", "--json"))] == list(range(30, 50))
    assert [one["start"] - NOW for one in objects(shep(own_herd, "reports", "--json", "--limit", "2"))] == [48, 49]
    newer = shep(own_herd, "reports", "--json", "--newer", "10s", "--now", str(NOW + 55))
    assert [one["start"] - NOW for one in objects(newer)] == [45, 46, 47, 48, 49]


def test_steps_with_their_counters(own_herd: Herd, shep: Run) -> None:
    write(own_herd, "cycles.jsonl", [cycle(1), cycle(2)])
    lines = stdout_of(shep(own_herd, "reports", "--steps")).splitlines()
    assert len(lines) == 9
    assert lines[-1].endswith("forgotten 3, forgotten by reason (filter: 3)")
    title, *reaps = stdout_of(shep(own_herd, "reports", "--step", "reap")).splitlines()
    assert title.split()[:3] == ["cycle", "begun", "step"]
    expected = (
        "why the plan is done, pages 28, wire bytes 279,986, errors (client-error: 2, robots-denied: 1), results (stored: 25)"
    )
    assert [line.partition("-  ")[2].strip() for line in reaps] == [expected, expected]
    found = objects(shep(own_herd, "reports", "--step", "merge", "--step", "reap", "--json", "--limit", "3"))
    assert [(one["cycle"] - NOW, one["step"]) for one in found] == [(1, "shep-merge"), (2, "shep-reap"), (2, "shep-merge")]
    assert found[1]["report"] == REAP


def test_programs_that_were_run_by_hand(own_herd: Herd, shep: Run) -> None:
    lines = [{"program": "shep-merge", "start": NOW + 0.25, "wall_s": 7_200.06, "cpu_s": 1.5}, {"program": "torn"}]
    write(own_herd, "timings.jsonl", lines, '{"program": "shep-rec')
    assert objects(shep(own_herd, "reports", "--timings", "--json")) == lines[:1]
    _, line = stdout_of(shep(own_herd, "reports", "--timings")).splitlines()
    assert line.split() == ["2026-09-21T14:13:20Z", "shep-merge", "7,200.1", "s", "1.5", "s"]


def test_who_changed_what(own_herd: Herd, shep: Run) -> None:
    stdout_of(shep(own_herd, "insert", "--weight", "7", "http://a.example/x"))
    stdout_of(shep(own_herd, "refresh", "--site", "a.example", "--type", "gathered"))
    first, second = objects(shep(own_herd, "reports", "--changes", "--json"))
    assert (first["op"], first["urls"], first["set"]["weight"]) == ("insert", ["http://a.example/x"], 7)
    assert (second["op"], second["selectors"]) == ("refresh", ["--site", "a.example", "--type", "gathered"])
    lines = stdout_of(shep(own_herd, "reports", "--changes")).splitlines()
    assert "insert weight=7 " in lines[1] and "  http://a.example/x  " in lines[1]
    assert "  --site a.example --type gathered  " in lines[2]
    assert f"  {second['count']}  " in lines[2]


NONSENSE = [
    {"start": "yesterday", "steps": []},
    {"start": 1},
    {"start": NOW, "steps": [7, {}, {"step": "shep-reap", "report": []}, {"step": "shep-plan", "report": {"pages": "x"}}]},
    {"start": -(10**400), "steps": [], "seconds": 1e999, "state": "\x1b[2J", "status": None},
    {"time": NOW, "op": ["x"], "set": 3, "urls": "no list", "selectors": None, "count": {}, "by": "\x07"},
    {"program": None, "start": 1e308, "wall_s": "long"},
    [],
    None,
]  # fmt: skip


@pytest.mark.parametrize("what", ["", "--steps", "--timings", "--changes"])
def test_nonsense_in_a_log_is_no_bug_and_steers_no_terminal(own_herd: Herd, shep: Run, what: str) -> None:
    for name in ("cycles", "timings", "changes"):
        write(own_herd, f"{name}.jsonl", NONSENSE, "[" * 100_000 + "\n\xff\x00\n{")
    for form in ([], ["--json"]):
        text = stdout_of(shep(own_herd, "reports", *filter(None, [what]), *form))
        assert text
        assert "\x1b" not in text and "\x07" not in text


def test_log_is_read_from_its_end(own_herd: Herd, shep: Run) -> None:
    """Lines that lie across the blocks in which it is read are whole."""
    lines = [cycle(n, note="x" * (300_000 + 7 * n)) for n in range(12)]
    write(own_herd, "cycles.jsonl", lines)
    path = own_herd.db / "log" / "cycles.jsonl"
    assert path.stat().st_size > 3 * logbook.TAIL_BYTES
    assert list(logbook.newest_first(path)) == lines[::-1]
    assert objects(shep(own_herd, "reports", "--json")) == lines


@pytest.mark.parametrize(
    ("args", "said"),
    [([], "no cycle"), (["--steps"], "no such step"), (["--timings"], "no program"), (["--changes"], "no change")],
)
def test_new_database_has_no_history(herd: Herd, shep: Run, args: list[str], said: str) -> None:
    answer = shep(herd, "reports", *args)
    assert stdout_of(answer) == ""
    assert answer.stderr.decode().startswith(said)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--steps", "--changes"], "only one can be shown at a time"),
        (["--step", "sleep"], "is not one of"),
        (["--newer", "soon"], "90m, 12h, 30d"),
    ],
)
def test_bad_option_is_refused_in_one_sentence(herd: Herd, shep: Run, args: list[str], why: str) -> None:
    answer = shep(herd, "reports", *args)
    assert stdout_of(answer, 2) == ""
    assert why in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1
