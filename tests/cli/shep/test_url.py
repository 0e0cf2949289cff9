"""shep url: every step that a URL goes through, and how one that cannot be used is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.equiv import load_equiv
from shepherd.urls import Footprints, parse
from tests.support.page_states import Herd, Run, objects, stdout_of
from tests.worlds import KEY

TABLE = "# mirrors\nb.example  a.example # since 2009\napart c.example\n"


@pytest.fixture
def classed(own_herd: Herd) -> Herd:
    (own_herd.cf / "url-equiv").write_text(TABLE)
    return own_herd


def test_class_is_shown_by_its_representative_and_line(classed: Herd, shep: Run) -> None:
    lines = stdout_of(shep(classed, "url", "https://www.a.example/x?y")).splitlines()
    assert lines[-3:] == [
        "normalised site  b.example",
        f"equivalence      {classed.cf}/url-equiv, line 2: b.example  a.example # since 2009",
        "",
    ]


def test_name_set_apart_keeps_its_www(classed: Herd, shep: Run) -> None:
    found = objects(shep(classed, "url", "--json", "http://www.c.example/", "http://c.example/", "http://www.d.example/"))
    assert [one["normalised_site"] for one in found] == ["www.c.example", "c.example", "d.example"]
    assert [one["equivalence"] and one["equivalence"]["line"] for one in found] == [3, 3, None]
    assert found[0]["equivalence"] == {"file": f"{classed.cf}/url-equiv", "line": 3, "text": "apart c.example"}


def test_configuration_can_be_named(herd: Herd, shep: Run, tmp_path: Path) -> None:
    (tmp_path / "url-equiv").write_text("b.example a.example\n")
    (one,) = objects(shep(herd, "url", "--json", "--cf", str(tmp_path), "http://a.example/"))
    assert one["normalised_site"] == "b.example"
    answer = shep(herd, "url", "--cf", str(tmp_path / "nowhere"), "http://a.example/")
    assert stdout_of(answer, 2) == ""
    assert b"is not a directory" in answer.stderr


def test_mistake_in_the_table_is_one_sentence(own_herd: Herd, shep: Run) -> None:
    (own_herd.cf / "url-equiv").write_text("a.example www.b.example\n")
    answer = shep(own_herd, "url", "http://a.example/")
    assert stdout_of(answer, 2) == ""
    assert f"{own_herd.cf}/url-equiv, line 1, column 11" in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


def test_footprint_is_the_databases_own_which_no_class_has_touched(classed: Herd, shep: Run) -> None:
    """The states of this database were made by the implicit rule, so a lookup uses that."""
    (one,) = objects(shep(classed, "url", "--json", "--db", str(classed.db), "http://a.example/"))
    norm, path, site = Footprints(KEY).of(parse("http://a.example/"))
    assert (one["normalised_site"], one["footprint"]) == ("b.example", f"{norm:016x} {path:016x}")
    assert one["site_footprint"] == f"{site:016x}"
    assert load_equiv(classed.cf / "url-equiv").version != classed.store.closed().control.equiv


def test_stdin_mixes_with_arguments_and_every_bad_url_is_named(herd: Herd, shep: Run) -> None:
    stdin = (
        "# a comment\n\nhttp://x.example/\nhttp://user:secret@x.example/\nhttp://x .example/\n\u00e9\n".encode()
        + b"http://\xff/\n"
    )
    answer = shep(herd, "url", "ftp://x/", "-", "http://y.example", "http://", f"http://x/{'y' * 2000}", stdin=stdin)
    text = stdout_of(answer, 2)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("parsed")] == [
        "http://x.example/",
        "http://y.example/",
    ]
    *reasons, last = answer.stderr.decode().splitlines()
    for line, said in zip(
        reasons,
        (
            "ftp://x/: scheme ftp",
            "stdin:4: http://user:...@x.example/: userinfo",
            "stdin:5: http://x .example/: control character or blank at column 9",
            "stdin:6: é: not an absolute URL",
            "stdin:7: http://\\udcff/: not UTF-8",
            "http://: empty host",
            "http://x/yyy",
        ),
        strict=True,
    ):
        assert line.startswith(said)
    assert "2,009 bytes long; at most 2,000 are allowed" in reasons[-1]
    assert last.endswith(": 7 of 9 URLs cannot be used, for the reasons above")
