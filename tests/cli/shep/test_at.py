"""shep at, run as a user runs it: a row as an earlier state has it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from shepherd.formats.tables import Reason, RowType
from tests.support.page_states import Herd, Page, Run, add_state, make_herd, objects, stdout_of
from tests.worlds import DAY, NOW

BODY = b"as it was"
SHA = hashlib.sha256(BODY).digest()
TIMES = {"status": 200, "gathered": NOW - 3 * DAY, "checked": NOW - 2 * DAY, "changed": NOW - 9 * DAY, "weight": 123}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """A page that is gathered in state 2 and an error in state 3, which forgets another."""
    digest = {"digest": int.from_bytes(SHA[:8], "little")}
    page = Page("http://a.example/x", RowType.GATHERED, Reason.GATHERED, BODY, {"D": SHA}, TIMES | digest)
    herd = make_herd(tmp_path_factory.mktemp("two"), (page, Page("http://a.example/y")), (), ())
    error = {"status": 404, "retry": 1, "checked": NOW}
    add_state(herd, (Page("http://a.example/x", RowType.ERROR, Reason.CLIENT_ERROR, columns=error),), now=NOW + DAY)
    return herd


def test_each_state_shows_its_own_row(two: Herd, shep: Run) -> None:
    (then,) = objects(shep(two, "at", "2", "https://www.A.example/x?utm_source=y#z", "--json"))
    assert (then["state"], then["made"], then["url"]) == (2, "2026-09-21T14:13:20Z", "http://a.example/x")
    assert (then["type"], then["reason"], then["status"], then["weight"]) == ("gathered", "gathered", 200, 123)
    assert (then["digest"], then["checked"], then["gathered"]) == (SHA.hex(), "2026-09-19T14:13:20Z", "2026-09-18T14:13:20Z")
    (now,) = objects(shep(two, "at", "3", "http://a.example/x", "--json"))
    assert (now["type"], now["reason"], now["retry"], now["digest"]) == ("error", "client-error", 1, None)


def test_lines_for_a_person(two: Herd, shep: Run) -> None:
    text = stdout_of(shep(two, "at", "2", "http://a.example/x", "--now", str(NOW)))
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert lines["state"] == "2, made 2026-09-21T14:13:20Z (0 s ago)"
    assert lines["known"] == "gathered (last changed in state 2)"
    assert (lines["digest"], lines["weight"]) == (SHA.hex(), "123, gathered 1x per refresh cycle")


def test_url_that_the_state_does_not_know(two: Herd, shep: Run) -> None:
    answer = shep(two, "at", "3", "http://a.example/y")
    assert (answer.returncode, answer.stdout) == (4, b"")
    assert answer.stderr == b"shep: state 3 does not know http://a.example/y\n"
    assert shep(two, "at", "1", "http://a.example/x").returncode == 4
    assert stdout_of(shep(two, "at", "2", "http://a.example/y"))


@pytest.mark.parametrize("arguments", [("9", "http://a.example/x"), ("2", "mailto:x"), ("0", "http://a.example/x")])
def test_invalid_arguments_are_refused(two: Herd, shep: Run, arguments: tuple[str, str]) -> None:
    answer = shep(two, "at", *arguments)
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert list(Path(two.db, "lease").glob("*.lease")) == []
