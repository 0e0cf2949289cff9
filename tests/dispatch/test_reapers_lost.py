"""Whole reaps whose reapers are killed or cut off in the middle: every URL is settled once, and none is lost (I10)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import sampling
from tests.support.driver import HTML, LINKS
from tests.support.origin import Answer, ok
from tests.support.reaping import Home, planned, reapd, start_reapd
from tests.support.relay import Relay, relaying
from tests.support.waiting import PATIENCE_S, children, free_port, is_answering, wait_until

pytestmark = pytest.mark.waits

SITES = 12
PAGES = 3
ROUTES: dict[str, Answer] = {f"s{s}.example/{p}": ok(LINKS, HTML) for s in range(SITES) for p in range(PAGES)}
URLS = [f"http://{route}" for route in ROUTES]
TIMEOUT_S = 2  # of a request; what a lost reaper had is asked for again after it, and 5 s


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = tmp_path_factory.mktemp("lost")
    with planned(home, ROUTES, URLS, [f"unix:{home}/front"], servers=4, timeout_s=TIMEOUT_S) as made:
        yield made


class Reapd:
    """One that a relay can kill at a message, and that is there again at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = start_reapd(path, "--workers", "2")
        self.killed = 0

    def kill_and_start_again(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed += 1
        self._process = start_reapd(self._path, "--workers", "2")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def assert_each_is_settled_once(made: Home) -> Counter[str]:
    """Why requests were asked again, counted."""
    made.must("shep-cork", "-q")
    fates = made.fates()
    assert [url for url in URLS if fates[url] != ("gathered", "gathered")] == []
    records = [record for record in made.journal() if record["kind"] == "page"]
    settled = [record["plan_row"] for record in records if "hop" not in record["flags"]]
    assert len(settled) == len(set(settled)) == len(URLS)
    lost = Counter(record["plan_row"] for record in records if record["reason"] == "reaper-lost")
    assert all(count == 1 for count in lost.values())  # back in the queue exactly once
    asked = made.request_counts()
    assert all(1 <= asked[route] <= 2 for route in ROUTES)
    assert made.run("shep-check").returncode == 0
    return Counter(record["reason"] for record in records)


def test_relay_alone_changes_nothing_and_counts_the_messages(plan: Home, tmp_path: Path) -> None:
    made = plan.copy(tmp_path / "db")
    with reapd(tmp_path / "reapd"), relaying(plan.path / "front", Relay(tmp_path / "reapd")) as relay:
        made.must("shep-reap", "-q")
    (plan.path / "front").unlink()
    assert assert_each_is_settled_once(made)["reaper-lost"] == 0
    assert relay.connections == 1 and relay.messages > 2 * len(URLS)


BOUNDARIES = [1, 2, *sampling.sample(range(3, 100), 2, "messages of a reap", 6)]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_reapd_killed_at_a_message_loses_no_url(plan: Home, tmp_path: Path, boundary: int) -> None:
    made, reaper = plan.copy(tmp_path / "db"), Reapd(tmp_path / "reapd")
    relay = Relay(tmp_path / "reapd", cut_at=lambda _, number: number == boundary, on_cut=reaper.kill_and_start_again)
    try:
        with relaying(plan.path / "front", relay):
            made.must("shep-reap", "-q")
    finally:
        reaper.stop()
        (plan.path / "front").unlink()
    assert relay.cuts == reaper.killed == 1
    assert_each_is_settled_once(made)


def test_connection_cut_in_the_middle_of_an_answer_loses_no_url(plan: Home, tmp_path: Path) -> None:
    made = plan.copy(tmp_path / "db")
    cuts: list[int] = []

    def in_an_answer(direction: str, number: int) -> bool:
        if direction == "from" and number > 60 and not cuts:
            cuts.append(number)
            return True
        return False

    relay = Relay(tmp_path / "reapd", cut_at=in_an_answer, in_the_middle=True)
    with reapd(tmp_path / "reapd"), relaying(plan.path / "front", relay):
        made.must("shep-reap", "-q")
    (plan.path / "front").unlink()
    assert relay.cuts == 1
    assert assert_each_is_settled_once(made)["reaper-lost"] >= 1


@pytest.mark.parametrize("direction", ["to", "back", "both"])
def test_partition_in_mid_reap_that_heals_loses_no_url(plan: Home, tmp_path: Path, direction: str) -> None:
    """It heals when the dispatcher has long been trying again, so that its greeting has been under way for longer than a request
    may take."""
    made, parted, over = plan.copy(tmp_path / "db"), threading.Event(), threading.Event()

    def part(_direction: str, number: int) -> bool:
        if number == 60:
            for gate in gates:
                gate.clear()
            parted.set()
        return False

    def heal() -> None:
        parted.wait()
        before = relay.connections
        while relay.connections == before and not over.is_set():
            time.sleep(0.01)
        over.wait(TIMEOUT_S + 0.5)
        for gate in gates:
            gate.set()

    relay = Relay(tmp_path / "reapd", cut_at=part)
    gates = {"to": [relay.to], "back": [relay.back], "both": [relay.to, relay.back]}[direction]
    healing = threading.Thread(target=heal)
    with reapd(tmp_path / "reapd", "--workers", "3"), relaying(plan.path / "front", relay):
        healing.start()
        try:
            made.must("shep-reap", "-q")
        finally:
            parted.set()
            over.set()
            healing.join()
    (plan.path / "front").unlink()
    assert relay.connections > 1
    assert_each_is_settled_once(made)


def keys(home: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "shepherd.cli", "shep-keys", *arguments]
    subprocess.run(command, cwd=home, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def over_tls(home: Path, name: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A reapd as docs/operations.md has it, on a port of loopback."""
    keys(home, "issue", "keys", "reaper", name, "--host", "127.0.0.1")
    port = free_port()
    address = f"tls:127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "shepherd.cli",
        "reapd",
        "--listen",
        address,
        "--workers",
        "2",
        "-q",
        "--keys",
        f"keys/{name}.pem",
        "--allow",
        "127.0.0.0/8",
    ]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, env=environment)
    try:
        wait_until(lambda: is_answering(("127.0.0.1", port)) or process.poll() is not None)
        assert process.poll() is None, "reapd does not listen"
        yield process, address
    finally:
        process.kill()
        process.wait()


def test_reapers_over_tls_gather_together_and_the_other_replaces_one_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    keys(tmp_path, "init", "keys")
    keys(tmp_path, "issue", "keys", "dispatcher", "main")
    with over_tls(tmp_path, "one") as (doomed, first), over_tls(tmp_path, "two") as (_, second):
        reap = 'keys = "../keys/main.pem"\nworkers = 2'
        with planned(tmp_path, ROUTES, URLS, [first, second], reap, servers=4, timeout_s=TIMEOUT_S) as made:
            reaping = made.start("shep-reap")
            while sum(made.request_counts().values()) < 20 and reaping.poll() is None:
                time.sleep(0.01)
            served = children(doomed.pid)
            doomed.kill()
            _, log = reaping.communicate(timeout=PATIENCE_S)
            assert reaping.returncode == 0, log
            assert len(served) == 2  # it had its share
            assert "was lost" in log and "takes their part" not in log
            assert_each_is_settled_once(made)


def test_reap_whose_key_all_reapers_refuse_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    for place in ("keys", "other"):
        keys(tmp_path, "init", place)
        keys(tmp_path, "issue", place, "dispatcher", "main")
    with (
        over_tls(tmp_path, "one") as (_, address),
        planned(tmp_path, ROUTES, URLS[:1], [address], 'keys = "../other/main.pem"') as made,
    ):
        refused = made.run("shep-reap")
        assert refused.returncode == 21, refused.stderr
        assert "different authorities" in refused.stderr and "shep-keys show" in refused.stderr
        assert all(line.count(address) <= 1 for line in refused.stderr.splitlines())
        (made.path / "other" / "main.pem").chmod(0o644)
        refused = made.run("shep-reap")
        assert refused.returncode == 2 and "chmod 600" in refused.stderr


def test_stopped_reapd_is_lost_and_its_urls_are_gathered_by_the_other(tmp_path: Path) -> None:
    with reapd(tmp_path / "a") as doomed, reapd(tmp_path / "b"):
        reapers = [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
        with planned(tmp_path, ROUTES, URLS, reapers, servers=4, timeout_s=TIMEOUT_S) as made:
            reaping = made.start("shep-reap", "-q")
            while sum(made.request_counts().values()) < 20 and reaping.poll() is None:
                time.sleep(0.01)
            for pid in (*children(doomed.pid), doomed.pid):
                os.kill(pid, signal.SIGSTOP)
            _, log = reaping.communicate(timeout=PATIENCE_S)
            assert reaping.returncode == 0, log
            assert_each_is_settled_once(made)
