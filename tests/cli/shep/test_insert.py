"""shep insert, run as a user runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from shepherd.console import shared as shep_shared
from tests.support import inboxes
from tests.support.page_states import ROOT, Herd, Run, objects, stdout_of
from tests.support.waiting import PATIENCE_S


def requests(herd: Herd) -> list[dict[str, Any]]:
    return inboxes.inserted(herd.store)


def test_good_urls_are_inserted_although_others_are_bad(own_herd: Herd, shep: Run) -> None:
    answer = shep(
        own_herd, "insert", "http://x.example/?utm_a=1&b=2", "http://x.example/a.zip", "ftp://x.example/", "http://x.example/ "
    )
    stdout_of(answer, 2)
    assert [one["url"] for one in requests(own_herd)] == ["http://x.example/?b=2"]
    lines = answer.stderr.decode().splitlines()
    assert "http://x.example/a.zip: rejected by the filter" in lines[0]
    assert "line 2: reject ext zip" in lines[0]
    assert lines[1] == "ftp://x.example/: scheme ftp: only http and https are gathered"
    assert "blank at column 18" in lines[2]
    assert lines[3:] == [
        "1 URL inserted, to be taken in at the start of the next cycle",
        "shep: 3 of 4 URLs refused, for the reasons above",
    ]


def test_insert_leaves_one_item_however_many_urls(own_herd: Herd, shep: Run, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.write_bytes(b"\xef\xbb\xbfhttp://x.example/1\r\n# comment\n\nhttp://x.example/2\nhttp://x.example/1\n")
    stdout_of(shep(own_herd, "insert", "--weight", "7", "--pinned", "-f", str(seeds), "-f", "-", stdin=b"http://x.example/3"))
    assert len(own_herd.store.inbox.items()) == 1
    found = requests(own_herd)
    assert [one["url"] for one in found] == [f"http://x.example/{n}" for n in (1, 2, 3)]
    assert {(one["op"], one["weight"], one["pinned"]) for one in found} == {("insert", 7, True)}
    assert all("@" in one["by"] for one in found)


def test_weight_of_an_insert_comes_from_the_configuration(own_herd: Herd, shep: Run) -> None:
    (own_herd.cf / "shepherd.toml").write_text("[merge]\ninsert_weight = 12345\n")
    stdout_of(shep(own_herd, "insert", "http://x.example/"))
    assert [(one["weight"], one["pinned"]) for one in requests(own_herd)] == [(12345, False)]


def test_bad_line_of_a_file_is_named_by_file_and_line(own_herd: Herd, shep: Run) -> None:
    answer = shep(own_herd, "insert", "-f", "-", stdin=b"http://x.example/\n\nhttp://\xff.example/\nhttp://x.example/\x1b[2J\n")
    stdout_of(answer, 2)
    assert b"stdin:3: http://\\udcff.example/: not UTF-8\n" in answer.stderr
    assert b"stdin:4: http://x.example/\\x1b[2J: control character" in answer.stderr
    assert len(requests(own_herd)) == 1


def test_file_without_a_url_is_nothing_to_do(own_herd: Herd, shep: Run) -> None:
    answer = shep(own_herd, "insert", "-f", "-", stdin=b"# nothing\n\n")
    stdout_of(answer, 4)
    assert answer.stderr == b"shep: no URL was given\n"


def test_refused_line_is_shown_cut_and_without_its_password(own_herd: Herd, shep: Run) -> None:
    answer = shep(own_herd, "insert", "-f", "-", "http://me:secret@x.example/", stdin=b"x" * 100_000)
    stdout_of(answer, 2)
    lines = answer.stderr.decode().splitlines()
    assert lines[0] == "http://me:...@x.example/: userinfo before the host; leave out the name and password"
    assert lines[1].startswith(f"stdin:1: {200 * 'x'}...: not an absolute URL")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://me:se:cr@et@x.example/a@b", "http://me:...@b"),
        ("http:/me:pa/ss@x.example/", "http:/me:...@x.example/"),
        ("me:secret@x.example", "me:...@x.example"),
        ("http://x.example:80/a?mail=me@x.example", "http://x.example:80/a?mail=me@x.example"),
        ("http://x.example/a:b@c", "http://x.example/a:b@c"),
    ],
)
def test_password_is_not_shown(given: str, shown: str) -> None:
    assert shep_shared.redact(given) == shown


def test_dry_run_leaves_nothing(own_herd: Herd, shep: Run) -> None:
    found = objects(shep(own_herd, "insert", "--dry-run", "--json", "http://x.example/", "x"), 2)
    assert found[0] == {"refused": "x", "where": "", "reason": "not an absolute URL; it must begin with http:// or https://"}
    assert found[1] == {"inserted": 1, "refused": 1, "item": None, "dry_run": True, "takes_effect": None}
    assert requests(own_herd) == []


def test_insert_works_while_another_program_writes(own_herd: Herd, shep: Run) -> None:
    with own_herd.store.writing("shep-merge"):
        stdout_of(shep(own_herd, "insert", "http://x.example/"))
        stdout_of(shep(own_herd, "list"))
    assert len(requests(own_herd)) == 1


@pytest.mark.parametrize("line", ['{"op": "insert", "url": 7, "x": "a.example"}', '"a.example"', "[" * 100_000 + '"a.example"'])
def test_request_that_makes_no_sense_does_not_stop_explain(own_herd: Herd, shep: Run, line: str) -> None:
    (own_herd.db / "inbox" / "1790000000000-host-77-1.req").write_text(line + "\n")
    assert "Not known: its site is" in stdout_of(shep(own_herd, "explain", "http://a.example/nothing"))


def test_bar_is_shown_on_a_terminal_alone(own_herd: Herd, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.write_text("".join(f"http://x.example/{n}\n" for n in range(2 * shep_shared.HEARD_BYTES // 20)))
    command = [sys.executable, "-m", "shepherd.cli", "shep", "insert", "-f", str(seeds)]
    environment = os.environ | {"SHEPHERD_DB": str(own_herd.db), "SHEPHERD_CF": str(own_herd.cf), "PYTHONPATH": str(ROOT)}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        subprocess.run(command, stderr=theirs, env=environment, timeout=PATIENCE_S, check=True)
        assert b"shep insert:" in os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)
    done = subprocess.run(command, capture_output=True, env=environment, timeout=PATIENCE_S, check=True)
    assert done.stderr.decode().startswith("6,553 URLs inserted")
