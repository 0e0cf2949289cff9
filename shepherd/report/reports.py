"""What past cycles did, in figures, as db/log has it. No state is opened.

A log is a file that people may edit, rotate and join: what is not as it should be in a line is skipped or counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shepherd.report import logbook

Entry = dict[str, Any]


def cycles(log: Path, since: float) -> Iterator[Entry]:
    """Those that began then or later, the newest first. A clock may have been set back: what is too old ends nothing."""
    entries = logbook.newest_first(log / logbook.CYCLES)
    return (entry for entry in entries if logbook.is_cycle(entry) and entry["start"] >= since)


def figures(cycle: Entry) -> Entry:
    """What counts of one cycle; None where no step of it counted that."""
    steps = [step for step in cycle["steps"] if isinstance(step, dict)]
    reaps = _reports(steps, "shep-reap")
    return {
        "start": cycle["start"],
        "seconds": number(cycle.get("seconds")),
        "state": cycle.get("state"),
        "status": cycle.get("status"),
        "stopped": cycle.get("stopped"),
        "planned": _sum(_reports(steps, "shep-plan"), "pages"),
        "pages": _sum(reaps, "pages"),
        "errors": sum(_counts(reaps, "errors").values()),
        "error_classes": _counts(reaps, "errors"),
        "wire_bytes": _sum(reaps, "wire_bytes") or 0,
        "new": _sum(_reports(steps, "shep-merge"), "new"),
        "forgotten": _sum(_reports(steps, "shep-select"), "forgotten"),
        "steps": [[short(step), number(step.get("seconds"))] for step in steps],
    }


def short(step: Entry) -> str:
    """`merge` for shep-merge."""
    return str(step.get("step")).removeprefix("shep-")


def number(value: Any) -> float:
    return value if isinstance(value, int | float) and abs(value) < 2**63 else 0


def _reports(steps: list[Entry], name: str) -> list[Entry]:
    return [step["report"] for step in steps if step.get("step") == name and isinstance(step.get("report"), dict)]


def _sum(reports: list[Entry], counter: str) -> int | None:
    return sum(int(number(report.get(counter))) for report in reports) if reports else None


def _counts(reports: list[Entry], counter: str) -> dict[str, int]:
    """Of a counter by class, all reports together."""
    total: dict[str, int] = {}
    for report in reports:
        by_class = report.get(counter)
        for name, count in by_class.items() if isinstance(by_class, dict) else ():
            total[name] = total.get(name, 0) + int(number(count))
    return total
