"""`only` lines: what is in scope, to the letter; that other lines cannot widen it; that thousands cost no more than one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd import urls
from shepherd.errors import FilterError
from shepherd.filters import parse_filter
from shepherd.filters.scope import begins_with_one, shortest

IN_SCOPE = {
    "only site example.org": [
        "http://example.org/", "https://www.example.org/a?b=c", "https://example.org./x",
    ],
    "only site example.org:8080 localhost [2001:db8::1]": [
        "http://example.org:8080/", "https://www.example.org:8080/", "http://localhost/x", "http://[2001:db8::1]/x",
    ],
    "only host example.org": [
        "http://example.org/", "https://www.example.org/", "http://a.b.example.org/x", "http://.example.org/",
    ],
    "only host shop.example:81": ["http://shop.example:81/", "https://sub.shop.example:81/"],
    "only host 192.0.2.7": ["http://192.0.2.7/", "https://192.0.2.7/x"],
    "only prefix https://www.example.org/docs/": [
        "https://www.example.org/docs/", "http://example.org/docs/a/b?c", "https://example.org./docs/",
    ],
    "only prefix http://example.org/a?b=1": ["http://example.org/a?b=1", "http://example.org/a?b=12"],
    "only surt http://(org,example,": [
        "http://example.org/", "https://www.example.org/", "http://a.b.example.org:8080/x",
    ],
    "only surt https://(org,example,)": ["http://example.org/x", "https://www.example.org/"],
    "only surt http://(org,example,:8080)/docs/": ["http://example.org:8080/docs/x"],
    "only surt http://(192.0.2.7)": ["http://192.0.2.7/x"],
}  # fmt: skip
OUT_OF_SCOPE = {
    "only site example.org": [
        "http://sub.example.org/", "http://example.org:8080/", "http://example.org.evil.example/", "http://xexample.org/",
        "http://example.or/", "http://www.www.example.org/", "http://evil.example/?u=http://example.org/",
        "http://evil.example/example.org/",
    ],
    "only site example.org:8080 localhost": ["http://example.org/", "http://example.org:808/", "http://www.localhost/"],
    "only host example.org": ["http://org/", "http://xexample.org/", "http://example.org:8080/", "http://a.example.org:81/"],
    "only host 192.0.2.7": ["http://1.192.0.2.7.example/", "http://192.0.2.70/"],
    "only prefix https://www.example.org/docs/": [
        "https://www.example.org/doc", "https://example.org/", "https://example.org/docsx", "https://sub.example.org/docs/",
        "https://example.org:8080/docs/",
    ],
    "only surt http://(org,example,": ["http://org/", "http://example.orgx/", "http://xexample.org/"],
    "only surt https://(org,example,)": ["http://sub.example.org/", "http://example.org:8080/"],
    "only surt http://(org,example,:8080)/docs/": ["http://example.org:8080/", "http://example.org/docs/x"],
    "only surt http://(192.0.2.7)": ["http://192.0.2.70/"],
}  # fmt: skip


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(line, url) for line, hrefs in table.items() for url in hrefs]


@pytest.mark.parametrize(("line", "url"), cases(IN_SCOPE))
def test_url_in_scope_is_accepted(line: str, url: str) -> None:
    assert parse_filter(line).judge(urls.parse(url).href).accepted


@pytest.mark.parametrize(("line", "url"), cases(OUT_OF_SCOPE))
def test_url_outside_the_scope_is_rejected_whatever_other_lines_say(line: str, url: str) -> None:
    filters = parse_filter(f"accept regex .\naccept address 0.0.0.0/0\n{line}\ndefault accept\n")
    href = urls.parse(url).href
    verdict = filters.judge(href, urls.qkey_of_address("192.0.2.9"))
    assert (verdict.accepted, verdict.line, "`only`" in verdict.text) == (False, 0, True)
    assert filters.clean(href) is None and filters.why(href) == ""


def test_several_lines_are_one_scope_within_which_other_lines_decide() -> None:
    filters = parse_filter(
        "only site a.example\nreject ext pdf\nonly prefix http://b.example/x/ http://b.example/y/\naccept prefix http://a.example/z/\n"
        "default reject\n"
    )
    assert filters.judge("http://a.example/z/1").accepted
    assert not filters.judge("http://a.example/z/1.pdf").accepted
    assert filters.judge("http://b.example/y/1").text == "default reject"
    assert "`only`" in filters.judge("http://b.example/z/1").text


@pytest.mark.parametrize(
    ("line", "column", "why"),
    [
        ("only", 5, "site, host, prefix or surt"),
        ("only ext pdf", 6, "site, host, prefix or surt"),
        ("only site", 10, "a pattern of kind site"),
        ("only site http://example.org/", 11, "without scheme"),
        ("only host *.example.org", 11, "is not a host"),
        ("only prefix https://example.org", 13, "with a / behind the host"),
        ("only prefix example.org/docs/", 13, "https://example.org/docs/"),
        ("only prefix http://example.org.evil@x.example/", 13, "is not the beginning"),
        ("only surt http://(", 11, "is not a SURT prefix"),
        ("only surt http://(org,exam", 11, "ends behind a comma"),
        ("only surt org,example,", 11, "http://(org,example,"),
    ],
)
def test_line_that_would_say_something_else_is_refused(line: str, column: int, why: str) -> None:
    with pytest.raises(FilterError) as error:
        parse_filter(line)
    assert f"line 1, column {column}: " in str(error.value) and why in str(error.value)


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("", False),
        ("reject ext pdf\n", False),
        ("accept regex .\n", False),
        ("default accept\n", True),
        ("default reject\n", True),
        ("only site a.example\n", True),
    ],
)
def test_filter_is_bounded_by_a_scope_or_on_purpose_not(text: str, bounded: bool) -> None:
    assert parse_filter(text).is_bounded is bounded


TEXTS = st.text(alphabet="ab/", max_size=6)


@given(st.lists(TEXTS, max_size=8), TEXTS)
def test_search_among_beginnings_finds_what_looking_at_each_finds(beginnings: list[str], text: str) -> None:
    assert begins_with_one(text, shortest(beginnings)) == any(text.startswith(beginning) for beginning in beginnings)


def test_thousands_of_lines_cost_a_url_no_more_than_one() -> None:
    def judged_s(lines: list[str]) -> float:
        filters = parse_filter("\n".join(lines))
        hrefs = [f"http://a{number % 50}.example/p/{number}" for number in range(20_000)]
        took = []
        for _ in range(5):
            began = time.process_time()
            assert sum(filters.clean(href) is not None for href in hrefs) == len(hrefs)
            took.append(time.process_time() - began)
        return min(took)

    kinds = (
        "only site b{}.example",
        "only host c{}.example",
        "only prefix http://a1.example/{}/",
        "only surt http://(example,d{},",
    )
    many = [kind.format(number) for kind in kinds for number in range(2_500)]
    assert judged_s(["only surt http://(example,", *many]) < 3 * judged_s(["only surt http://(example,"])
