"""What the programs of the cycle share: the lock that a master passes on, the log of timings, the database and its phase."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from shepherd.cli import common
from shepherd.config import Config
from shepherd.errors import UsageError

if TYPE_CHECKING:
    from shepherd.store.database import Writer
    from shepherd.store.state import State

    Drive: TypeAlias = Callable[[Writer, Config, int, Callable[[int], object]], State]

LOCK_FD = "SHEPHERD_LOCK_FD"


def inherited_lock() -> int | None:
    """The descriptor of db/lock that the master has passed on, if there is one."""
    text = os.environ.get(LOCK_FD, "")
    if not text:
        return None
    if not text.isdigit():
        raise UsageError(f"{LOCK_FD}={text!r}: must be the number of an open descriptor; unset it")
    return int(text)


@contextlib.contextmanager
def timed(db: Path, program: str) -> Iterator[None]:
    """Append how long the program took to log/timings.jsonl: timings are never part of a state."""
    start, wall = time.time(), time.monotonic()
    yield
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    line = {
        "program": program,
        "start": round(start, 3),
        "wall_s": round(time.monotonic() - wall, 3),
        "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 3),
    }
    try:
        with (db / "log" / "timings.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        common.LOG.warning("the timing could not be logged: %s", error)


def run(program: str, drive: Drive, db: Path, config: Config, now: int) -> None:
    """Run a batch phase under the lock, with a bar over the rows, and tell what it made."""
    from shepherd.store.database import Database

    with (
        Database(db).writing(program, inherited_lock()) as writer,
        timed(db, program),
        common.progress(writer.furthest().index.rows, program, "row") as bar,
    ):
        state = drive(writer, config, now, bar.update)
    report = state.report()
    counts = ", ".join(f"{key} {value}" for key, value in report.items() if isinstance(value, int) and value)
    common.LOG.info("%s: %s%s", program, state.name, f" ({counts})" if counts else "")
