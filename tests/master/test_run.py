"""`shepherd run` on a toy web: it pauses and wakes, obeys signals, makes room, mends, tries again, and stops where it must."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.report import logbook
from shepherd.store.disk import names
from shepherd.store.state import harvest
from tests.support.daemons import running, settings
from tests.support.toy_farm import Farm, farm
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, gathered_farm: Path) -> Iterator[Farm]:
    """A database with a plan of some hundred pages."""
    with farm(tmp_path_factory.mktemp("farm"), gathered_farm / "planned") as one:
        yield one


@pytest.fixture(scope="module")
def sown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """An empty database with a site inserted that no server has: little to do."""
    with farm(tmp_path_factory.mktemp("farm")) as one:
        for item in one.database.inbox.items():
            item.path.unlink()
        one.must("shep", "insert", "http://127.0.0.1:9/")
        yield one


def steps(one: Farm) -> list[str]:
    """Every program that cycles have run so far, in order."""
    return [step["step"].removeprefix("shep-") for cycle in logbook.cycles(one.db / "log") for step in cycle["steps"]]


def test_run_pauses_until_something_is_inserted(sown: Farm, tmp_path: Path) -> None:
    one = sown.copy(tmp_path / "db")
    with running(one, settings(one, tmp_path / "cf")) as daemon:
        seen = daemon.wait_for("pause", seconds=3600.0)
        assert steps(one)[:6] == ["merge", "select", "record", "plan", "reap", "cork"]
        assert one.run("shepherd", "cycle").returncode == 3
        second = one.run("shepherd", "run")
        assert second.returncode == 3 and f"shepherd run, pid {daemon.process.pid}" in second.stderr
        told = json.loads(one.must("shepherd", "status", "--json"))
        assert told["running"]["who"].startswith(f"shepherd run, pid {daemon.process.pid} on ")
        assert (told["now"]["program"], told["now"]["phase"]) == ("shepherd run", "pause")
        one.must("shep", "insert", "http://127.0.0.1:9/two")
        seen = daemon.wait_for("wake", seen, items=1)
        daemon.wait_for("pause", daemon.wait_for("cycle", seen, status=0), seconds=3600.0)
        assert daemon.end() == 0
    assert daemon.events()[-1]["event"] == "stop"
    assert logbook.now(one.db / "log") == {}
    assert "http://127.0.0.1:9/two" in one.must("shep", "list")
    assert "running    nothing\n" in one.must("shepherd", "status")


def test_bad_configuration_does_not_replace_a_good_one(sown: Farm, tmp_path: Path) -> None:
    one = sown.copy(tmp_path / "db")
    cf = settings(one, tmp_path / "cf", "[hooks]\nafter = 'echo old'\n")
    with running(one, cf) as daemon:
        seen = daemon.wait_for("pause", seconds=3600.0)
        good = (cf / "shepherd.toml").read_text()
        (cf / "shepherd.toml").write_text(good + "[plan]\n")
        (cf / "filter").write_text("nonsense\n")  # programs would stumble over it, if they read it
        daemon.send(signal.SIGHUP)
        seen = daemon.wait_for("reload_failed", seen)
        one.must("shep", "insert", "--cf", str(one.home / "cf"), "http://127.0.0.1:9/two")
        seen = daemon.wait_for("cycle", daemon.wait_for("said", seen, program="hooks.after"), status=0)
        (cf / "shepherd.toml").write_text(good.replace("echo old", "echo new"))
        (cf / "filter").write_text((one.home / "cf" / "filter").read_text())
        daemon.log.rename(tmp_path / "old.log")
        daemon.send(signal.SIGHUP)
        seen = daemon.wait_for("reload")  # in the new file
        one.must("shep", "insert", "http://127.0.0.1:9/three")
        until = daemon.wait_for("cycle", seen, status=0)
        said = [told["text"] for told in daemon.events()[seen:until] if told.get("program") == "hooks.after"]
        assert said and all(text.startswith("new shep-") for text in said)
        assert daemon.end() == 0


def test_wanted_cleanup_ends_a_reap_early(planned: Farm, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    with running(one, settings(one, tmp_path / "cf", reap_s=600)) as daemon:
        seen = daemon.wait_for("begin", step="shep-reap")
        wait_for_checkpoint(one)
        daemon.send(signal.SIGUSR1)
        seen = daemon.wait_for("step", seen, step="shep-reap", status=0)
        seen = daemon.wait_for("step", seen, step="shep-cork", status=0)
        assert daemon.wait_for("begin", seen, step="shep-cleanup") == seen + 1
        assert daemon.end() == 0
    reap = json.loads((one.db / "log" / "reaps.jsonl").read_text().splitlines()[-1])
    assert reap["why"] == "asked to stop"
    one.must("shep-check")


def wait_for_checkpoint(one: Farm) -> None:
    path = one.database.furthest().path / names.HARVESTS / "reap"
    wait_until(lambda: path.exists() and harvest.inspect(path).checkpoint.sequence > 0, "the reap has made no checkpoint")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGQUIT, 131), (signal.SIGTERM, 0)])
def test_signal_in_a_reap_keeps_what_was_acknowledged(planned: Farm, tmp_path: Path, number: signal.Signals, status: int) -> None:
    one = planned.copy(tmp_path / "db")
    with running(one, settings(one, tmp_path / "cf", reap_s=600)) as daemon:
        daemon.wait_for("begin", step="shep-reap")
        wait_for_checkpoint(one)
        assert daemon.end(number) == status
        before = len(daemon.events())
    path = one.database.furthest().path / names.HARVESTS / "reap"
    assert harvest.inspect(path).ended == (status == 0)
    with running(one, settings(one, tmp_path / "cf")) as daemon:
        seen = daemon.wait_for("begin", daemon.wait_for("start", before))
        assert daemon.events()[seen - 1]["step"] == ("shep-cork" if status == 0 else "shep-reap")
        daemon.wait_for("step", seen, step="shep-record", status=0)
        assert daemon.end() == 0
    one.must("shep-check")
    assert one.violations() == []


def noting(tmp_path: Path) -> str:
    """A command that notes its arguments, one a line."""
    (tmp_path / "note").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/noted\n')
    (tmp_path / "note").chmod(0o755)
    return str(tmp_path / "note")


def test_reap_that_fills_the_bucket_file_is_followed_by_a_cleanup(planned: Farm, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    cf = settings(one, tmp_path / "cf", f"[hooks]\non_error = '{noting(tmp_path)}'\n")
    text, state = (cf / "shepherd.toml").read_text(), one.database.furthest()
    size = sum(entry.length for path, entry in state.control.files.items() if path.startswith(names.OBJECTS))
    (cf / "shepherd.toml").write_text(text.replace("[reap]\n", f"[reap]\nsize_bytes = {size + 300_000}\n"))
    with running(one, cf) as daemon:
        seen = daemon.wait_for("step", step="shep-reap", status=12)
        assert daemon.process.wait(PATIENCE_S) == 12
    ran = [told["step"] for told in daemon.events()[seen:] if told["event"] == "step"]
    assert ran[:2] == ["shep-cork", "shep-cleanup"]
    [failed] = [told for told in daemon.events() if told["event"] == "failed"]
    assert "reap.size_bytes" in failed["text"] and "a cleanup has freed what it could" in failed["text"]
    assert (tmp_path / "noted").read_text().splitlines() == ["shepherd run", "12", failed["text"]]
    one.must("shep-check")


def test_damaged_checkpoint_is_recovered_without_an_operator(planned: Farm, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    one.killed("shep-reap", "sync:reap/checkpoints:6=kill")
    path = one.database.furthest().path / names.HARVESTS / "reap"
    harvest.rollback(path)
    data = bytearray((path / "journal").read_bytes())
    data[-40] ^= 1
    (path / "journal").write_bytes(data)
    off = one.copy(tmp_path / "off")
    done = off.run("shepherd", "cycle", "--cf", str(settings(one, tmp_path / "cf-off", "recover = false\n")))
    assert done.returncode == 10
    assert off.run("shep-reap").returncode == 10
    with running(one, settings(one, tmp_path / "cf")) as daemon:
        seen = daemon.wait_for("step", step="shep-recover", status=0)
        daemon.wait_for("said", program="shep-recover")
        daemon.wait_for("step", seen, step="shep-record", status=0)
        assert daemon.end() == 0
    one.must("shep-check")


def test_failure_that_lasts_is_tried_only_so_often(sown: Farm, tmp_path: Path) -> None:
    one = sown.copy(tmp_path / "db")
    cf = settings(one, tmp_path / "cf", f"retries = 2\n[hooks]\nbefore = 'false'\non_error = '{noting(tmp_path)}'\n")
    with running(one, cf) as daemon:
        assert daemon.process.wait(PATIENCE_S) == 5
    told = daemon.events()
    assert [event["seconds"] for event in told if event["event"] == "retry"] == [0.1, 0.2]
    assert [event["step"] for event in told if event["event"] == "failed"] == ["shep-merge"] * 3
    assert (tmp_path / "noted").read_text().count("hooks.before ended with exit status 1: false; shep-merge was not run") == 3
    assert [step for cycle in logbook.cycles(one.db / "log") for step in cycle["steps"]] == []
    assert str(one.database.furthest().name) == "000001"
    done = one.run("shepherd", "cycle", "--quiet", "--cf", str(cf))
    assert done.returncode == 5
    assert done.stderr == "shepherd cycle: hooks.before ended with exit status 1: false; shep-merge was not run\n"


def test_damage_is_not_tried_again(sown: Farm, tmp_path: Path) -> None:
    one = sown.copy(tmp_path / "db")
    one.must("shep-merge")
    (one.database.furthest().path / "index" / "norm").unlink()
    with running(one, settings(one, tmp_path / "cf", f"[hooks]\non_error = '{noting(tmp_path)}'\n")) as daemon:
        assert daemon.process.wait(PATIENCE_S) == 11
    assert not [told for told in daemon.events() if told["event"] == "retry"]
    step, status, *message = (tmp_path / "noted").read_text().splitlines()
    assert (step, status) == ("shep-select", "11")
    assert "norm: the file is missing" in message[0]  # what the program said last
    assert "it continues from 000002.merged" in message[1]
