"""shep diff, run as a user runs it: every kind of difference, between two states that are known to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.cli.shep import diff as shep_diff
from shepherd.cli.shep.diff import WHATS
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.readers.diff import Difference
from tests.support.page_states import Herd, Page, Run, add_state, make_herd, objects, stdout_of
from tests.worlds import DAY, NOW


def gathered(url: str, body: bytes, digest: int, checked: int = NOW - 2 * DAY, **columns: int) -> Page:
    times = {"status": 200, "gathered": NOW - 3 * DAY, "checked": checked, "changed": NOW - 9 * DAY, "digest": digest}
    return Page(url, RowType.GATHERED, Reason.GATHERED, body, {}, times | columns)


OLD = (
    gathered("http://a.example/same", b"same", 1),
    gathered("http://a.example/changes", b"before", 2),
    gathered("http://a.example/refreshed", b"still", 3),
    gathered("http://a.example/moves", b"moving", 4),
    gathered("http://a.example/robots.txt", b"", 5, flags=int(Flag.ROBOTS)),
    Page("http://a.example/new"),
    Page("http://a.example/leaves"),
    Page("http://a.example/forgotten"),
    Page("http://a.example/back", RowType.FORGOTTEN, Reason.DELETED),
    Page("http://b.example/leaves"),
)
NEW = (
    gathered("http://a.example/same", b"same", 1),
    gathered("http://a.example/changes", b"after", 22, NOW - DAY),
    gathered("http://a.example/refreshed", b"still", 3, NOW - DAY),
    gathered("https://www.a.example/moves", b"moving", 4, NOW - DAY),
    gathered("https://www.a.example/robots.txt", b"", 5, flags=int(Flag.ROBOTS)),
    gathered("http://a.example/new", b"new", 6, NOW - DAY),
    Page("http://a.example/forgotten", RowType.FORGOTTEN, Reason.SITE_HARD, bucket=False),
    Page("http://a.example/back"),
    Page("http://c.example/comes"),
)
EXPECTED = {
    "http://a.example/changes": ["changed"],
    "http://a.example/refreshed": ["refreshed"],
    "https://www.a.example/moves": ["moved", "refreshed"],
    "http://a.example/new": ["changed", "type"],
    "http://a.example/leaves": ["forgotten"],
    "http://a.example/forgotten": ["forgotten"],
    "http://a.example/back": ["added"],
    "http://a.example/robots.txt": ["forgotten"],  # one for each site: it does not move
    "https://www.a.example/robots.txt": ["added"],
    "http://b.example/leaves": ["forgotten"],
    "http://c.example/comes": ["added"],
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """States 2 and 3, which differ as EXPECTED says."""
    herd = make_herd(tmp_path_factory.mktemp("two"), OLD, (), ())
    assert add_state(herd, NEW, now=NOW + DAY) == 3
    return herd


def test_kinds_of_difference_are_those_of_the_phase() -> None:
    assert tuple(str(one.name).lower() for one in Difference) == WHATS


def test_every_difference_is_listed(two: Herd, shep: Run) -> None:
    found = objects(shep(two, "diff", "2", "3", "--json"))
    assert {one["url"]: one["what"] for one in found} == EXPECTED
    assert len(found) == len(EXPECTED)
    (moved,) = (one for one in found if "moved" in one["what"])
    assert (moved["from"], moved["old"]["checked"]) == ("http://a.example/moves", "2026-09-19T14:13:20Z")
    (new,) = (one for one in found if one["url"] == "http://a.example/new")
    assert (new["old"]["type"], new["new"]["type"], new["old"]["digest"]) == ("ungathered", "gathered", None)
    assert new["new"]["digest"] == "0600000000000000"


def test_small_partitions_give_the_same_output(
    two: Herd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for step in (500_000, 1, 2):
        monkeypatch.setattr(shep_diff, "STEP_ROWS", step)
        shep_diff.command.main(["2", "3", "--json", "--db", str(two.db)], standalone_mode=False)
        outputs.append(capsys.readouterr().out)
    assert len(outputs[0].splitlines()) == len(EXPECTED)
    assert outputs[1:] == [outputs[0]] * 2


def test_lines_and_counts_for_a_person(two: Herd, shep: Run) -> None:
    lines = stdout_of(shep(two, "diff", "2", "3")).splitlines()
    assert "moved,refreshed    gathered                https://www.a.example/moves (from http://a.example/moves)" in lines
    assert "changed,type       ungathered -> gathered  http://a.example/new" in lines
    assert lines[-1] == "state 2 to 3: 3 added, 4 forgotten, 2 changed, 1 moved, 2 refreshed, 1 type"
    assert len(lines) == len(EXPECTED) + 1
    assert stdout_of(shep(two, "diff", "2", "3", "--count")).splitlines() == lines[-1:]
    (counted,) = objects(shep(two, "diff", "2", "3", "--count", "--json"))
    assert counted["forgotten"] == 4


def test_one_site_and_one_kind(two: Herd, shep: Run) -> None:
    found = objects(shep(two, "diff", "2", "3", "--json", "--site", "www.b.example"))
    assert [one["url"] for one in found] == ["http://b.example/leaves"]
    found = objects(shep(two, "diff", "2", "3", "--json", "--what", "type", "--what", "moved"))
    assert {one["url"]: one["what"] for one in found} == {
        "http://a.example/new": ["type"],
        "https://www.a.example/moves": ["moved"],
    }


def test_the_other_way_round(two: Herd, shep: Run) -> None:
    text = stdout_of(shep(two, "diff", "3", "2", "--count"))
    assert text == "state 3 to 2: 4 added, 3 forgotten, 2 changed, 1 moved, 2 refreshed, 1 type\n"
    assert (
        stdout_of(shep(two, "diff", "3", "3")) == "state 3 to 3: 0 added, 0 forgotten, 0 changed, 0 moved, 0 refreshed, 0 type\n"
    )


def test_state_that_is_not_there(two: Herd, shep: Run) -> None:
    answer = shep(two, "diff", "2", "9")
    assert (answer.returncode, answer.stderr) == (2, b"shep: no closed state 9; there are 1, 2, 3\n")
    assert list(Path(two.db, "lease").glob("*.lease")) == []
