"""Eight readers and a mirror, while a master gathers a toy web cycle after cycle, deletes states and copies buckets together.

Whatever a reader is sent is compared with the files of the state that it has leased, read beside the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shepherd.client import Server, pull
from shepherd.readers.choice import Choice
from shepherd.serve import tokens
from shepherd.store.state.database import Database
from tests.client.test_stream import expected, raw
from tests.serve.test_attended import answers
from tests.support.daemons import Daemon, running, settings
from tests.support.programs import call
from tests.support.serving import serving, token_of
from tests.support.toy_farm import ROOT, Farm, contents, farm
from tests.support.waiting import PATIENCE_S, free_port, wait_until

pytestmark = pytest.mark.waits

READERS = 8
STATES = 4  # that the readers see together, and the mirror by itself
CF = """
[store]
keep_states = 1  # so that only leases keep what is older
segment_bytes = 1048576
[serve]
listen = "127.0.0.1:{port}"
requests_per_s = 0.0
"""


@dataclass
class Flock:
    """What the readers have seen, and what was wrong about it."""

    farm: Farm
    url: str
    stop: threading.Event = field(default_factory=threading.Event)
    states: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    documents: int = 0

    def read(self, number: int) -> None:
        try:
            while not self.stop.is_set():
                self.read_once(number)
        except Exception as error:
            self.wrong.append(f"reader {number}: {error!r}")

    def read_once(self, number: int) -> None:
        """Every other reader takes everything, the others a part each."""
        part = None if number % 2 else f"{number // 2 + 1}/{READERS // 2}"
        choice = Choice(part=number // 2, parts=READERS // 2) if part else Choice()
        with Server(self.url, token_of("reader")) as server, server.leased("test") as lease:
            came = [(one.footprint, raw(one)) for one in pull(self.url, token_of("reader"), lease=lease, part=part)]
            if came != expected(self.farm.database.closed(lease.state), choice):
                self.wrong.append(f"reader {number}: not what state {lease.state} has")
        self.states.add(lease.state)
        self.documents += len(came)


def configure(one: Farm, home: Path, port: int) -> Path:
    """Everything is due in every cycle, and so is a cleanup."""
    cf = settings(one, home, CF.format(port=port))
    text = (cf / "shepherd.toml").read_text()
    text = text.replace("[plan]", "[plan]\nrefresh_s = 0").replace("[cleanup]", "[cleanup]\nevery_s = 1\npause_s = 0")
    (cf / "shepherd.toml").write_text(text)
    tokens.write(cf / "tokens", [tokens.make_client(name, [role], token_of(name)) for name, role in ROLES])
    (home / "mirror.token").write_text(token_of("mirror"))
    (home / "mirror.token").chmod(0o600)
    return cf


ROLES = [("reader", "read"), ("mirror", "mirror")]


def mirroring(cf: Path, url: str, db: Path, *more: str) -> list[str]:
    return ["--from", url, "--token-file", str(cf / "mirror.token"), "--db", str(db), "--cf", str(cf), "--json", *more]


def test_readers_and_mirror_get_the_bytes_of_their_state_while_cycles_and_cleanups_run(tmp_path: Path) -> None:
    with farm(tmp_path / "farm") as one:
        port = free_port()
        cf, mirror, told = configure(one, tmp_path / "cf", port), tmp_path / "mirror", tmp_path / "mirror.out"
        flock = Flock(one, f"http://127.0.0.1:{port}")
        with running(one, cf) as daemon, told.open("w") as out:
            daemon.wait_for("serve")
            wait_until(lambda: answers(port), "it does not serve")
            command = [sys.executable, "-m", "shepherd.cli", "shep-mirror", *mirroring(cf, flock.url, mirror, "--watch", "1")]
            standby = subprocess.Popen(command, cwd=ROOT, stdout=out)
            try:
                read_for_a_while(flock, daemon, told)
            finally:
                standby.terminate()
                assert standby.wait(PATIENCE_S) == 0
            assert daemon.end() == 0
        assert flock.wrong == []
        assert flock.documents > 0
        assert one.database.leases.all() == []
        for state in Database(mirror).states():
            assert call("shep-check", "--quiet", "--db", str(mirror), "--state", str(state.number)).returncode == 0
        with serving(one.home) as served:
            assert call("shep-mirror", *mirroring(cf, served.url, mirror)).returncode == 0
        assert contents(Database(mirror).closed().path) == contents(one.database.closed().path)


def read_for_a_while(flock: Flock, daemon: Daemon, told: Path) -> None:
    """Until all have seen some states, and a cleanup has come and gone."""
    readers = [threading.Thread(target=flock.read, args=(n,)) for n in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not (enough := len(flock.states) >= STATES and len(mirrored(told)) >= STATES and has_cleaned(daemon)):
            if time.monotonic() > end_s or flock.wrong:
                break
            time.sleep(0.2)
    finally:
        flock.stop.set()
        for reader in readers:
            reader.join()
    assert enough, (flock.wrong, flock.states, mirrored(told), daemon.events()[-5:])


def mirrored(told: Path) -> set[int]:
    return {json.loads(line)["state"] for line in told.read_text().splitlines()}


def has_cleaned(daemon: Daemon) -> bool:
    return any(event["event"] == "step" and event["step"] == "shep-cleanup" for event in daemon.events())
