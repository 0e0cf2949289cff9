"""The rules by which a URL is normalised, as they are listed: each does what it says, and together what shepherd.urls does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.report.spelling import RULES, steps
from shepherd.text import redact


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("http://example.org/", []),
        ("HTTP://Example.ORG/", ["scheme and host in lower case -> http://example.org/"]),
        ("http:example.org/a", ["two slashes before the host, and no backslash -> http://example.org/a"]),
        ("http://example.org\\a", ["two slashes before the host, and no backslash -> http://example.org/a"]),
        ("http://bücher.example/", ["the host as name servers know it -> http://xn--bcher-kva.example/"]),
        ("http://0x7f.1/", ["the address as it is usually written -> http://127.0.0.1/"]),
        ("https://example.org:443/", ["no default port -> https://example.org/"]),
        ("http://example.org:0080/", ["no default port -> http://example.org/"]),
        ("http://example.org", ["a path at least of / -> http://example.org/"]),
        ("http://example.org/#top", ["no fragment -> http://example.org/"]),
        ("http://example.org/a?", ["no empty query -> http://example.org/a"]),
        ("http://example.org/a/./b/%2e%2E/c", ["no . and .. in the path -> http://example.org/a/c"]),
        ("http://example.org/a/..", ["no . and .. in the path -> http://example.org/"]),
        ("http://example.org/ü?q=ü", ["what may not stand in a URL percent-encoded -> http://example.org/%C3%BC?q=%C3%BC"]),
        (
            "HTTP://Example.org:80/a/../b#c",
            [
                "scheme and host in lower case -> http://example.org:80/a/../b#c",
                "no default port -> http://example.org/a/../b#c",
                "no fragment -> http://example.org/a/../b",
                "no . and .. in the path -> http://example.org/b",
            ],
        ),
    ],
)
def test_only_the_rules_that_did_something_are_listed(text: str, rules: list[str]) -> None:
    assert [f"{step.rule} -> {step.text}" for step in steps(text, urls.parse(text, strict=True))] == rules


HOSTS = st.sampled_from(["a.example", "WWW.A.example", "bücher.example", "127.1", "[::1]", "0x7F000001", "a。example"])
PORTS = st.sampled_from(["", ":", ":80", ":443", ":8080", ":00080"])
PATHS = st.lists(st.sampled_from(["/", "\\", ".", "..", "%2e", "a", "ü", "%zz", "%41", ";", "'", '"', "<", "|", "@"]), max_size=8)
QUERIES = st.sampled_from(["", "?", "?a=b", "?ü", "?'\"<>", "??", "?a=b&utm=c"])


@given(st.sampled_from(["http:", "HTTPS:"]), st.sampled_from(["//", "", "/", "\\\\", "////"]), HOSTS, PORTS, PATHS, QUERIES,
       st.sampled_from(["", "#", "#a"]))  # fmt: skip
def test_every_spelling_is_the_same_url_and_the_last_is_normal(
    scheme: str, slashes: str, host: str, port: str, path: list[str], query: str, fragment: str
) -> None:
    text = f"{scheme}{slashes}{host}{port}/{''.join(path)}{query}{fragment}"
    try:
        parsed = urls.parse(text, strict=True)
    except BadUrl:
        return
    told = steps(text, parsed)
    assert [urls.parse(step.text) for step in told] == [parsed] * len(told)
    assert (told[-1].text if told else text) == parsed.href
    assert len({step.rule for step in told}) == len(told) <= len(RULES) + 1


@pytest.mark.parametrize("text", [" " * 1_000_000, "http:" + "/" * 1_000_000, "a" * 1_000_000, "a:" + "1" * 1_000_000])
def test_overlong_url_is_cut(text: str) -> None:
    """At a square's cost this would take an hour."""
    assert redact(text) == text[:200] + "..."


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("https://me:secret@a.example/", "https://me:...@a.example/"),
        (" me:secret@a.example", " me:...@a.example"),
        ("https://me:12@a.example/", "https://me:...@a.example/"),
        ("https://a.example:80/x@y", "https://a.example:80/x@y"),
        ("//me:se/cret@a.example/", "//me:...@a.example/"),
    ],
)
def test_password_is_not_shown(text: str, seen: str) -> None:
    assert redact(text) == seen
