"""Structured lines: one an event, whatever is in it; a file that was rotated is closed; what programs write is logged."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.console import common
from shepherd.master import events

HOSTILE = 'a "quoted" = \x1b[31m\nnext line\\ é'


@pytest.fixture(autouse=True)
def logger() -> Iterator[None]:
    common.LOG.setLevel(logging.INFO)
    yield
    for handler in common.LOG.handlers:
        handler.close()


def test_bytes_of_the_web_do_not_break_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    events.structured(path, as_json=False)
    events.log_event("step", HOSTILE, logging.WARNING, step="shep-merge", seconds=1.5, made=None, steps=["a", "b"], odd=HOSTILE)
    [line] = path.read_text().splitlines()
    assert line.isprintable()
    words = dict(word.split("=", 1) for word in shlex.split(line.replace('\\"', "'")))
    assert (words["level"], words["event"], words["step"], words["seconds"]) == ("warning", "step", "shep-merge", "1.5")
    assert words["steps"] == "a,b" and "made" not in words


def test_line_of_json_is_the_event(tmp_path: Path) -> None:
    path = tmp_path / "log"
    events.structured(path, as_json=True)
    events.log_event("step", HOSTILE, status=0, steps=["a"], odd=HOSTILE)
    common.LOG.info("of %s %d", "old", 3)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert {key: first[key] for key in ("event", "status", "steps", "odd", "text")} == {
        "event": "step",
        "status": 0,
        "steps": ["a"],
        "odd": HOSTILE,
        "text": HOSTILE,
    }
    assert (second["event"], second["text"]) == ("message", "of old 3")


def test_rotated_file_is_closed_and_a_new_one_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = events.structured(path, as_json=False)
    events.log_event("first")
    path.rename(tmp_path / "log.1")
    events.log_event("second")
    handler.reopen()
    events.log_event("third")
    assert "event=second" in (tmp_path / "log.1").read_text()
    assert path.read_text().count("\n") == 1 and "event=third" in path.read_text()


def test_full_disk_behind_the_log_does_not_stop_the_cycle() -> None:
    events.structured(Path("/dev/full"), as_json=False)
    events.log_event("step")  # raises nothing


def test_event_without_a_text_is_no_line_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    common.setup_logging(quiet=False, verbose=False)
    events.log_event("begin", step="shep-merge")
    events.log_event("cycle", "cycle complete")
    common.LOG.info("100 %")
    assert capsys.readouterr().err == "cycle complete\n100 %\n"


def test_line_of_a_program_is_logged_whole() -> None:
    heard = list[str]()
    ear = events.OutputTail(heard.append)
    subprocess.run(["printf", r"one\n\ntw"], stderr=subprocess.DEVNULL, stdout=ear.fd, check=True)
    ear.read_new()
    assert heard == ["one"]
    subprocess.run(["sh", "-c", r"printf 'o\nthree' >&2"], stderr=ear.fd, check=True)
    ear.read_new()
    assert heard == ["one", "two"]
    ear.close()
    assert heard == ["one", "two", "three"]
    assert ear.last_line == "three"
    with pytest.raises(OSError):
        os.fstat(ear.fd)
