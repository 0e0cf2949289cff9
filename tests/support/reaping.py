"""A database with a plan for pages of a few servers, and reapd processes of the test's own, for whole reaps under trouble."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.reaper.process.shared import SLOT_BYTES
from tests.support.origin import Answer, Origin, serve
from tests.support.programs import call
from tests.support.waiting import is_answering, is_listening, wait_until

ROOT = Path(__file__).resolve().parents[2]
CF = """
[politeness]
delay_s = 0.01
[network]
allow = ["127.0.0.0/8"]
static = "static"
[fetch]
timeout_s = {timeout_s}
[reap]
reapers = {reapers}
silence_s = 3.0
{reap}
"""


@dataclass(frozen=True)
class Home:
    path: Path
    db: Path
    origins: list[Origin]

    def copy(self, db: Path) -> Home:
        """The same plan again, with servers that have seen nothing."""
        shutil.copytree(self.db, db)
        for origin in self.origins:
            origin.seen.clear()
        return Home(self.path, db, self.origins)

    def start(self, *command: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "SHEPHERD_DB": str(self.db), "SHEPHERD_CF": str(self.path / "cf")}
        program = [sys.executable, "-m", "shepherd.cli", *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(program, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return call(*command, SHEPHERD_DB=str(self.db), SHEPHERD_CF=str(self.path / "cf"))

    def must(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.returncode} {done.stderr}"
        return done.stdout

    def journal(self) -> list[dict[str, Any]]:
        """Of the reap that has just been corked."""
        return [json.loads(line) for line in self.must("shep-dump", "journal", "--json", "-u").splitlines()]

    def fates(self) -> dict[str, tuple[str, str]]:
        rows = [json.loads(line) for line in self.must("shep", "list", "--json", "--limit", "10000").splitlines()]
        return {row["url"]: (row["type"], row["reason"]) for row in rows}

    def request_counts(self) -> Counter[str]:
        return Counter(url for origin in self.origins for url in origin.urls())


@contextlib.contextmanager
def planned(
    home: Path,
    routes: Mapping[str, Answer],
    urls: list[str],
    reapers: list[str],
    reap: str = "",
    servers: int = 1,
    timeout_s: int = 20,
    filter_lines: str = "",
) -> Iterator[Home]:
    """A server for each of `servers` addresses, the hosts of the routes spread over them, and a plan for the URLs."""
    hosts = sorted({route.partition("/")[0] for route in routes})
    with contextlib.ExitStack() as stack:
        origins = [stack.enter_context(serve(dict(routes), address=f"127.0.4.{n + 1}")) for n in range(servers)]
        table = [f"{host} 127.0.4.{n % servers + 1} {origins[n % servers].port}" for n, host in enumerate(hosts)]
        (home / "cf").mkdir()
        text = CF.format(timeout_s=timeout_s, reapers=json.dumps(reapers), reap=reap)
        (home / "cf" / "shepherd.toml").write_text(text)
        (home / "cf" / "static").write_text("\n".join(table) + "\n")
        (home / "cf" / "filter").write_text(f"{filter_lines}default accept\n")
        made = Home(home, home / "db", origins)
        made.must("shep-init", "-q")
        made.must("shep", "insert", *urls)
        for program in ("merge", "select", "record", "plan"):
            made.must(f"shep-{program}", "-q")
        yield made


@contextlib.contextmanager
def reapd(path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A reapd that listens at the path, whatever an earlier one has left there."""
    process = start_reapd(path, *options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def answering_reapd(path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A reapd that takes connections at the path, or has ended, as where another one listens there."""
    process = subprocess.Popen(_command(path, *options), stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or is_answering(path))
        yield process
    finally:
        process.kill()
        process.wait()


def _command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{path}", "--quiet", *options]


@contextlib.contextmanager
def scripted_reapd(path: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A reapd that listens at the path as a script of the test's own has it, which finds the path in sys.argv[1]."""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT)
    try:
        wait_until_it_listens(process, path)
        yield process
    finally:
        process.kill()
        process.wait()


def start_reapd(path: Path, *options: str) -> subprocess.Popen[bytes]:
    path.unlink(missing_ok=True)
    process = subprocess.Popen(_command(path, *options), stdin=subprocess.DEVNULL)
    wait_until_it_listens(process, path)
    return process


def wait_until_it_listens(process: subprocess.Popen[bytes], path: Path) -> None:
    """One that ends instead is reported as such, not as whatever its absence leads to."""
    wait_until(lambda: is_listening(path) or process.poll() is not None)
    if not is_listening(path):
        process.kill()
        raise AssertionError(f"reapd does not listen at {path}; its status is {process.wait()}")


class BoardView:
    """The board of a running reapd, as its parent sees it. A reapd that listens has one, or will soon."""

    def __init__(self, pid: int, workers: int = 1) -> None:
        self._workers = workers
        wait_until(lambda: any(_boards_of(pid)), "this reapd has no board")
        self._memory = next(_boards_of(pid))

    def busy(self) -> bool:
        """Whether any worker has a page at hand."""
        seats = 2 * self._workers + 16
        return any(self._memory[at + 16 : at + 24] != bytes(8) for at in range(0, SLOT_BYTES * seats, SLOT_BYTES))


def _boards_of(pid: int) -> Iterator[mmap.mmap]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "shepherd-board" in os.readlink(entry):
                with entry.open("rb") as file:
                    yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
