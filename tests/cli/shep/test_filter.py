"""shep filter check: which line decides about a URL and its site, and how one that cannot be used is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.filters.settings import group_number
from tests.support.page_states import Herd, Run, objects, stdout_of

RULES = """# lines are counted from 1
strip utm_* sid
accept prefix http://a.example/keep/
reject ext zip gz            # archives
reject address 10.0.0.0/8 192.0.2.7
reject repeats 3
section pdf ext pdf
set section image host img.example
group cdn host cdn.example
group cdn address 198.51.100.0/24
set min_delay 2.5 host example
set slots 4 address 198.51.100.0/24
"""


@pytest.fixture
def ruled(own_herd: Herd) -> Herd:
    (own_herd.cf / "filter").write_text(RULES)
    return own_herd


def test_text_names_each_deciding_line(ruled: Herd, shep: Run) -> None:
    lines = stdout_of(shep(ruled, "filter", "check", "HTTP://cdn.example:80/x.gz?sid=1&a=b")).splitlines()
    file = ruled.cf / "filter"
    assert lines == [
        "given              HTTP://cdn.example:80/x.gz?sid=1&a=b",
        "parsed             http://cdn.example/x.gz?sid=1&a=b",
        "stripped           http://cdn.example/x.gz?a=b",
        f"verdict            reject (ext gz): {file}, line 4: reject ext zip gz",
        "section            none",
        f"group              cdn: {file}, line 9: group cdn host cdn.example",
        f"set min_delay      2.5: {file}, line 11: set min_delay 2.5 host example",
        "",
    ]


@pytest.mark.parametrize(
    ("url", "value", "line", "why"),
    [
        ("http://a.example/keep/a.zip", "accept", 3, "prefix http://a.example/keep/"),
        ("http://192.0.2.7/", "reject", 5, "address 192.0.2.7/32"),
        ("http://b.org/a/b/a/c/a/", "reject", 6, "repeats 3"),
        ("http://b.org/", "accept", 0, "no line matches"),
    ],
)
def test_verdict_names_line_and_pattern(ruled: Herd, shep: Run, url: str, value: str, line: int, why: str) -> None:
    (one,) = objects(shep(ruled, "filter", "check", "--json", url))
    verdict = one["verdict"]
    assert (verdict["value"], verdict["line"], verdict["why"]) == (value, line, why)
    assert verdict["text"] == (RULES.splitlines()[line - 1].partition("  #")[0].rstrip() if line else "default accept")
    assert verdict["file"] == str(ruled.cf / "filter")


def test_settings_of_a_site_are_listed_line_by_line(ruled: Herd, shep: Run) -> None:
    page, image = objects(shep(ruled, "filter", "check", "--json", "http://img.example/a.pdf", "http://img.example/"))
    assert (page["section"]["value"], page["section"]["line"]) == ("pdf", 7)
    assert (image["section"]["value"], image["section"]["line"]) == ("image", 8)
    assert page["settings"].keys() == {"section", "min_delay"}
    assert page["settings"]["section"]["value"] == "image"
    assert page["group"] is None


def test_address_brings_in_the_lines_of_its_ranges(ruled: Herd, shep: Run) -> None:
    (one,) = objects(shep(ruled, "filter", "check", "--json", "--address", "198.51.100.9", "http://b.org/"))
    assert one["group"]["number"] == f"{group_number('cdn'):016x}"
    assert (one["group"]["line"], one["settings"]["slots"]["line"]) == (10, 12)
    (one,) = objects(shep(ruled, "filter", "check", "--json", "--address", "10.9.9.9", "http://b.org/"))
    assert (one["verdict"]["value"], one["verdict"]["why"]) == ("reject", "address 10.0.0.0/8")
    answer = shep(ruled, "filter", "check", "--address", "10.9.9", "http://b.org/")
    assert stdout_of(answer, 2) == ""
    assert b"10.9.9 is not an address" in answer.stderr


def test_bad_url_is_reported_with_its_reason_and_the_others_are_judged(ruled: Herd, shep: Run) -> None:
    answer = shep(ruled, "filter", "check", "ftp://x/", "-", "http://c.org/", stdin=b"# no URL\nhttp://b.org/\nhttp://\xff/\n")
    shown = [line.split()[1] for line in stdout_of(answer, 2).splitlines() if line.startswith("given")]
    assert shown == ["http://b.org/", "http://c.org/"]
    first, second, last = answer.stderr.decode().splitlines()
    assert first.startswith("ftp://x/: scheme ftp")
    assert second.startswith("stdin:3: ") and second.endswith("not UTF-8")
    assert "2 of 4 URLs cannot be used" in last
    bad, good = objects(shep(ruled, "filter", "check", "--json", "ftp://x/", "http://b.org/"), 2)
    assert bad["error"].startswith("scheme ftp") and good["verdict"]["value"] == "accept"


def test_mistake_in_the_filter_is_one_sentence(ruled: Herd, shep: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "filter").write_text("reject depth\n")
    answer = shep(ruled, "filter", "check", "--cf", str(other), "http://b.org/")
    assert stdout_of(answer, 2) == ""
    assert f"{other}/filter, line 1, column 13: " in answer.stderr.decode()
    assert len(answer.stderr.splitlines()) == 1


def test_no_database_is_needed(ruled: Herd, shep: Run, tmp_path: Path) -> None:
    nowhere = Herd(tmp_path / "nowhere", ruled.cf, ruled.now)
    assert "line 4" in stdout_of(shep(nowhere, "filter", "check", "http://b.org/a.zip"))
