"""Programs run as processes of their own, but forked from one that has imported everything: a call costs milliseconds.

What a program sees is what a shell would give it: arguments, environment, directory, descriptors, exit status. Run as a script,
this file is the process that forks: it reads a call a line and answers with the pid and then with the exit status. That programs
also start by themselves, with nothing imported, is what tests/cli/gather/test_end_to_end.py and tests/test_rings.py prove.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

from shepherd import config
from shepherd.errors import NothingToDo
from shepherd.master.cycle_table import REAP, look, next_step
from shepherd.store.state.database import Database
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
_TURN = threading.Lock()


def call(program: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with our environment and what is given on top; CLOCK_AHEAD_S sets its wall clock wrong."""
    done = call_bytes([program, *arguments], cwd, {**os.environ, "PYTHONPATH": str(ROOT), **environment})
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def peak_of(program: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """The same, and by how many bytes its memory grew, at the most, beyond what it has imported."""
    with tempfile.NamedTemporaryFile() as peak:
        done = call(program, *arguments, SHEPHERD_TEST_PEAK=peak.name)
        return done, int(Path(peak.name).read_text())


def call_bytes(argv: list[str], cwd: Path, environment: dict[str, str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The same with the whole environment, and with bytes for what is no text."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        # The forking process finds our files under /proc, so nothing need be passed to it.
        files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (given, out, err)]
        request = {"argv": argv, "cwd": str(cwd), "env": environment, "files": files}
        with _TURN:
            status = _ask(request)
        return subprocess.CompletedProcess(argv, status, _whole(out), _whole(err))


def cycle(db: Path, cf: Path, *of_reap: str) -> bool:
    """A cycle where it is only the way to somewhere: what `shepherd cycle` would run, run from here, and so without the start of
    a program for each step; with these arguments for shep-reap. False if there was nothing to do."""
    done: list[str] = []
    worked = False
    while step := next_step(look(Database(db), config.load(cf)), done):
        done.append(step)
        ended = call(step, "--quiet", *(of_reap if step == REAP else ()), SHEPHERD_DB=str(db), SHEPHERD_CF=str(cf))
        assert ended.returncode in (0, NothingToDo.exit_status), f"{step}: {ended.returncode} {ended.stderr}"
        worked |= ended.returncode == 0
    return worked


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _ask(request: dict[str, Any]) -> int:
    parent = _parent()
    assert parent.stdin and parent.stdout
    parent.stdin.write(json.dumps(request).encode() + b"\n")
    pid = _answer(parent.stdout)
    if select.select([parent.stdout], [], [], PATIENCE_S)[0]:
        return _answer(parent.stdout)
    os.kill(pid, signal.SIGKILL)
    _answer(parent.stdout)
    raise subprocess.TimeoutExpired(request["argv"], PATIENCE_S)


def _answer(answers: IO[bytes]) -> int:
    line = answers.readline()
    assert line, "the process that forks programs has ended"
    return int(line)


@cache
def _parent() -> subprocess.Popen[bytes]:
    """It ends when we do, with its stdin; waited for, its time is counted as ours."""
    command = [sys.executable, str(Path(__file__))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(process.communicate)
    return process


# --- the process that forks -------------------------------------------------------------------------------------


def main() -> None:
    for path in sorted((ROOT / "shepherd").rglob("*.py")):
        if path.name not in ("__init__.py", "__main__.py", "install.py"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for name in ("numpy.ma", "multiprocessing.synchronize"):  # what numpy and fork pools import when they need it
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that no child's collector looks at it, and copies all its pages
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        print(pid, file=answers, flush=True)
        _pid, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _become(request: dict[str, Any]) -> None:
    from shepherd.cli.__main__ import PROGRAMS

    for number, path in enumerate(request["files"]):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ |= request["env"]
    peak_path, rss_bytes = os.environ.pop("SHEPHERD_TEST_PEAK", ""), _memory("VmRSS")
    _set_clock(int(os.environ.get("CLOCK_AHEAD_S", "0")))
    sys.argv = request["argv"]
    module, _, function = PROGRAMS[sys.argv[0]].partition(":")
    status = 1
    try:
        getattr(importlib.import_module(module), function)()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if peak_path:
            Path(peak_path).write_text(str(_memory("VmHWM") - rss_bytes))
        os._exit(status)


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _set_clock(ahead_s: int) -> None:
    """As if somebody had set it: the time since the boot goes on as ever."""
    wall_s, wall_ns = time.time, time.time_ns
    time.time = lambda: wall_s() + ahead_s
    time.time_ns = lambda: wall_ns() + ahead_s * 1_000_000_000


if __name__ == "__main__":
    main()
