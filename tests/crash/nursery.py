"""Programs forked from a process that has imported everything: real processes, without the 0.2 s that starting one costs.

`Nursery.start` returns a child that waits for `go`, so that strace can be attached first. A child runs one program
as `python -m shepherd.cli NAME ARGUMENTS` would, or one of tests/crash, through the same code that makes an error an exit status,
and nothing of it outlives it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parents[2]
GO = signal.SIGUSR1
OURS = {"small": "tests.crash.cycle_steps", "cut": "tests.crash.powercut"}
PRELOADED = (
    "numpy.ma",  # numpy imports it when it needs it, which would be once in each child
    "multiprocessing.synchronize",
    *(f"shepherd.cycle.{name}.drive" for name in ("cleanup", "cork", "merge", "plan", "record", "select")),
    *(f"shepherd.cli.{name}" for name in ("check", "init", "recover")),
    *(f"shepherd.cli.phases.{name}" for name in ("cleanup", "cork", "merge", "plan", "record", "select")),
    *(f"shepherd.cli.shep.{name}" for name in ("main", "insert", "list")),
    *("shepherd.store.check.check", "shepherd.store.check.recover", "tqdm", *OURS.values()),
)


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status, or minus the signal; and what it printed."""

    status: int
    out: str
    err: str


class Child:
    """A process that stands still until `go`."""

    def __init__(self, pid: int, replies: IO[str], out: Path, err: Path) -> None:
        self.pid, self._replies, self._out, self._err = pid, replies, out, err

    def go(self) -> Ended:
        os.kill(self.pid, GO)
        status = os.waitstatus_to_exitcode(int(self._replies.readline()))
        texts = (path.read_text(errors="backslashreplace") for path in (self._out, self._err))
        return Ended(status, *texts)


class Nursery:
    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self._process, self._home = process, home

    def start(self, *argv: str, **environment: str) -> Child:
        """A child that will run this program after `go`."""
        out, err = self._home / "stdout", self._home / "stderr"
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([argv, environment, str(out), str(err)]) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        while "\nState:\tS" not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.0002)  # it has said that it waits, but does not yet
        return Child(pid, self._process.stdout, out, err)

    def run(self, *argv: str, **environment: str) -> Ended:
        return self.start(*argv, **environment).go()


@contextlib.contextmanager
def nursery(home: Path) -> Iterator[Nursery]:
    """A nursery whose children write their output below `home`."""
    # One thread in numpy, or a fork would take a lock with it; one order of sets, so that a run repeats itself call by call.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "SHEPHERD_FAIL": ""}
    command = [sys.executable, "-m", "tests.crash.nursery"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Nursery(process, home)
        process.communicate()  # the end of its input is the end of the nursery


# --- in the nursery ---------------------------------------------------------------------------------------------


def _serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that no child's collector looks at it, and copies all its pages
    signal.pthread_sigmask(signal.SIG_BLOCK, [GO])
    print("ready", flush=True)
    for line in sys.stdin:
        argv, environment, out, err = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(argv, environment, out, err)
        print(os.waitpid(pid, 0)[1], flush=True)


def _become(argv: list[str], environment: Mapping[str, str], out: str, err: str) -> NoReturn:
    status, answer = 1, os.dup(1)
    try:
        for descriptor, path in ((0, os.devnull), (1, out), (2, err)):
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.environ.update(environment)
        sys.argv = argv
        os.write(answer, f"{os.getpid()}\n".encode())
        os.close(answer)
        _wait()
        status = _main(argv[0])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait() -> None:
    """Until `go`. No call that a tracer would count: it comes meanwhile."""
    while True:
        with contextlib.suppress(InterruptedError):
            signal.sigwait([GO])
            return


def _main(name: str) -> int:
    from shepherd.cli import __main__ as programs

    try:
        if name in OURS:
            importlib.import_module(OURS[name]).main()
        else:
            module, _, function = programs.PROGRAMS[name].partition(":")
            getattr(importlib.import_module(module), function)()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


if __name__ == "__main__":
    _serve()
