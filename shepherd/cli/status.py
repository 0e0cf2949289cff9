"""How things stand, as `shepherd status` says it to a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shepherd.console.shared import many, moment, size


def lines(facts: dict[str, Any], now: int) -> Iterator[str]:
    running, disk = facts["running"], facts["disk"]
    yield f"running    {_who(running, now)}" if running else "running    nothing"
    if running and facts["now"]:
        yield f"now        {_progress(facts['now'], now)}"
    yield f"states     {', '.join(facts['states']) or 'none'}"
    if facts["fault"]:
        yield f"fault      {facts['fault']}"
    yield f"disk       {size(disk['states_bytes'])} in all states, {size(disk['free_bytes'])} free"
    yield f"buckets    {size(disk['segments_bytes'])}; cleaned up: {moment(facts['cleaned'], now)}"
    yield f"inbox      {', '.join(f'{count} {kind}' for kind, count in sorted(facts['inbox'].items())) or 'empty'}"
    yield from (f"lease      {_claim(lease, now)}" for lease in facts["leases"])
    yield from (f"cycle      {_past(cycle, now)}" for cycle in facts["cycles"])


def _who(running: dict[str, Any], now: int) -> str:
    who = running["who"] or "a program that has not said its name"
    what = f"a program that {who} has started (that process itself has ended)" if running["orphaned"] else who
    return f"{what}, since {moment(running['since'], now)}"


def _progress(notice: dict[str, Any], now: int) -> str:
    text = f"{notice['program']}, pid {notice['pid']}, {notice['phase']}, since {moment(int(notice['since']), now)}"
    if notice.get("total"):
        text += f": {notice['done']} of {many(notice['total'], notice['unit'])} ({100 * notice['done'] // notice['total']} %)"
    figures = ", ".join(f"{key} {value}" for key, value in notice.get("figures", {}).items())
    return f"{text}; {figures}" if figures else text


def _claim(lease: dict[str, Any], now: int) -> str:
    who = f"{lease['purpose']}, pid {lease['pid']}, {lease['owner']}"
    until = f"{'expired' if lease['expired'] else 'until'} {moment(lease['expires'], now)}"
    over = "over, because that process has ended" if lease["orphaned"] else until
    return f"state {lease['state']}: {who}, since {moment(lease['since'], now)}, {over}"


def _past(cycle: dict[str, Any], now: int) -> str:
    steps_text = ", ".join(f"{step['step'].removeprefix('shep-')} {step['seconds']:.1f}" for step in cycle["steps"])
    how = f", exit status {cycle['status']}" if cycle["status"] else ""
    return f"{moment(cycle['start'], now)}, {cycle['seconds']:.1f} s{how}: {cycle['state']} ({steps_text})"
