"""`shepherd status`: it works while nothing runs, beside a program that writes, and on what a killed one has left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from shepherd.console.progress import Notice, ProgressJob
from shepherd.report import logbook
from shepherd.store.disk import locks, names
from tests.support.killed import kill_reader
from tests.support.page_states import Herd
from tests.support.programs import call


def status(herd: Herd, *arguments: str) -> str:
    done = call("shepherd", "status", "--db", str(herd.db), *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_status_of_a_database_at_rest(own_herd: Herd) -> None:
    lines = status(own_herd).splitlines()
    assert lines[0] == "running    nothing"
    assert [line.split()[0] for line in lines] == ["running", "states", "disk", "buckets", "inbox"]
    told = json.loads(status(own_herd, "--json"))
    assert told["running"] is None and told["now"] is None
    assert told["states"][-1] == str(own_herd.store.closed().name)
    assert told["disk"]["states_bytes"] > 0 and told["disk"]["free_bytes"] > 0


def test_status_lists_leases_cycles_and_the_inbox(own_herd: Herd) -> None:
    now_ms = time.time_ns() // 1_000_000
    lease = own_herd.store.lease(None, "7@here", "an \x1b[31mindexer", now_ms, 3_600)
    own_herd.store.leases.write(type(lease)("1790000000000-host-1-1", 1, "8@there", "old", 5, 1_790_000_100))
    own_herd.store.inbox.drop(own_herd.store.new_item_name(now_ms), [{"op": "insert", "url": "http://a.example/"}])
    steps = [{"step": "shep-plan", "seconds": 1.5, "status": 4, "report": {"x": 1}}]
    lines = [{"start": 1_790_000_000 + n, "seconds": 2.0, "status": n, "state": "000003", "steps": steps} for n in range(3)]
    (own_herd.db / "log" / logbook.CYCLES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = status(own_herd, "--cycles", "2")
    assert f"inbox      {len(own_herd.store.inbox.all_items())} req\n" in text
    assert "lease      state 1: old, pid 5, 8@there, since 2026-09-21T14:13:20Z" in text and ", expired 2026-" in text
    assert f"state {lease.state}: an \\x1b[31mindexer, pid {os.getpid()}, 7@here" in text and ", until 20" in text
    pid = kill_reader(own_herd.db, 1)
    assert re.search(rf"lease      state 1: shep-export, pid {pid}, .*, over, because that process has ended\n", status(own_herd))
    assert text.count("cycle      ") == 2 and ", exit status 2: 000003 (plan 1.5)" in text
    told = json.loads(status(own_herd, "--json", "--cycles", "1"))
    assert told["cycles"] == [lines[-1] | {"steps": [{"step": "shep-plan", "seconds": 1.5, "status": 4}]}]


def test_program_with_the_lock_is_shown_and_not_disturbed(own_herd: Herd) -> None:
    held = locks.lock(own_herd.db / names.LOCK, "shep-merge")
    notice = Notice(own_herd.db, ProgressJob("shep-merge", "000003", 200, "row"), first_s=0)
    notice.write(50, {"errors": 3})
    try:
        text = status(own_herd)
        assert text.startswith(f"running    shep-merge, pid {os.getpid()} on ")
        assert "now        shep-merge, pid " in text and ": 50 of 200 rows (25 %); errors 3\n" in text
        told = json.loads(status(own_herd, "--json"))
        assert told["running"]["since"] <= time.time() and told["now"]["done"] == 50
    finally:
        held.release()
        notice.remove()
    assert status(own_herd).startswith("running    nothing\n")


def test_progress_that_a_killed_program_left_is_ignored(own_herd: Herd) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    told = {"program": "shep-reap", "pid": gone.pid, "since": 1.0, "phase": "000003.reap", "done": 1, "total": 2, "unit": "page"}
    (own_herd.db / "log" / logbook.NOW).write_text(json.dumps(told))
    held = locks.lock(own_herd.db / names.LOCK, "shepherd run")
    try:
        assert json.loads(status(own_herd, "--json"))["now"] is None
        for torn in ("", "{", "[]", '{"pid": "x"}'):
            (own_herd.db / "log" / logbook.NOW).write_text(torn)
            assert json.loads(status(own_herd, "--json"))["now"] is None
    finally:
        held.release()


def test_notice_is_written_at_intervals_and_never_fails_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    (tmp_path / "log").mkdir()
    notice = Notice(tmp_path, ProgressJob("a", "b"))
    notice.write(1)
    assert logbook.now(tmp_path / "log") == {}  # what is done at once is not worth it
    now_s[0] = 2.5
    notice.write(2)
    now_s[0] = 3.0
    notice.write(3)
    assert logbook.now(tmp_path / "log")["done"] == 2
    now_s[0] = 3.6
    notice.write(4)
    assert logbook.now(tmp_path / "log")["done"] == 4
    notice.remove()
    assert list((tmp_path / "log").iterdir()) == []
    (tmp_path / "log").rmdir()
    now_s[0] = 9.0
    notice.write(5)  # nowhere to write: nobody minds
    notice.remove()
