"""Power cuts: a file system that is shut down, without a word to it, at a chosen call of a step of tests/crash/cycle_steps.py.

The calls that are counted are those of Ops. Before the chosen one the file system is shut down as if the power had gone:
what was not synced is lost, and whatever the program does from then on fails. Modes:

plain    the journal is dropped
flushed  the journal is written first, as a file system does from time to time: names arrive without bytes
stirred  another file is synced first: on ext4 that commits the journal, but not the bytes that wait for their blocks
during   the cut comes from a thread a little after the call has begun: in the midst of a sync, or of one of the next calls
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shepherd.store.disk import fsio
from shepherd.store.disk.failpoints import OPS
from shepherd.store.disk.ops import Ops
from tests.crash import cycle_steps, disks

MODES = ("plain", "flushed", "stirred", "during")
LONGEST_S = 0.003


class Careless(Ops):
    """Calls of a program that does not sync."""

    def sync(self, path: Path, fd: int) -> None:
        pass


def counting(meet: Callable[[int], object], ops: Ops) -> Ops:
    """These calls; `meet` gets the number of each before it is made."""
    seen = 0

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            nonlocal seen
            seen += 1
            meet(seen)
            return call(*args)

        return counted

    for name in OPS:
        setattr(ops, name, before(getattr(ops, name)))
    return ops


def calls_of(step: str, db: Path) -> int:
    """How many calls a step makes when nothing disturbs it."""
    numbers: list[int] = []
    before = fsio.use(counting(numbers.append, Ops()))
    try:
        cycle_steps.ALL[step](db, lambda _line: None)
    finally:
        fsio.use(before)
    return len(numbers)


def cut_now(disk: Path, mode: str, seed: int) -> None:
    """Shut the file system down; what is printed goes elsewhere, so it is known that it was done."""
    if mode == "during":
        threading.Thread(target=_cut_soon, args=(disk, random.Random(seed).uniform(0, LONGEST_S))).start()
        return
    if mode == "stirred":
        fd = os.open(disk / "bystander", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, b"x")
        os.fsync(fd)
        os.close(fd)
    os.write(1, b"cut\n")  # at once and in one piece, whatever another thread prints
    disks.cut(disk, disks.FLUSH_JOURNAL if mode == "flushed" else disks.DROP_JOURNAL)


def _cut_soon(disk: Path, seconds: float) -> None:
    time.sleep(seconds)
    os.write(1, b"cut\n")
    disks.cut(disk, disks.DROP_JOURNAL)


def main() -> None:
    """`cut STEP NUMBER MODE DISK`: take the step and cut the power at its NUMBER-th call, or at its end if it has fewer.

    Mode `careless`: `plain`, in a program that does not sync. It has to be caught.
    """
    step, number, mode, disk = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    struck = threading.Event()

    def meet(call: int) -> None:
        if call == number:
            struck.set()
            cut_now(disk, mode, number)

    fsio.use(counting(meet, Careless() if mode == "careless" else Ops()))
    sys.argv = ["small", step]
    try:
        cycle_steps.main()
    except SystemExit as stop:
        if not stop.code:
            print("done", flush=True)
        if not struck.is_set():
            cut_now(disk, mode, number)
        raise
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
