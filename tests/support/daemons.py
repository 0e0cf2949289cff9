"""`shepherd run` as a process of its own, and what it logs, for tests that signal it, kill it, or wait for what it does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.toy_farm import ROOT, Farm
from tests.support.waiting import PATIENCE_S

QUICK = "[master]\ncycle_s = 0\npause_s = 3600\nlook_s = 0.2\nretry_s = 0.1\n"


class Daemon:
    """A run that logs JSON to a file."""

    def __init__(self, farm: Farm, log: Path, cf: Path) -> None:
        self.farm, self.log, self.cf = farm, log, cf
        environment = {**os.environ, "SHEPHERD_DB": str(farm.db), "SHEPHERD_CF": str(cf)}
        command = [sys.executable, "-m", "shepherd.cli", "shepherd", "run", "--log", str(log), "--log-format", "json"]
        self.stderr = log.with_suffix(".err")
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stderr)

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, event: str, after: int = 0, **fields: Any) -> int:
        """Wait for an event with these fields, behind the first `after` of them; how many there are up to it."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            has_ended = self.process.poll() is not None  # asked first: what it logs at its end is read after it
            for number, told in enumerate(self.events()):
                if number >= after and told["event"] == event and fields.items() <= told.items():
                    return number + 1
            assert not has_ended, f"it has ended: {self.stderr.read_text()} {self.events()[-5:]}"
            time.sleep(0.05)
        raise AssertionError(f"no {event} {fields} in {self.events()[after:]}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def settings(farm: Farm, home: Path, more: str = "", reap_s: int = 60) -> Path:
    """A configuration of the farm's with further settings; files that it names are found where the farm has them."""
    home.mkdir(exist_ok=True)
    text = (farm.home / "cf" / "shepherd.toml").read_text().replace("../web", str(farm.home / "web"))
    (home / "shepherd.toml").write_text(text.replace("reap_s = 60", f"reap_s = {reap_s}") + QUICK + more)
    (home / "filter").write_text((farm.home / "cf" / "filter").read_text())
    return home


@contextlib.contextmanager
def running(farm: Farm, cf: Path) -> Iterator[Daemon]:
    """A daemon, which does not outlive the block."""
    daemon = Daemon(farm, farm.db.parent / f"{farm.db.name}.log", cf)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
        daemon.process.wait()
