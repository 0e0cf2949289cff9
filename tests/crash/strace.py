"""Faults below our own calls: strace makes the n-th call of a system call fail, lie or be the last.

`when=N` counts the calls of one system call in one process, so that a point is a system call and its ordinal among ALL calls of
that name in a traced run; and a run with a fault must show the fault at that very call on that very file, or it has tested
nothing: it is vacuous. strace kills on entry: what is killed at a call has not made it. (--seccomp-bpf would be faster, and never
kills.)
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.nursery import ROOT, Child, Ended

FAULTS = {"signal=KILL": -9, "error=EIO": 13, "error=ENOSPC": 12}  # and the status that a program must end with
# Calls on which a fault counts. What only looks at an open descriptor (fstat, lseek, close) does not reach the disk.
CHANGING = ("mkdir", "rename", "link", "linkat", "unlink", "rmdir", "pwrite64", "write", "fsync", "ftruncate", "fchmod")
READING = ("openat", "read", "pread64", "mmap", "getdents64", "newfstatat", "flock")
_LINE = re.compile(r"(?P<syscall>[a-z0-9_]+)\((?P<arguments>.*)\) += (?P<result>.*)")
# Times and pids in names, and the numbers of files that have none: they differ in each run.
_MADE = re.compile(r"[0-9]{13}-[^/\s\"]*?-[0-9]+-[0-9]+|(?<=\.probe-)[0-9]+|(?<=/#)[0-9]+")
_PATH = re.compile(r"[<\"](/[^>\"]*)[>\"]")


@dataclass(frozen=True)
class Call:
    """One call of a traced run."""

    syscall: str
    ordinal: int  # among all calls of this name in the process, from 1
    paths: tuple[str, ...]  # that it names, by text or by descriptor
    arguments: str
    result: str

    @property
    def changes(self) -> bool:
        return self.syscall in CHANGING or (self.syscall == "openat" and "O_CREAT" in self.arguments)

    def of(self, directory: Path) -> bool:
        """Whether it touches this directory or something below it."""
        return any(path == str(directory) or path.startswith(f"{directory}/") for path in self.paths)

    @property
    def reads(self) -> bool:
        return self.syscall in READING and "AT_EMPTY_PATH" not in self.arguments

    @property
    def length(self) -> int:
        """Of a pwrite64: how many bytes."""
        return int(self.arguments.rsplit(", ", 2)[1])

    def __str__(self) -> str:
        return f"{self.syscall} {self.ordinal} on {' '.join(self.paths)}"


@dataclass(frozen=True)
class Outcome:
    """A run with a fault: how it ended, whether the fault struck where it was meant to, and the calls that were traced."""

    ended: Ended
    met: bool
    calls: list[Call]


def need() -> None:
    """Skip where there is no strace, or where it may not trace."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")


def points(calls: list[Call], directory: Path) -> list[tuple[Call, str]]:
    """Every fault at every call that touches the directory. A kill between two changes is a kill at the later one."""
    found = []
    for call in (call for call in calls if call.of(directory)):
        if call.changes:
            found += [(call, fault) for fault in FAULTS]
        elif call.reads:
            found.append((call, "error=EIO"))
    return found


def trace(child: Child, log: Path) -> tuple[Ended, list[Call]]:
    """Let the child run, and tell all its calls."""
    ended = _run(child, log)
    return ended, parse(log)


def inject(child: Child, log: Path, point: Call, fault: str) -> Outcome:
    """Let the child run with a fault at this point: `signal=KILL`, `error=EIO`, `retval=8`, ..."""
    ended = _run(child, log, f"--trace={point.syscall},fsync", f"--inject={point.syscall}:{fault}:when={point.ordinal}")
    calls = parse(log)
    struck = [call for call in calls if (call.syscall, call.ordinal) == (point.syscall, point.ordinal)]
    if fault == "signal=KILL":
        met = ended.status == -9 and [call.result for call in struck] == ["?"]
    else:
        met = len(struck) == 1 and struck[0].result.endswith("(INJECTED)")
    return Outcome(ended, met and struck[0].paths == point.paths, calls)


def _run(child: Child, log: Path, *arguments: str) -> Ended:
    command = ["strace", "-y", "-o", str(log), *arguments, "-p", str(child.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        told = tracer.stderr.readline()
        assert "attached" in told, told
        ended = child.go()
        tracer.communicate()
    return ended


def parse(log: Path) -> list[Call]:
    counts: Counter[str] = Counter()
    calls = []
    for line in log.read_text(errors="backslashreplace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        counts[match["syscall"]] += 1
        paths = tuple(_MADE.sub("*", path) for path in _paths(match["syscall"], match["arguments"]))
        calls.append(Call(match["syscall"], counts[match["syscall"]], paths, match["arguments"], match["result"]))
    return calls


def _paths(syscall: str, arguments: str) -> list[str]:
    """The paths that a call names; not those that stand in what it writes or reads."""
    if syscall in ("read", "write", "pread64", "pwrite64"):
        arguments = arguments.partition(", ")[0]
    return [path for path in _PATH.findall(arguments) if path != str(ROOT)]  # AT_FDCWD shows where the child works
