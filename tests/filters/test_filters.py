"""The filter: what each kind of pattern matches, which line decides, what is stripped, and how mistakes are reported."""

from __future__ import annotations

import random
from pathlib import Path

import mmh3
import pytest

from shepherd.errors import FilterError
from shepherd.filters import Verdict, load_filter, parse_filter, patterns
from shepherd.formats import tables
from shepherd.urls import qkey_of_address


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
    ("address 192.0.2.0/24", "http://192.0.2.0/", True),
    ("address 192.0.2.0/24", "https://192.0.2.255:8443/x", True),
    ("address 192.0.2.0/24", "http://192.0.3.0/", False),
    ("address 192.0.2.0/24", "http://192.0.1.255/", False),
    ("address 192.0.2.7", "http://192.0.2.7./", True),
    ("address 192.0.2.7", "http://192.0.2.8/", False),
    ("address 0.0.0.0/0", "http://255.255.255.255/", True),
    ("address 0.0.0.0/0", "http://a.example/1.2.3.4", False),
    ("address 0.0.0.0/0", "http://1.2.3.4.example/", False),
    ("address 0.0.0.0/0", "http://[2001:db8::1]/", False),
    ("address 2001:db8::/32", "http://[2001:db8:1::1]:81/", True),
    ("address 2001:db8::/32", "http://[2001:db9::1]/", False),
    ("address 2001:DB8::1", "http://[2001:db8::1]/", True),
    ("address ::/0", "http://[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]/", True),
    ("address 192.0.2.0/24", "http://[::ffff:c000:207]/", True),
    ("address ::ffff:0:0/96", "http://[::ffff:c000:207]/", True),
    ("address 198.51.100.0/24 192.0.2.7", "http://192.0.2.7/", True),
    ("repeats 3", "http://a.example/a/b/a/c/a", True),
    ("repeats 3", "http://a.example/a/b/a/c/a/", True),
    ("repeats 3", "http://a.example/a/a/b/b", False),
    ("repeats 3", "http://a.example/a/A/aa/a", False),
    ("repeats 3", "http://a.example/a/a?a/a/a", False),
    ("repeats 3", "http://a.example/////", False),
    ("repeats 2", "http://a.example//a//a", True),
    ("repeats 2", "http://a.example/a.example/", False),
    ("depth 2", "http://a.example/a/b/c", True),
    ("depth 2", "http://a.example/a/b/c/", True),
    ("depth 2", "http://a.example/a/b/", False),
    ("depth 2", "http://a.example/a//b///", False),
    ("depth 2", "http://a.example/?/a/b/c/d", False),
    ("depth 0", "http://a.example/a", True),
    ("depth 0", "http://a.example/", False),
    ("length 20", "http://a.example/abc", False),
    ("length 20", "http://a.example/abcd", True),
    ("length 20", "http://a.example/?bcd", True),
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


def test_of_several_counts_the_first_line_that_is_reached_decides() -> None:
    rules = parse_filter(
        "accept depth 9\nreject depth 3\nreject depth 5\nreject length 40\naccept length 30\nreject repeats 4\naccept repeats 2"
    )
    assert rules.judge("http://a.example/1/2/3/4/5/6/7/8/9/0").line == 1
    assert rules.judge("http://a.example/1/2/3/4/5/6").line == 2
    assert rules.judge("http://a.example/abcdefghijklmnopqrstuvwxyz").line == 4
    assert rules.judge("http://a.example/abcdefghijklmnopq").line == 5
    assert rules.judge("http://a.example/x/x/y").line == 7
    assert rules.judge("http://a.example/y/x").line == 0


def test_pattern_of_the_deciding_line_is_named() -> None:
    rules = parse_filter("reject ext gif png\nreject address 192.0.2.0/24 10.0.0.0/8\nreject depth 1")
    assert rules.why("http://a.example/x.PNG") == "ext png"
    assert rules.why("http://10.1.2.3/") == "address 10.0.0.0/8"
    assert rules.why("http://a.example/", qkey_of_address("10.1.2.3")) == "address 10.0.0.0/8"
    assert rules.why("http://a.example/a/b") == "depth 1"
    assert rules.why("http://a.example/") == ""


# --- servers ----------------------------------------------------------------------------------------------------


def test_address_line_applies_to_a_name_once_its_server_is_known() -> None:
    rules = parse_filter("accept ext txt\nreject address 10.0.0.0/8 2001:db8::1\naccept address 10.1.0.0/16")
    inside, outside = qkey_of_address("10.1.2.3"), qkey_of_address("11.0.0.0")
    assert rules.judge("http://a.example/").line == 0
    assert rules.judge("http://a.example/", inside).line == 2
    assert rules.judge("http://a.example/x.txt", inside).line == 1
    assert rules.judge("http://a.example/", outside).line == 0
    assert rules.judge("http://a.example/", qkey_of_address("2001:db8::1")).line == 2
    assert rules.judge("http://10.1.2.3/", outside).line == 2


def test_ipv6_range_is_not_judged_by_a_queue_key_which_is_a_hash() -> None:
    rules = parse_filter("reject address 2001:db8::/127")
    assert rules.judge("http://a.example/", qkey_of_address("2001:db8::1")).accepted
    assert not rules.judge("http://[2001:db8::1]/").accepted


def test_first_range_that_contains_a_server_decides() -> None:
    rules = parse_filter(
        "accept address 10.1.0.0/16\nreject host b\nreject address 10.0.0.0/8 255.255.255.255 2001:db8::1 2001:db8::2"
    )
    addresses = ["10.1.2.3", "10.2.0.0", "9.255.255.255", "11.0.0.0", "255.255.255.255", "0.0.0.0", "2001:db8::1", "2001:db8::3"]
    qkeys = [*map(qkey_of_address, addresses), tables.qkey_unresolved(10 << 24), 0]
    assert [rules.judge("http://a.example/", qkey).line for qkey in qkeys] == [1, 3, 0, 0, 3, 0, 3, 0, 0, 0]


def test_default_is_distinct_from_a_line() -> None:
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


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("\n acept host a", "line 2, column 2", "accept, reject, default, strip, set, group or section"),
        ("accept", "line 1, column 7", "host, glob, prefix, ext, regex, address, repeats, depth or length"),
        ("accept hosts a.example", "line 1, column 8", "host, glob, prefix, ext, regex, address, repeats, depth or length"),
        ("accept host", "line 1, column 12", "a pattern of kind host"),
        ("accept host a.example http://b.example", "line 1, column 23", "not a host"),
        ("reject host *.example", "line 1, column 13", "not a host"),
        ("reject host .example", "line 1, column 13", "not a host"),
        ("reject host a.example:80", "line 1, column 13", "not a host"),
        ("reject host a%00b", "line 1, column 13", "not a host"),
        ("reject glob example.org/*", "line 1, column 13", "begins with http://, https:// or *"),
        ("reject glob http://Example.org/*", "line 1, column 13", "lower case"),
        ("reject prefix *.example", "line 1, column 15", "begins with http:// or https://"),
        ("reject prefix http://a.example/ü", "line 1, column 15", "ASCII"),
        ("reject ext a.tar.gz", "line 1, column 12", "not an extension"),
        ("reject regex a (b", "line 1, column 16", "missing )"),
        ("reject regex (?=a)", "line 1, column 14", "RE2"),
        ("default", "line 1, column 8", "accept or reject"),
        ("default maybe", "line 1, column 9", "accept or reject"),
        ("default accept all", "line 1, column 16", "end of the line"),
        ("default accept\ndefault accept", "line 2, column 1", "a second default"),
        ("strip", "line 1, column 6", "query parameter"),
        ("strip a=b", "line 1, column 7", "a name as in URLs"),
        ("strip *a", "line 1, column 7", "a name as in URLs"),
        ("set", "line 1, column 4", "min_delay, slots, soft_limit, hard_limit"),
        ("set delay 1 host a", "line 1, column 5", "select_bonus, queue_bonus, refresh_boost, robots or requisites"),
        ("set min_delay", "line 1, column 14", "seconds"),
        ("set min_delay -1 host a", "line 1, column 15", "seconds"),
        ("set min_delay 1e9 host a", "line 1, column 15", "seconds"),
        ("set soft_limit 1.5 host a", "line 1, column 16", "a whole number"),
        ("set slots 0 host a", "line 1, column 11", "from 1 to 65535"),
        ("set slots 65536 host a", "line 1, column 11", "from 1 to 65535"),
        ("set fresh_limit x host a", "line 1, column 17", "a whole number"),
        ("set select_bonus 32768 host a", "line 1, column 18", "from -32768 to 32767"),
        ("set queue_bonus --1 host a", "line 1, column 17", "from -32768 to 32767"),
        ("set refresh_boost 0 host a", "line 1, column 19", "from 1 to 255"),
        ("set robots deny host a", "line 1, column 12", "ignore or obey"),
        ("set section htm host a", "line 1, column 13", "none, html, text, pdf"),
        ("set section 31 host a", "line 1, column 13", "your own from 32 to 255"),
        ("set group a host a", "line 1, column 5", "refresh_boost, robots or requisites"),
        ("set min_delay 1 address 192.0.2.1/24", "line 1, column 25", "the range, 192.0.2.0/24, or the address alone, 192.0.2.1"),
        ("set min_delay 1 address a.example", "line 1, column 25", "not an address range"),
        ("group", "line 1, column 6", "a name of letters"),
        ("group a/b host a", "line 1, column 7", "a name of letters"),
        ("group a", "line 1, column 8", "host, glob or address"),
        ("group a regex b", "line 1, column 9", "host, glob or address"),
        ("group a host", "line 1, column 13", "a pattern of kind host"),
        ("section", "line 1, column 8", "none, html, text, pdf"),
        ("section 256 ext pdf", "line 1, column 9", "your own from 32 to 255"),
        ("section pdf", "line 1, column 12", "host, glob, prefix, ext or regex"),
        ("section pdf depth 3", "line 1, column 13", "host, glob, prefix, ext or regex"),
        ("reject address 10.0.0.0/33", "line 1, column 16", "not an address range"),
        ("reject address 10.0.0.0/8 [::1]", "line 1, column 27", "not an address range"),
        ("reject repeats", "line 1, column 15", "a whole number"),
        ("reject repeats 1", "line 1, column 16", "from 2 to 9999"),
        ("reject depth -1", "line 1, column 14", "from 0 to 9999"),
        ("reject depth 3 4", "line 1, column 16", "end of the line"),
        ("reject length 10000", "line 1, column 15", "from 0 to 9999"),
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
