"""A program that reads a state and is killed while it does: a real process, so that its lease is as a real one leaves it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from shepherd.store.state.database import Database

with Database(Path(sys.argv[1])).reading("shep-export", time.time_ns() // 1_000_000, int(sys.argv[2])):
    print("reading", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def reader(db: Path, number: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has leased the state; it is killed with the block."""
    command = [sys.executable, "-c", PROGRAM, str(db), str(number)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "reading\n"
        try:
            yield process
        finally:
            process.kill()


def kill_reader(db: Path, number: int) -> int:
    """Its pid: it has taken a lease and was killed."""
    with reader(db, number) as process:
        pass
    return process.pid
