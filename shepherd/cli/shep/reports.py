"""shep reports: what past cycles, programs and operators did, by the logs in db/log. No state is opened.

A log is a file that people may edit, rotate and join: what is not as it should be in a line is skipped or shown unchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from shepherd.cli.shep import change_log as changelog
from shepherd.console import common, selector_words, shared
from shepherd.console import rows as console_rows
from shepherd.console.selectors import Parsed
from shepherd.errors import UsageError
from shepherd.report import logbook, reports

Entry = dict[str, Any]

LIMIT: Final = 20
STEPS: Final = ("feedback", "plan", "reap", "cork", "merge", "equiv", "select", "record", "cleanup", "rank", "recover")
TIMINGS: Final = "timings.jsonl"
CYCLE_TITLES: Final = (
    "begun", ">took", "state", ">planned", ">pages", ">errors", ">bytes", ">new", ">forgotten", ">status", "seconds of each step",
)  # fmt: skip
STEP_TITLES: Final = ("cycle begun", "step", ">took", ">status", "made", "counters")
TIMING_TITLES: Final = ("begun", "program", ">took", ">processor")
CHANGE_TITLES: Final = ("time", "by", "change", ">count", "of what", "item")


@click.command("reports")
@click.option("--steps", is_flag=True, help="A line for each program of a cycle, with its counters.")
@click.option(
    "--step",
    "named",
    type=click.Choice(STEPS),
    multiple=True,
    metavar="NAME",
    help="The same, of this step alone, such as merge or reap; may be repeated.",
)
@click.option("--timings", is_flag=True, help="Every run of a program, also by hand: wall and CPU seconds.")
@click.option("--changes", is_flag=True, help="What insert, delete, refresh and set requested: who, when, what.")
@click.option(
    "--newer",
    type=Parsed("age", selector_words.read_age),
    metavar="AGE",
    help="Only what started not longer ago than this: 45s, 90m, 12h, 30d, 2w.",
)
@console_rows.limited(LIMIT)
@common.database
@common.unconfigured
@common.timed
@common.jsonable
@common.standard
def command(
    steps: bool,
    named: tuple[str, ...],
    timings: bool,
    changes: bool,
    newer: int | None,
    limit: int,
    db: Path,
    now: int,
    as_json: bool,
) -> None:
    """Show the history of cycles, programs or changes. For each cycle: when, how long, what each step did. The newest is last.

    With --json it prints the lines of the logs unchanged; docs/operations.md describes their fields.

    \b
    Examples:
      shep reports
      shep reports --step reap --newer 7d
      shep reports --changes --limit 5
      shep reports --json | jq '[.start, .seconds]'
    """
    from shepherd.store.state.database import Database

    if (steps or bool(named)) + timings + changes > 1:
        raise UsageError("of --steps (or --step), --timings and --changes only one can be shown at a time")
    log = Database(db).log_path
    since = float("-inf") if newer is None else now - newer
    if timings:
        entries = _newest(log / TIMINGS, lambda entry: reports.number(entry.get("start")), since, limit)
        console_rows.show(entries, TIMING_TITLES, _timing, as_json, "no program is on record")
    elif changes:
        entries = _newest(log / changelog.CHANGES, lambda entry: reports.number(entry.get("time")), since, limit)
        console_rows.show(entries, CHANGE_TITLES, _change, as_json, "no change is on record")
    elif steps or named:
        entries = _last(_steps(log, since, {f"shep-{name}" for name in named}), limit)
        console_rows.show(entries, STEP_TITLES, _step, as_json, "no such step is on record")
    else:
        console_rows.show(_last(reports.cycles(log, since), limit), CYCLE_TITLES, _cycle, as_json, "no cycle is on record")


# --- what the logs have -----------------------------------------------------------------------------------------


def _newest(path: Path, when: Callable[[Entry], float], since: float, limit: int) -> list[Entry]:
    """The newest entries that have a time, the newest last. A clock may have been set back: what is too old ends nothing."""
    return _last((entry for entry in logbook.newest_first(path) if when(entry) and when(entry) >= since), limit)


def _last(newest_first: Iterator[Entry], limit: int) -> list[Entry]:
    return list(itertools.islice(newest_first, limit))[::-1]


def _steps(log: Path, since: float, names: set[str]) -> Iterator[Entry]:
    """Each step, with the time when its cycle began."""
    for cycle in reports.cycles(log, since):
        for step in reversed(cycle["steps"]):
            if isinstance(step, dict) and (not names or step.get("step") in names):
                yield {"cycle": cycle["start"], **step}


# --- as lines ---------------------------------------------------------------------------------------------------


def _cycle(cycle: Entry) -> tuple[Any, ...]:
    figures = reports.figures(cycle)
    ended = "" if figures["status"] == 0 else f"{figures['status']}"
    return (
        _time(figures["start"]),
        _seconds(figures["seconds"]),
        figures["state"],
        _count(figures["planned"]),
        _count(figures["pages"]),
        _count(figures["errors"]),
        shared.size(figures["wire_bytes"]),
        _count(figures["new"]),
        _count(figures["forgotten"]),
        f"{ended}{' stopped' if figures['stopped'] else ''}".strip() or None,
        ", ".join(f"{name} {seconds:.1f}" for name, seconds in figures["steps"]),
    )


def _step(step: Entry) -> tuple[Any, ...]:
    report = step.get("report")
    counters_text = ", ".join(_counters(report)) if isinstance(report, dict) else ""
    return (
        _time(step["cycle"]),
        reports.short(step),
        _seconds(step.get("seconds")),
        step.get("status"),
        step.get("made"),
        counters_text,
    )


def _timing(entry: Entry) -> tuple[Any, ...]:
    return _time(entry.get("start")), entry.get("program"), _seconds(entry.get("wall_s")), _seconds(entry.get("cpu_s"))


def _change(entry: Entry) -> tuple[Any, ...]:
    settings = entry.get("set")
    change = [
        str(entry.get("op")),
        *(f"{name}={value}" for name, value in (settings.items() if isinstance(settings, dict) else ())),
    ]
    what = [
        *_texts(entry.get("selectors")),
        *(f"--file {name}" for name in _texts(entry.get("files"))),
        *_texts(entry.get("urls")),
    ]
    count = f"{int(reports.number(entry.get('count'))):,}"
    return _time(entry.get("time")), entry.get("by"), " ".join(change), count, " ".join(what), entry.get("item")


def _count(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


def _counters(report: Entry, joint: str = " ") -> Iterator[str]:
    """What is not nothing, in words; lists, which name examples, are left to --json."""
    for key, value in report.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            if inner := list(_counters(value, ": ")):
                yield f"{name} ({', '.join(inner)})"
        elif key not in ("phase", "start") and isinstance(value, int | float | str) and value:
            yield f"{name}{joint}{value:,}" if isinstance(value, int | float) else f"{name}{joint}{value}"


def _time(value: Any) -> str:
    return shared.iso(max(int(reports.number(value)), 0))


def _seconds(value: Any) -> str:
    return f"{reports.number(value):,.1f} s"


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
