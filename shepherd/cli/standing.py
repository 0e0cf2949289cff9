"""How things stand: what runs and how far it is, the last cycles, states and disk, leases, the inbox. For `shepherd status`.

Nothing is locked, leased or changed, and whatever is half way at the moment is told as far as it can be seen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.cli import common, progress
from shepherd.cli.shep_shared import many, moment, size
from shepherd.errors import ShepherdError
from shepherd.telling import logbook

if TYPE_CHECKING:
    from shepherd.store.database import Database


def find(db: Path, now: int, count: int) -> dict[str, Any]:
    """All of it, as plain data."""
    from shepherd.store.database import Database

    database = Database(db)
    return {
        "db": str(db),
        "running": _running(db),
        "now": _now(db),
        "states": [str(name) for name in database.states()],
        "fault": _fault(database),
        "disk": _disk(database),
        "cleaned": _cleaned(database),
        "leases": [_lease(asdict(lease), now) for lease in database.leases.all()],
        "inbox": dict(Counter(item.kind for item in database.inbox.all_items())),
        "cycles": [_cycle(entry) for entry in logbook.cycles(database.log_path)[-count:]] if count else [],
    }


def _running(db: Path) -> dict[str, Any] | None:
    """Who holds the lock, and since when. Where the system does not tell, the process that took it counts."""
    from shepherd.store import locks, names

    path = db / names.LOCK
    text, held = locks.text_of(path), locks.is_held(path)
    if held is None:
        held = bool(text) and not locks.is_taker_gone(text)
    return {"who": text, "since": int(path.stat().st_mtime), "orphaned": locks.is_taker_gone(text)} if held else None


def _now(db: Path) -> dict[str, Any] | None:
    """What a program told last, if it is still there."""
    told = progress.read(db)
    try:
        os.kill(int(told["pid"]), 0)
    except PermissionError:
        return told
    except (KeyError, ValueError, TypeError, OSError, OverflowError):
        return None
    return told


def _fault(database: Database) -> str:
    """Why the directory that is furthest along cannot be opened, if so: the next cycle would say it, too."""
    before = database.states()
    try:
        database.furthest()
    except ShepherdError as error:
        return common.with_advice(error) if database.states() == before else ""  # it has gone meanwhile, for a newer one
    return ""


def _disk(database: Database) -> dict[str, int]:
    """Bytes on the disk of all states together, each file once; those of the newest closed state's segments; what is free."""
    seen: dict[tuple[int, int], int] = {}
    for directory, _below, files in os.walk(database.states_path):
        for name in files:
            try:
                status = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue  # a state that is being deleted
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    disk = os.statvfs(database.states_path)
    return {
        "states_bytes": sum(seen.values()),
        "segments_bytes": _segments(database),
        "free_bytes": disk.f_bavail * disk.f_frsize,
    }


def _segments(database: Database) -> int:
    from shepherd.store import names

    try:
        files = database.closed().control.files
    except ShepherdError:
        return 0
    return sum(entry.length for path, entry in files.items() if path.startswith(f"{names.OBJECTS}/"))


def _cleaned(database: Database) -> int:
    try:
        return database.closed().control.cleaned
    except ShepherdError:
        return 0


def _lease(lease: dict[str, Any], now: int) -> dict[str, Any]:
    """When it was taken is what its name begins with, in milliseconds."""
    return lease | {"since": int(lease["name"].partition("-")[0]) // 1000, "expired": lease["expires"] <= now}


def _cycle(entry: dict[str, Any]) -> dict[str, Any]:
    """A line of the log without the reports in it."""
    steps = [{key: step[key] for key in ("step", "seconds", "status", "made") if key in step} for step in entry["steps"]]
    return {key: value for key, value in entry.items() if key != "steps"} | {"steps": steps}


# --- for people -------------------------------------------------------------------------------------------------


def lines(found: dict[str, Any], now: int) -> Iterator[str]:
    running, disk = found["running"], found["disk"]
    yield f"running    {_who(running, now)}" if running else "running    nothing"
    if running and found["now"]:
        yield f"now        {_progress(found['now'], now)}"
    yield f"states     {', '.join(found['states']) or 'none'}"
    if found["fault"]:
        yield f"fault      {found['fault']}"
    yield f"disk       {size(disk['states_bytes'])} in all states, {size(disk['free_bytes'])} free"
    yield f"buckets    {size(disk['segments_bytes'])}; cleaned up: {moment(found['cleaned'], now)}"
    yield f"inbox      {', '.join(f'{count} {kind}' for kind, count in sorted(found['inbox'].items())) or 'empty'}"
    yield from (f"lease      {_claim(lease, now)}" for lease in found["leases"])
    yield from (f"cycle      {_past(cycle, now)}" for cycle in found["cycles"])


def _who(running: dict[str, Any], now: int) -> str:
    who = running["who"] or "a program that has not said its name"
    what = f"a program that {who} has started (that process itself has ended)" if running["orphaned"] else who
    return f"{what}, since {moment(running['since'], now)}"


def _progress(told: dict[str, Any], now: int) -> str:
    text = f"{told['program']}, pid {told['pid']}, {told['phase']}, since {moment(int(told['since']), now)}"
    if told.get("total"):
        text += f": {told['done']} of {many(told['total'], told['unit'])} ({100 * told['done'] // told['total']} %)"
    figures = ", ".join(f"{key} {value}" for key, value in told.get("figures", {}).items())
    return f"{text}; {figures}" if figures else text


def _claim(lease: dict[str, Any], now: int) -> str:
    who = f"{lease['purpose']}, pid {lease['pid']}, {lease['owner']}"
    until = "expired" if lease["expired"] else "until"
    return f"state {lease['state']}: {who}, since {moment(lease['since'], now)}, {until} {moment(lease['expires'], now)}"


def _past(cycle: dict[str, Any], now: int) -> str:
    made = ", ".join(f"{step['step'].removeprefix('shep-')} {step['seconds']:.1f}" for step in cycle["steps"])
    how = f", exit status {cycle['status']}" if cycle["status"] else ""
    return f"{moment(cycle['start'], now)}, {cycle['seconds']:.1f} s{how}: {cycle['state']} ({made})"
