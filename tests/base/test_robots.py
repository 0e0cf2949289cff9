"""robots.txt: the public suite, the mistakes that must not matter, and hostile files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.robots import ALLOW_ALL, MAX_BYTES, parse_robots, rules_for
from tests.support import sampling

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path(os.environ.get("SHEPHERD_SUITES") or ROOT.parent / "shared" / "suites") / "robots"
FILES = sorted(SUITE.glob("*.textproto"))
SKIP = pytest.mark.skipif(not FILES, reason=f"no suite in {SUITE}; set SHEPHERD_SUITES")

FIELD = re.compile(r'(robotstxt|testurl|useragent|expected_outcome):\s*((?:"(?:[^"\\]|\\.)*"\s*)+|[A-Z]+)')
ESCAPE = re.compile(rb"\\(?:x[0-9A-Fa-f]{2}|.)")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def unescape(strings: str) -> bytes:
    """Adjacent strings of a textproto: escapes are bytes, everything else is UTF-8."""
    joined = "".join(text[1:-1] for text in STRING.findall(strings))
    return ESCAPE.sub(lambda found: ast.literal_eval(f"b'{found.group().decode()}'"), joined.encode())


def cases(path: Path) -> Iterator[tuple[bytes, str, str, bool]]:
    body, url, agent = b"", "", ""
    for name, value in FIELD.findall(path.read_text(encoding="utf-8")):
        if name == "robotstxt":
            body = unescape(value)
        elif name == "testurl":
            url = unescape(value).decode()
        elif name == "useragent":
            agent = unescape(value).decode()
        else:
            yield body, url, agent, value == "ALLOWED"


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + ("?" + parts.query if parts.query else "")


@SKIP
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_public_suite(path: Path) -> None:
    found = list(cases(path))
    assert found
    wrong = [case for case in found if parse_robots(case[0], case[2]).allows(path_of(case[1])) != case[3]]
    assert wrong == []


@SKIP
def test_the_suite_is_read_whole() -> None:
    assert sum(len(list(cases(path))) for path in FILES) == sum(path.read_text().count("expected_outcome:") for path in FILES)


def rules(*lines: str, agent: str = "shepherd") -> bytes:
    return "\n".join((f"User-agent: {agent}", *lines)).encode()


def allows(path: str, *lines: str) -> bool:
    return parse_robots(rules(*lines), "shepherd").allows(path)


def test_the_longest_pattern_decides_and_allow_wins_a_tie() -> None:
    assert allows("/a/b", "Disallow: /a", "Allow: /a/b")
    assert not allows("/a/b", "Allow: /a", "Disallow: /a/b")
    assert allows("/a/b", "Disallow: /a/b", "Allow: /a/b")
    assert allows("/a/b", "Disallow: /*/b", "Allow: /a/b")
    assert allows("/a/b", "Disallow: /a/b", "Allow: /*/b")
    assert not allows("/a/b.gif", "Allow: /a/b", "Disallow: /*.gif$")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/", "/x", True),
        ("/x$", "/x", True), ("/x$", "/xy", False), ("/x$y", "/x$y", True), ("*", "/", True), ("$", "/", False),
        ("/$", "/", True), ("/*$", "/x", True), ("/a*a", "/a", False), ("/a*a", "/aa", True), ("/a*a$", "/aba", True),
        ("/a**b", "/ab", True), ("/*.php$", "/x.php.php", True), ("/*.php$", "/x.php?", False), ("/*ab*ab$", "/xab", False),
        ("/*ab*ab$", "/xabab", True), ("/*aba*ba$", "/ababa", True), ("/*aba*ba$", "/aba", False), ("*x", "/yx", True),
        ("/%7e", "/%7E", True), ("/%c3%a9", "/%C3%A9x", True), ("/é", "/%C3%A9", True), ("/%", "/%", True), ("x", "/x", False),
    ],
)  # fmt: skip
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert allows(path, f"Disallow: {pattern}") is not matches


@settings(max_examples=sampling.examples(400), deadline=None)
@given(pattern=st.text("ab/*", min_size=1, max_size=8), anchored=st.booleans(), path=st.text("ab/", max_size=8))
def test_no_choice_of_stars_is_missed(pattern: str, anchored: bool, path: str) -> None:
    model = fnmatchcase("/" + path, pattern if anchored else pattern + "*")
    assert allows("/" + path, f"Disallow: {pattern}{'$' if anchored else ''}") is not model


def test_groups_that_name_us_are_merged_and_those_for_all_ignored() -> None:
    body = (
        b"User-agent: *\nDisallow: /\nUser-agent: Shepherd/2.0\nDisallow: /a\n\nUser-agent: x\nUser-Agent: SHEPHERD\nDisallow: /b"
    )
    found = parse_robots(body, "shepherd")
    assert [found.allows(path) for path in ("/a", "/b", "/c")] == [False, False, True]
    assert parse_robots(b"User-agent: *\nDisallow: /\nUser-agent: shepherd\n", "shepherd").allows("/")
    assert not parse_robots(b"User-agent: *\nDisallow: /\nUser-agent: shepherding\nAllow: /\n", "shepherd").allows("/")


def test_another_line_between_agents_does_not_end_a_group() -> None:
    body = b"User-agent: shepherd\nSitemap: http://a/s.xml\nCrawl-delay: 3\nnonsense: 1\nUser-agent: b\nDisallow: /"
    found = parse_robots(body, "shepherd")
    assert (found.allows("/"), found.crawl_delay_s, found.sitemaps) == (False, 3.0, ["http://a/s.xml"])


def test_the_largest_crawl_delay_of_our_groups_counts() -> None:
    body = b"User-agent: *\nCrawl-delay: 99\nUser-agent: me\nCrawl-delay: 2.5\nDisallow:\nUser-agent: me\nCrawl-delay: 1\n"
    assert parse_robots(body, "me").crawl_delay_s == 2.5
    for value in ("-1", "nan", "soon", "", "1,5"):
        assert parse_robots(rules(f"Crawl-delay: {value}"), "shepherd").crawl_delay_s is None
    assert parse_robots(rules("Crawl-delay: inf"), "shepherd").crawl_delay_s == 4_294_967.0


def test_the_deciding_line_is_named() -> None:
    body = b"# a\r\nUser-agent: *\r\nDisallow: /x # private\rAllow: /x/y\nAllow: /z/index.html"
    found = parse_robots(body, "shepherd")
    assert found.decide("/x/1") == (False, 3, "Disallow: /x # private")
    assert found.decide("/x/y") == (True, 4, "Allow: /x/y")
    assert found.decide("/z/") == (True, 5, "Allow: /z/index.html")
    assert found.decide("/q") == (True, 0, "")
    assert ALLOW_ALL.decide("/") == (True, 0, "")


@pytest.mark.parametrize("status", [0, 100, 304, 429, 500, 503, 599])
def test_a_robots_file_that_does_not_answer_stops_gathering(status: int) -> None:
    assert rules_for(status, b"", "shepherd") is None


@pytest.mark.parametrize("status", [301, 308, 400, 401, 403, 404, 410, 451])
def test_an_absent_robots_file_allows_all(status: int) -> None:
    assert rules_for(status, rules("Disallow: /"), "shepherd") is ALLOW_ALL


def test_an_answer_is_parsed_whatever_its_success() -> None:
    for status in (200, 204, 206):
        found = rules_for(status, rules("Disallow: /x"), "shepherd")
        assert found is not None
        assert not found.allows("/x")


def test_bytes_beyond_the_limit_are_not_read_and_long_lines_are_cut() -> None:
    padding = b"#" * (MAX_BYTES - 40)
    assert parse_robots(padding + b"\nUser-agent: *\n" + b" " * 50 + b"\nDisallow: /\n", "shepherd").allows("/")
    assert not parse_robots(b"x" * 100_000 + b"\nUser-agent: *\nDisallow: /\n", "shepherd").allows("/")


@pytest.mark.parametrize(
    "line", [b"Disallow: " + b"*a" * 8_000, b"Disallow: /" + b"a*" * 30 + b"b$", b"Disallow: /*a*b", b"Allow: /aa"]
)
def test_hostile_patterns_are_judged_in_bounded_steps(line: bytes) -> None:
    body = b"User-agent: *\n" + (line + b"\n") * (MAX_BYTES // (len(line) + 1))
    assert parse_robots(body, "shepherd").allows("/" + "a" * 2_000)


@settings(max_examples=sampling.examples(200), deadline=None)
@given(body=st.binary(max_size=300), path=st.text(max_size=50))
def test_noise_is_never_an_error(body: bytes, path: str) -> None:
    for text in (body, b"User-agent: *\nDisallow: " + body):
        found = parse_robots(text, "shepherd")
        assert found.decide("/" + path)[0] == found.allows("/" + path)
