"""A program run as a user runs it, and what it cost: CPU and wall time, private memory, and the files it opened.

CPU is that of the process and of all children it waited for. Memory is the largest sum of RssAnon over its processes that was
seen, every 20 ms. Opened files come from inotify, so that nothing need be known of how the program works.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.02
_IN_OPEN = 0x20
_IN_ISDIR = 0x40000000
_EVENT = struct.Struct("iIII")


@dataclass(frozen=True)
class Cost:
    status: int
    cpu_s: float
    wall_s: float
    rss_anon_mb: float
    max_rss_mb: float  # of its largest process
    opened: frozenset[Path]
    told: str  # what it wrote to stdout and stderr


def run(command: list[str], watched: list[Path]) -> Cost:
    """Run a program to its end; `watched` are the directories whose files matter."""
    with tempfile.TemporaryFile() as out, _Watch(watched) as watch:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        most = 0.0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            most = max(most, sum(rss_anon_mb(one) for one in _tree(process.pid)))
            watch.read()
            time.sleep(SAMPLE_S)
        wall_s = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
        watch.read()
        out.seek(0)
        told = out.read().decode(errors="replace")
    return Cost(
        process.returncode, used.ru_utime + used.ru_stime, wall_s, most, used.ru_maxrss / 1024, frozenset(watch.opened), told
    )


def rss_anon_mb(pid: int | str = "self") -> float:
    """Private memory of a process now, in MB; 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
    return 0.0


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += _tree(int(child))
    return found


class _Watch:
    """Notes which files of some directories are opened, by whomever."""

    def __init__(self, directories: list[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._directories: dict[int, Path] = {}
        for directory in directories:
            number = libc.inotify_add_watch(self._fd, os.fsencode(directory), _IN_OPEN)
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(directory))
            self._directories[number] = directory
        self.opened: set[Path] = set()

    def read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _cookie, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                if name and not mask & _IN_ISDIR:
                    self.opened.add(self._directories[number] / os.fsdecode(name))
                at += _EVENT.size + length

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
