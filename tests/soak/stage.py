"""A farm that is being soaked: the master on a small disk of its own, three reapers and the toy web, each a process.

Whoever ends, for whatever reason, is started again, as an init system would do it; how it ended is written down. All of them
carry a mark in their environment, by which those that have lost their parents are found, too.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.store.state.database import Database
from shepherd.wire import authority
from shepherd.wire.tls import Role
from tests.crash import disks
from tests.support.programs import call
from tests.support.waiting import free_port
from tests.worlds import write_open_filter
from toyweb import run
from toyweb.model import Model, canonical_url
from toyweb.plan import Ref

ROOT = Path(__file__).resolve().parents[2]
MARK = "SHEPHERD_SOAKED"
MASTER = ("shepherd", "run", "--log-format", "json")
SITES = 60
DISK_MEGABYTES = 160
DELAY_S = 0.5  # longer than a program needs to start: a gap that is kept is kept on purpose
AGAIN_S = 0.4  # until what has ended is started again
CF = """
[politeness]
delay_s = {delay_s}
max_backoff = 3
robots_retry_s = {robots_retry_s}
qkey_retry_s = 5
[plan]
reap_s = {reap_s}
refresh_s = {refresh_s}
retry_s = {retry_s}
[select]
site_soft = 60
site_hard = 120
most_lost = 100
[store]
partition_rows = 400
[reap]
checkpoint_s = 0.5
silence_s = 4.0
reapers = {reapers}
keys = "{keys}"
reserve_bytes = 1000000
[cleanup]
reserve_bytes = 1000000
every_s = 30
pause_s = 15
garbage = 5
[master]
cycle_s = 0
pause_s = 1
look_s = 0.5
retry_s = 0.2
[fetch]
timeout_s = 5
ca_file = "{home}/web/ca.pem"
[network]
allow = ["127.0.0.0/8"]
static = "{home}/web/static"
"""


@dataclass
class Daemon:
    """A program that is started again whenever it has ended, unless it is held down."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    statuses: Counter[int] = field(default_factory=Counter)
    down: bool = False
    process: subprocess.Popen[bytes] | None = None
    ended_s: float = 0

    def tend(self) -> int | None:
        """Start it if it is time; its exit status if it has just ended, as a shell shows it."""
        if self.process is None:
            if not self.down and time.monotonic() >= self.ended_s + AGAIN_S:
                self._start()
            return None
        status = self.process.poll()
        if status is None:
            return None
        self.process, self.ended_s = None, time.monotonic()
        shown = status if status >= 0 else 128 - status
        self.statuses[shown] += 1
        return shown

    def _start(self) -> None:
        with self.log.open("ab") as log:
            log.write(f"--- {time.time():.1f} {self.name}\n".encode())
            log.flush()
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, number: int = signal.SIGTERM, wait_s: float = 120) -> int | None:
        """Hold it down, and wait until it has ended."""
        self.down = True
        if self.process is None:
            return None
        self.process.send_signal(number)
        try:
            self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end within {wait_s} s after signal {number}") from None
        return self.tend()


@dataclass(frozen=True)
class Process:
    pid: int
    program: str  # of ours
    leader: bool  # else a worker of it


@dataclass
class Stage:
    home: Path
    disk: Path
    model: Model
    web: run.Running
    environment: dict[str, str]
    master: Daemon
    reapers: list[Daemon]

    @property
    def db(self) -> Path:
        return self.disk / "db"

    @property
    def database(self) -> Database:
        return Database(self.db)

    def run(self, program: str, *arguments: str, cf: str = "cf") -> subprocess.CompletedProcess[str]:
        """A program that is not struck."""
        return call(program, *arguments, SHEPHERD_DB=str(self.db), SHEPHERD_CF=str(self.home / cf))

    def processes(self) -> list[Process]:
        """All that are running, those without parents included; not the toy web."""
        return [one for one in map(_process, (entry for entry in os.listdir("/proc") if entry.isdigit())) if one is not None]

    def writers(self) -> list[Process]:
        """Those that may write to the database."""
        return [one for one in self.processes() if one.program != "reapd"]

    def configure(self, name: str, refresh_s: int, retry_s: int, robots_retry_s: int, reap_s: int) -> None:
        """A cf/ for the farm, with its own idea of what is due."""
        reapers = "[" + ", ".join(f'"{reaper.name}"' for reaper in self.reapers) + "]"
        keys = self.home / "keys" / "main.pem"
        due = {"refresh_s": refresh_s, "retry_s": retry_s, "robots_retry_s": robots_retry_s, "reap_s": reap_s}
        text = CF.format(delay_s=DELAY_S, home=self.home, reapers=reapers, keys=keys, **due)
        (self.home / name).mkdir(exist_ok=True)
        (self.home / name / "shepherd.toml").write_text(text)
        write_open_filter(self.home / name)


def _process(pid: str) -> Process | None:
    try:
        if f"{MARK}={os.getpid()}".encode() not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return None
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        above = Path(f"/proc/{parent}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return None  # it has ended meanwhile
    if "shepherd.cli" not in words:
        return Process(int(pid), "", leader=False)
    return Process(int(pid), words[words.index("shepherd.cli") + 1], leader=words != above)


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A farm with all sites inserted, so that soon every server has something to do; nothing runs yet but the toy web."""
    model = Model(1, SITES, largest=20)
    with disks.loop("ext4", DISK_MEGABYTES) as disk, disks.workplace() as home, run.start(model, home / "web") as web:
        environment = {MARK: str(os.getpid()), "SHEPHERD_DB": str(disk.path / "db"), "SHEPHERD_CF": str(home / "cf")}

        def daemon(name: str, log: str, *words: str) -> Daemon:
            return Daemon(name, [sys.executable, "-m", "shepherd.cli", *words], environment, home / log)

        places = [f"unix:{home}/first", f"unix:{home}/second", f"tls:127.0.0.1:{free_port()}"]
        keys = [(), (), ("--keys", str(home / "keys" / "far.pem"), "--allow", "127.0.0.0/8")]
        reapers = [
            daemon(place, "reapd.log", "reapd", "--listen", place, "--workers", "2", *more)
            for place, more in zip(places, keys, strict=True)
        ]
        made = Stage(home, disk.path, model, web, environment, daemon(MASTER[0], "master.log", *MASTER), reapers)
        _make_keys(home / "keys")
        made.configure("cf", refresh_s=40, retry_s=15, robots_retry_s=5, reap_s=12)
        assert made.run("shep-init", "--quiet").returncode == 0
        roots = [canonical_url(Ref(site.number, "/")) for site in model.sites]
        assert made.run("shep", "insert", *roots).returncode == 0
        try:
            yield made
        finally:
            for one in made.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            for started in (made.master, *made.reapers):
                if started.process is not None:
                    started.process.wait()


def _make_keys(directory: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority.make_authority(directory, 10, now)
    authority.issue(directory, Role.DISPATCHER, "main", [], 5, now)
    authority.issue(directory, Role.REAPER, "far", ["127.0.0.1"], 5, now)
