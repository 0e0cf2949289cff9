"""Programs run as processes of their own, but forked from one that has imported everything: a call costs milliseconds.

What a program sees is what a shell would give it: arguments, environment, directory, descriptors, exit status. Run as a script,
this file is the process that forks: it reads a call a line and answers with the exit status.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (
    "numpy", "tqdm", "shepherd.batch.cork", "shepherd.batch.merge", "shepherd.batch.plan", "shepherd.batch.record",
    "shepherd.batch.select", "shepherd.cli.dump_around", "shepherd.cli.dump_buckets", "shepherd.cli.dump_logs",
    "shepherd.cli.dump_rows", "shepherd.cli.shep_find", "shepherd.filters", "shepherd.store.check", "shepherd.store.recover",
)  # fmt: skip


def call(program: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status = _ask({"argv": [program, *arguments], "cwd": str(cwd), "env": environment, "fds": [out.fileno(), err.fileno()]})
        return subprocess.CompletedProcess([program, *arguments], status, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _ask(request: dict[str, Any]) -> int:
    """The forking process finds our files under /proc, so nothing need be passed to it."""
    parent = _parent()
    request["fds"] = [f"/proc/{os.getpid()}/fd/{fd}" for fd in request["fds"]]
    assert parent.stdin and parent.stdout
    parent.stdin.write(json.dumps(request) + "\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    assert answer, "the process that forks programs has ended"
    return int(answer)


@cache
def _parent() -> subprocess.Popen[str]:
    """It ends when we do, with its stdin."""
    command = [sys.executable, str(Path(__file__))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# --- the process that forks -------------------------------------------------------------------------------------


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        _pid, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _become(request: dict[str, Any]) -> None:
    from shepherd.cli.__main__ import PROGRAMS

    for number, path in enumerate(("/dev/null", *request["fds"])):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.chdir(request["cwd"])
    os.environ |= request["env"]
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
        os._exit(status)


if __name__ == "__main__":
    main()
