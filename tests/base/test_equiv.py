"""cf/url-equiv: classes, names kept apart, and every mistake with its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mmh3
import pytest

from shepherd import urls
from shepherd.equiv import Equiv, load_equiv, parse_equiv
from shepherd.errors import EquivError, UsageError

ROOT = Path(__file__).resolve().parents[2]
TEXT = """# two classes
example.org example.net  Example.COM:8080 # a comment
apart example.edu sub.example.edu:81

münchen.example [2001:DB8::1]:8080 www.com localhost 0x7f.1
"""


@pytest.fixture
def table() -> Equiv:
    return parse_equiv(TEXT)


def complaint(text: str) -> str:
    with pytest.raises(EquivError) as error:
        parse_equiv(text, "cf/url-equiv")
    return str(error.value)


# --- classes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "representative", "line"),
    [
        ("example.org", "example.org", 2),
        ("example.net", "example.org", 2),
        ("example.com:8080", "example.org", 2),
        ("example.com", "example.com", 0),
        ("sub.example.net", "sub.example.net", 0),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example", 5),
        ("[2001:db8::1]:8080", "xn--mnchen-3ya.example", 5),
        ("www.com", "xn--mnchen-3ya.example", 5),
        ("localhost", "xn--mnchen-3ya.example", 5),
        ("127.0.0.1", "xn--mnchen-3ya.example", 5),
        ("example.edu", "example.edu", 3),
        ("www.example.edu", "www.example.edu", 3),
    ],
)
def test_representative_is_the_first_name_of_the_class(table: Equiv, norm: str, representative: str, line: int) -> None:
    assert table.representative(norm) == representative
    assert table.line_of(norm) == line


@pytest.mark.parametrize(
    ("site", "norm"),
    [
        ("https://www.example.net", "example.org"),
        ("http://example.com:8080", "example.org"),
        ("http://www.example.com:8080", "example.org"),
        ("http://other.example", "other.example"),
        ("http://www.other.example", "other.example"),
        ("http://example.edu", "example.edu"),
        ("https://www.example.edu", "www.example.edu"),
        ("http://www.www.example.edu", "www.example.edu"),
        ("http://www.sub.example.edu:81", "www.sub.example.edu:81"),
        ("http://www.sub.example.edu", "sub.example.edu"),
        ("http://www.com", "xn--mnchen-3ya.example"),
    ],
)
def test_site_is_normalised_by_its_line_or_by_the_implicit_rule(table: Equiv, site: str, norm: str) -> None:
    assert table.norm_of(site) == norm


def test_empty_table_leaves_the_implicit_rule() -> None:
    empty = parse_equiv("\n# nothing\n")
    for site in ("http://www.a.example", "https://a.example:8443", "http://www.com", "http://[::1]"):
        assert empty.norm_of(site) == urls.norm_of(site)
        assert empty.line_of(urls.norm_of(site)) == 0


def test_normalising_twice_changes_nothing(table: Equiv) -> None:
    for norm in ("example.net", "example.org", "www.example.edu", "example.edu", "localhost"):
        assert table.representative(table.representative(norm)) == table.representative(norm)


def test_table_never_changes(table: Equiv) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.version = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        table._lines["x"] = 1  # type: ignore[index]


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a.example www.b.example", "line 1, column 11", 'begins with "www."; names stand here without it: write b.example'),
        ("WWW.A.example b.example", "line 1, column 1", "write a.example"),
        ("# x\n\n  a.example http://b.example", "line 3, column 13", "is not a name; allowed is a host"),
        ("a.example b.example/", "line 1, column 11", "is not a name"),
        ("a.example user@b.example", "line 1, column 11", "is not a name"),
        ("a.example *.b.example", "line 1, column 11", "is not a name"),
        ("a.example b.example:", "line 1, column 11", "is not a name"),
        ("a.example b.example:99999", "line 1, column 11", "is not a name"),
        ("a.example b%00.example", "line 1, column 11", "is not a name"),
        ("a.example [::1", "line 1, column 11", "is not a name"),
        ("a.example,b.example", "line 1, column 20", "another name"),
        ("a.example b.example:80", "line 1, column 11", "default port"),
        ("a.example b.example:0443", "line 1, column 11", "default port"),
        ("a.example", "line 1, column 10", "the line ends here; allowed is another name"),
        ("apart", "line 1, column 6", "the line ends here; allowed is another name"),
        ("a.example b.example a.example", "line 1, column 21", "a.example is twice in this line"),
        ("a.example b.example A.Example:8080 a.example:8080", "line 1, column 36", "is twice in this line"),
        (
            "a.example b.example\nc.example b.example",
            "line 2, column 11",
            "b.example is in line 1 already; allowed is one class",
        ),
        ("apart a.example\napart a.example", "line 2, column 7", "is in line 1 already; allowed is one line"),
        ("apart a.example a.example", "line 1, column 17", "twice in this line"),
        ("a.example b.example\napart b.example", "line 2, column 7", "is in a class and kept apart (line 1)"),
        ("apart b.example\na.example b.example", "line 2, column 11", "is in a class and kept apart (line 1)"),
        ("apart www.b.example", "line 1, column 7", 'begins with "www."'),
        ("apart localhost", "line 1, column 7", "localhost and www.localhost are not taken for one anyway"),
        ("apart 127.0.0.1", "line 1, column 7", "not taken for one anyway"),
        ("apart [::1]", "line 1, column 7", "not taken for one anyway"),
    ],
)
def test_mistake_is_reported_with_its_place_and_reason(text: str, place: str, said: str) -> None:
    message = complaint(text)
    assert message.startswith(f"cf/url-equiv, {place}: ")
    assert said in message


# --- files and versions -----------------------------------------------------------------------------------------


def test_version_is_check64_of_the_text(table: Equiv) -> None:
    assert table.version == int.from_bytes(mmh3.hash_bytes(TEXT.encode(), 0x5348)[:8], "little")
    assert parse_equiv(TEXT + "\n").version != table.version
    assert table.text == TEXT


def test_missing_file_is_empty_and_an_unreadable_one_an_error(tmp_path: Path) -> None:
    assert load_equiv(tmp_path / "url-equiv").version == parse_equiv("").version
    (tmp_path / "latin").write_bytes(b"m\xfcnchen.example b.example")
    with pytest.raises(UsageError, match="latin: cannot be read"):
        load_equiv(tmp_path / "latin")
    (tmp_path / "bad").write_bytes(b"www.a.example\r\n")
    with pytest.raises(UsageError, match="bad, line 1, column 1"):
        load_equiv(tmp_path / "bad")
    (tmp_path / "windows").write_bytes(b"a.example b.example\r\n")
    assert load_equiv(tmp_path / "windows").representative("b.example") == "a.example"


def test_default_file_is_empty_and_its_examples_are_valid() -> None:
    default = load_equiv(ROOT / "cf" / "url-equiv")
    assert not default._lines
    examples = default.text.partition("# Examples\n")[2].replace("#   ", "")
    assert parse_equiv(examples).norm_of("http://www.example.com") == "example.org"
    assert parse_equiv(examples).norm_of("http://www.example.edu") == "www.example.edu"
