"""A reap that is asked to stop while it still connects: its reaper accepts and says nothing, so none is available."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from tests.dispatch.test_reapers_lost import keys
from tests.support.driver import HTML, LINKS
from tests.support.origin import ok
from tests.support.reaping import Home, planned
from tests.support.waiting import PATIENCE_S


@contextlib.contextmanager
def silent(listener: socket.socket) -> Iterator[socket.socket]:
    with listener:
        listener.listen(8)
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture(params=["unix", "tls"])
def connecting(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Home, socket.socket]]:
    """A plan whose only reaper takes connections and stays silent."""
    reap, listener = "", socket.socket(socket.AF_UNIX if request.param == "unix" else socket.AF_INET)
    if request.param == "unix":
        listener.bind(str(tmp_path / "silent"))
        address = f"unix:{tmp_path}/silent"
    else:
        monkeypatch.setenv("PYTHONPATH", os.getcwd())
        keys(tmp_path, "init", "keys")
        keys(tmp_path, "issue", "keys", "dispatcher", "main")
        listener.bind(("127.0.0.1", 0))
        address, reap = f"tls:127.0.0.1:{listener.getsockname()[1]}", 'keys = "../keys/main.pem"'
    with (
        silent(listener),
        planned(tmp_path, {"a.example/": ok(LINKS, HTML)}, ["http://a.example/"], [address], reap) as made,
    ):
        yield made, listener


def assert_ended_in_good_order(made: Home, reaping: subprocess.Popen[str], why: str) -> None:
    _, log = reaping.communicate(timeout=PATIENCE_S)
    assert reaping.returncode == 0, log
    assert f"{why}: no answers; 1 left" in log
    assert harvest.inspect(Database(made.db).furthest().path / names.HARVESTS / "reap").ended
    made.must("shep-cork", "-q")
    assert made.run("shep-check").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_a_reap_while_it_connects(connecting: tuple[Home, socket.socket], number: int) -> None:
    made, listener = connecting
    with made.start("shep-reap") as reaping:
        connection, _ = listener.accept()
        with connection:
            reaping.send_signal(number)
            assert_ended_in_good_order(made, reaping, "asked to stop")


def test_end_of_its_time_stops_a_reap_while_it_connects(connecting: tuple[Home, socket.socket]) -> None:
    made, _listener = connecting
    with made.start("shep-reap", "--seconds", "1") as reaping:
        assert_ended_in_good_order(made, reaping, "its time is over")


def drain(listener: socket.socket) -> None:
    """Forget connections of a reap that has ended."""
    listener.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
    listener.settimeout(PATIENCE_S)


def test_second_signal_while_a_reap_connects_leaves_a_reap_that_can_be_resumed(
    connecting: tuple[Home, socket.socket], tmp_path: Path
) -> None:
    """It comes before, while or after the first takes effect. The reap ends at once, in good order or as killed."""
    plan, listener = connecting
    for number, gap_s in enumerate((0.0, 0.005, 0.05)):
        made = plan.copy(tmp_path / f"db{number}")
        drain(listener)
        with made.start("shep-reap") as reaping:
            connection, _ = listener.accept()
            with connection:
                reaping.send_signal(signal.SIGTERM)
                time.sleep(gap_s)
                reaping.send_signal(signal.SIGINT)
                _, log = reaping.communicate(timeout=PATIENCE_S)
        assert reaping.returncode in (0, 130, -signal.SIGINT), log
        assert "Traceback" not in log and "Exception ignored" not in log
        if not harvest.inspect(Database(made.db).furthest().path / names.HARVESTS / "reap").ended:
            with made.start("shep-reap", "--seconds", "1") as again:
                assert_ended_in_good_order(made, again, "its time is over")
        assert made.run("shep-check").returncode == 0
