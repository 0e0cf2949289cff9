"""The filter: what each kind of pattern matches, which line decides, what is stripped, and how mistakes are reported."""

from __future__ import annotations

import random
from pathlib import Path

import mmh3
import pytest

from shepherd import filters
from shepherd.errors import FilterError
from shepherd.filters import Verdict, load_filter, parse_filter, patterns
from shepherd.formats import tables


def accepts(text: str, href: str) -> bool:
    return parse_filter(text).judge(href).accepted


def complaint(text: str) -> str:
    with pytest.raises(FilterError) as error:
        parse_filter(text, "cf/filter")
    return str(error.value)


# --- patterns ---------------------------------------------------------------------------------------------------

MATCHES = [
    ("host example.org", "http://example.org/", True),
    ("host example.org", "https://www.a.example.org:8080/x", True),
    ("host example.org", "http://badexample.org/", False),
    ("host example.org", "http://example.org.evil.example/", False),
    ("host example.org", "http://other.example/example.org", False),
    ("host example.org", "http://example.org./", True),
    ("host Example.ORG.", "http://example.org/", True),
    ("host münchen.example", "http://www.xn--mnchen-3ya.example/", True),
    ("host 192.0.2.1", "http://192.0.2.1:81/", True),
    ("host [2001:db8::1]", "http://[2001:db8::1]:81/", True),
    ("host org", "http://example.org/", True),
    ("host a.example b.example", "http://b.example/", True),
    ("glob http://*.example.org/*", "http://www.example.org/a/b?c", True),
    ("glob http://*.example.org/*", "https://www.example.org/", False),
    ("glob *.pdf", "http://example.org/a.pdf", True),
    ("glob *.pdf", "http://example.org/a.pdf?x", False),
    ("glob *.pdf", "http://example.org/apdf", False),
    ("glob http?://a.example/", "https://a.example/", True),
    ("glob http?://a.example/", "http://a.example/", False),
    ("glob *[0-9]+(x)*", "http://example.org/7x", False),
    ("prefix http://example.org/a", "http://example.org/abc", True),
    ("prefix http://example.org/a", "http://example.org/b", False),
    ("prefix http://example.org/a.c", "http://example.org/abc", False),
    ("prefix https:", "https://example.org/", True),
    ("ext pdf", "http://example.org/a/B.PDF?x=1", True),
    ("ext .Gz", "http://example.org/a.tar.gz", True),
    ("ext pdf", "http://example.org/pdf", False),
    ("ext pdf", "http://example.org/a.pdf/", False),
    ("ext pdf", "http://example.org/?file=a.pdf", False),
    ("ext org", "http://example.org/", False),
    (r"regex /\d{4}/", "http://example.org/2024/", True),
    (r"regex /\d{4}/$", "http://example.org/2024/x", False),
    (r"regex (?i)LOGIN", "http://example.org/login", True),
    (r"regex a|b$", "http://x.example/b", True),
]


@pytest.mark.parametrize(("pattern", "href", "matches"), MATCHES)
def test_pattern_matches_neither_more_nor_less(pattern: str, href: str, matches: bool) -> None:
    assert accepts(f"reject {pattern}", href) is not matches
    assert accepts(f"accept {pattern}\ndefault reject", href) is matches


def test_patterns_matched_together_decide_as_if_matched_one_by_one() -> None:
    rng = random.Random(1)
    for _ in range(200):
        lines = [f"{rng.choice(['accept', 'reject'])} {pattern}" for pattern, _, _ in rng.sample(MATCHES, 8)]
        whole = parse_filter("\n".join(lines))
        href = rng.choice(MATCHES)[1]
        deciding = (number for number, line in enumerate(lines, 1) if parse_filter(line).judge(href).line)
        assert whole.judge(href).line == next(deciding, 0)


def test_patterns_too_large_together_are_an_error_not_an_open_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SET_BYTES", 1 << 18)
    assert "cf/filter: its globs" in complaint("\n".join(f"reject regex part{n}[a-z]{{40}}" for n in range(200)))


# --- the deciding line ------------------------------------------------------------------------------------------


def test_first_matching_line_decides_whatever_its_kind() -> None:
    rules = parse_filter(
        """# comment
        accept prefix http://example.org/keep/   # a comment after a blank
        reject ext pdf
        reject host example.org
        accept regex .
        default reject
        """
    )
    assert rules.judge("http://example.org/keep/a.pdf") == Verdict(True, 2, "accept prefix http://example.org/keep/")
    assert rules.judge("http://other.example/a.pdf").line == 3
    assert rules.judge("http://example.org/").line == 4
    assert rules.judge("http://other.example/").line == 5


def test_default_is_told_from_a_line() -> None:
    assert parse_filter("").judge("http://a.example/") == Verdict(True, 0, "default accept")
    assert parse_filter("\ndefault reject # all").judge("http://a.example/") == Verdict(False, 0, "default reject")


def test_hash_inside_a_word_is_no_comment() -> None:
    assert parse_filter("reject regex a#b").judge("http://x.example/").text == "default accept"
    assert "line 1" in complaint("reject host a#b")


# --- strip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("href", "stripped"),
    [
        ("http://a.example/", "http://a.example/"),
        ("http://a.example/?id=1", "http://a.example/?id=1"),
        ("http://a.example/?utm_source=x", "http://a.example/"),
        ("http://a.example/?utm_source=x&id=1&sid=2&b=%41&&c", "http://a.example/?id=1&b=%41&&c"),
        ("http://a.example/?id=1&utm_medium", "http://a.example/?id=1"),
        ("http://a.example/?SID=1&sidx=2", "http://a.example/?SID=1&sidx=2"),
        ("http://a.example/?x=sid=1", "http://a.example/?x=sid=1"),
        ("http://a.example/sid=1?sid=1?", "http://a.example/sid=1"),
        ("http://a.example/??sid=1", "http://a.example/??sid=1"),
    ],
)
def test_strip_removes_named_parameters_and_touches_nothing_else(href: str, stripped: str) -> None:
    rules = parse_filter("strip utm_* sid")
    assert rules.strip(href) == stripped
    assert rules.strip(stripped) == stripped


def test_clean_judges_what_strip_left() -> None:
    rules = parse_filter("strip sid\nreject regex sid\nreject ext gif")
    assert rules.clean("http://a.example/?sid=1") == "http://a.example/"
    assert rules.clean("http://a.example/b.gif?sid=1") is None


# --- settings ---------------------------------------------------------------------------------------------------


def test_first_matching_set_line_decides_each_setting_by_itself() -> None:
    rules = parse_filter(
        """set min_delay 2.5 host slow.example
        set min_delay 30 glob https://* http://*:8080
        set soft_limit 10 host example
        set hard_limit 0 glob http://x.slow.example
        """
    )
    none = tables.NO_LIMIT
    assert rules.site_settings("http://x.slow.example") == filters.SiteSettings(2_500, 10, 0)
    assert rules.site_settings("https://other.example") == filters.SiteSettings(30_000, 10, none)
    assert rules.site_settings("http://a.org:8080") == filters.SiteSettings(30_000, none, none)
    assert rules.site_settings("http://a.org") == filters.SiteSettings(none, none, none)


def test_set_lines_do_not_judge_urls() -> None:
    assert parse_filter("set soft_limit 1 host a.example\nreject ext gif").judge("http://a.example/").line == 0


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("\n acept host a", "line 2, column 2", "accept, reject, default, strip, set, group or section"),
        ("accept", "line 1, column 7", "host, glob, prefix, ext, regex, address, repeats, depth or length"),
        ("accept hosts a.example", "line 1, column 8", "host, glob, prefix, ext, regex, address, repeats, depth or length"),
        ("accept host", "line 1, column 12", "a pattern of kind host"),
        ("accept host a.example http://b.example", "line 1, column 23", "no host"),
        ("reject host *.example", "line 1, column 13", "no host"),
        ("reject host .example", "line 1, column 13", "no host"),
        ("reject host a.example:80", "line 1, column 13", "no host"),
        ("reject host a%00b", "line 1, column 13", "no host"),
        ("reject glob example.org/*", "line 1, column 13", "begins with http://, https:// or *"),
        ("reject glob http://Example.org/*", "line 1, column 13", "lower case"),
        ("reject prefix *.example", "line 1, column 15", "begins with http:// or https://"),
        ("reject prefix http://a.example/ü", "line 1, column 15", "ASCII"),
        ("reject ext tar.gz", "line 1, column 12", "no extension"),
        ("reject regex a (b", "line 1, column 16", "missing )"),
        ("reject regex (?=a)", "line 1, column 14", "RE2"),
        ("default", "line 1, column 8", "accept or reject"),
        ("default maybe", "line 1, column 9", "accept or reject"),
        ("default accept all", "line 1, column 16", "end of the line"),
        ("default accept\ndefault accept", "line 2, column 1", "a second default"),
        ("strip", "line 1, column 6", "query parameter"),
        ("strip a=b", "line 1, column 7", "a name as it stands in URLs"),
        ("strip *a", "line 1, column 7", "a name as it stands in URLs"),
        ("set", "line 1, column 4", "min_delay, slots, soft_limit, hard_limit"),
        ("set delay 1 host a", "line 1, column 5", "select_bonus, queue_bonus, refresh_boost or robots"),
        ("set min_delay", "line 1, column 14", "seconds"),
        ("set min_delay -1 host a", "line 1, column 15", "seconds"),
        ("set min_delay 1e9 host a", "line 1, column 15", "seconds"),
        ("set soft_limit 1.5 host a", "line 1, column 16", "a whole number"),
        ("set soft_limit 1 ext pdf", "line 1, column 18", "host, glob or address"),
    ],
)
def test_mistake_is_reported_with_its_place_and_what_is_allowed(text: str, place: str, said: str) -> None:
    message = complaint(text)
    assert message.startswith(f"cf/filter, {place}: ")
    assert said in message


# --- files and versions -----------------------------------------------------------------------------------------


def test_version_is_check64_of_the_text() -> None:
    text = "reject host münchen.example\n"
    expected = int.from_bytes(mmh3.hash_bytes(text.encode(), 0x5348)[:8], "little")
    assert parse_filter(text).version == expected
    assert parse_filter(text).text == text
    assert parse_filter(text + "\n").version != expected


def test_missing_file_is_an_empty_filter_and_an_unreadable_one_an_error(tmp_path: Path) -> None:
    assert load_filter(tmp_path / "filter").version == parse_filter("").version
    (tmp_path / "latin").write_bytes(b"reject host m\xfcnchen.example")
    with pytest.raises(FilterError, match="latin: cannot be read"):
        load_filter(tmp_path / "latin")
    (tmp_path / "bad").write_text("nonsense", encoding="utf-8")
    with pytest.raises(FilterError, match="bad, line 1, column 1"):
        load_filter(tmp_path / "bad")


def test_text_of_a_file_is_kept_byte_by_byte(tmp_path: Path) -> None:
    (tmp_path / "filter").write_bytes(b"reject ext pdf\r\n")
    rules = load_filter(tmp_path / "filter")
    assert rules.text == "reject ext pdf\r\n"
    assert not rules.judge("http://a.example/x.pdf").accepted
