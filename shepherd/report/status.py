"""How things stand: what runs and how far it is, the last cycles, states and disk, leases, the inbox.

For `shepherd status` and the status page.
Nothing is locked, leased or changed, and whatever is half way at the moment is reported as far as it can be seen.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd import text as words
from shepherd.errors import ShepherdError
from shepherd.report import logbook

if TYPE_CHECKING:
    from shepherd.store.state.database import Database
    from shepherd.store.state.lease import Lease


def find(db: Path, now: int, count: int) -> dict[str, Any]:
    """All of it, as plain data."""
    from shepherd.store.state.database import Database

    database = Database(db)
    return {
        "db": str(db),
        "running": _running(db),
        "now": _now(db),
        "states": [str(name) for name in database.states()],
        "fault": _fault(database),
        "disk": _disk(database),
        "cleaned": _cleaned(database),
        "leases": [_lease(lease, now) for lease in database.leases.all()],
        "inbox": dict(Counter(item.kind for item in database.inbox.all_items())),
        "cycles": [_cycle(entry) for entry in logbook.cycles(database.log_path)[-count:]] if count else [],
    }


def _running(db: Path) -> dict[str, Any] | None:
    """Who holds the lock, and since when. Where the system does not say, the process that took it counts."""
    from shepherd.store.disk import locks, names

    path = db / names.LOCK
    text, is_running = locks.text_of(path), locks.is_held(path)
    if is_running is None:
        is_running = bool(text) and not locks.is_taker_gone(text)
    return {"who": text, "since": int(path.stat().st_mtime), "orphaned": locks.is_taker_gone(text)} if is_running else None


def _now(db: Path) -> dict[str, Any] | None:
    """What a program reported last, if it is still there."""
    from shepherd.store.disk import names

    notice = logbook.now(db / names.LOGS)
    try:
        os.kill(int(notice["pid"]), 0)
    except PermissionError:
        return notice
    except (KeyError, ValueError, TypeError, OSError, OverflowError):
        return None
    return notice


def _fault(database: Database) -> str:
    """Why the directory that is furthest along cannot be opened, if so: the next cycle would say it, too."""
    before = database.states()
    try:
        database.furthest()
    except ShepherdError as error:
        return words.with_advice(error) if database.states() == before else ""  # it has gone meanwhile, for a newer one
    return ""


def _disk(database: Database) -> dict[str, int]:
    """Bytes on the disk of all states together, each file once; those of the newest closed state's segments; what is free."""
    bytes_of_file: dict[tuple[int, int], int] = {}
    for directory, _below, files in os.walk(database.states_path):
        for name in files:
            try:
                status = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue  # a state that is being deleted
            bytes_of_file[status.st_dev, status.st_ino] = status.st_blocks * 512
    disk = os.statvfs(database.states_path)
    return {
        "states_bytes": sum(bytes_of_file.values()),
        "segments_bytes": _segments(database),
        "free_bytes": disk.f_bavail * disk.f_frsize,
    }


def _segments(database: Database) -> int:
    from shepherd.store.disk import names

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


def _lease(lease: Lease, now: int) -> dict[str, Any]:
    """As it was written, but for the words that identify its process; since when, and whether it is over."""
    fields = {key: value for key, value in asdict(lease).items() if key != "process"}
    return fields | {"since": lease.taken_ms // 1000, "expired": not lease.holds(now), "orphaned": lease.is_orphaned}


def _cycle(entry: dict[str, Any]) -> dict[str, Any]:
    """A line of the log without the reports in it."""
    steps = [{key: step[key] for key in ("step", "seconds", "status", "made") if key in step} for step in entry["steps"]]
    return {key: value for key, value in entry.items() if key != "steps"} | {"steps": steps}
