"""URLs: the web platform's cases, what we refuse and why, sites, footprints and queue keys."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mmh3
import numpy as np
import pytest

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.formats import tables

KEY = bytes(range(16))
DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions.md"


@pytest.fixture
def footprints() -> urls.Footprints:
    return urls.Footprints(KEY)


def reason(text: str, strict: bool = False) -> str:
    with pytest.raises(BadUrl) as refusal:
        urls.parse(text, strict=strict)
    return str(refusal.value)


# --- the web platform's cases -----------------------------------------------------------------------------------


def outcome(case: dict[str, str], got: urls.Url | BadUrl) -> str:
    """`agrees`, or the category of docs/decisions.md under which this case deviates; anything else is a fault of ours."""
    if "failure" in case or not case["href"].startswith(("http://", "https://")):
        return "agrees" if isinstance(got, BadUrl) else "accepts what it should refuse"
    expected = case["href"].partition("#")[0]
    if isinstance(got, urls.Url):
        if got.href == expected:
            return "agrees"
        return "empty query" if got.href + "?" == expected else "another href"
    if (case["username"] or case["password"]) and "userinfo" in str(got):
        return "userinfo"
    if any(label.startswith("xn--") for label in case["hostname"].split(".")) and "host" in str(got):
        return "undecodable xn-- label"
    return f"refused: {got}"


def test_cases_of_the_web_platform_deviate_only_as_documented(suites: Callable[[str], Path]) -> None:
    cases = json.loads((suites("url") / "urltestdata.json").read_text(encoding="utf-8"))
    outcomes: Counter[str] = Counter()
    for case in cases:
        if isinstance(case, str):  # a comment of the suite
            continue
        try:
            got: urls.Url | BadUrl = urls.join(case["base"], case["input"]) if case["base"] else urls.parse(case["input"])
        except BadUrl as error:
            got = error
        result = outcome(case, got)
        assert result in ("agrees", "userinfo", "empty query", "undecodable xn-- label"), case
        outcomes[result] += 1
    assert outcomes.pop("agrees") > 800
    listed = re.findall(r"^\| (userinfo|empty query|undecodable xn-- label) \| (\d+) \|", DECISIONS.read_text(), re.MULTILINE)
    assert outcomes == {category: int(count) for category, count in listed}


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://example.org/", "scheme ftp"),
        ("mailto:a@example.org", "scheme mailto"),
        ("example.org/page", "not an absolute URL"),
        ("", "not an absolute URL"),
        ("http://user@example.org/", "userinfo"),
        ("https://user:pass@example.org/", "userinfo"),
        ("http://", "empty host"),
        ("http://:80/", "empty host"),
        ("https:///?q", "empty host"),
        ("http://user@/", "empty host"),
        ("http://example.org:99999/", "host or port"),
        ("http://a b/", "host or port"),
        ("http://[::1/", "host or port"),
    ],
)
def test_refusal_names_its_reason(text: str, said: str) -> None:
    assert said in reason(text)


def test_refusal_does_not_repeat_a_scheme_of_any_length() -> None:
    for text in ("x" * 10_000 + ":", "x" * 10_000 + "://a.example/"):
        assert reason(text) == f"scheme {'x' * 30}...: only http and https are gathered"


@pytest.mark.parametrize("link", ["http://", "//a b/", "http://u:p@x/", "javascript:void(0)"])
def test_bad_link_is_refused_on_a_good_base(link: str) -> None:
    with pytest.raises(BadUrl):
        urls.join("http://example.org/", link)


def test_relative_link_on_a_base_without_paths_says_so() -> None:
    with pytest.raises(BadUrl, match="base URL is not http"):
        urls.join("mailto:a@example.org", "page")


def test_unusable_base_is_reported_as_the_base_and_not_the_link() -> None:
    with pytest.raises(BadUrl, match="base URL cannot be used"):
        urls.join("no base", "page")


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\x00", "\x1f", "\x7f", "\x85", "\u00a0", "\u2028"])
@pytest.mark.parametrize("place", ["{}http://a.example/", "http://a.example/{}x", "http://a.example/x{}"])
def test_operator_input_with_a_blank_or_control_is_not_silently_repaired(blank: str, place: str) -> None:
    assert "column" in reason(place.format(blank), strict=True)


def test_links_are_stripped_as_browsers_do() -> None:
    assert urls.parse(" \n http://exa\tmple.org/a\nb \x00").href == "http://example.org/ab"
    assert urls.join("http://a.example/", "  /my file ").href == "http://a.example/my%20file"


def test_limit_of_length_counts_the_normalised_bytes() -> None:
    room = urls.MAX_URL_BYTES - len("http://a.example/")
    assert len(urls.parse("http://a.example/" + "x" * room + "?#fragment").href) == urls.MAX_URL_BYTES
    assert "2,001 bytes" in reason("http://a.example/" + "x" * (room + 1))
    assert "bytes" in reason("http://a.example/" + "ü" * (room // 6 + 1))


def test_lone_surrogate_becomes_the_replacement_character() -> None:
    assert urls.parse("http://a.example/\ud800x").path == "/%EF%BF%BDx"
    assert urls.join("http://a.example/", "\udfff").path == "/%EF%BF%BD"


# --- parts ------------------------------------------------------------------------------------------------------


def test_parts_of_a_url() -> None:
    url = urls.parse("HTTPS://WWW.Example.org:443/a/../b c?x=1#part")
    assert url == urls.Url("https://www.example.org/b%20c?x=1", "https://www.example.org", "/b%20c?x=1", "example.org")


def test_empty_query_and_no_query_are_one_url() -> None:
    assert urls.parse("http://a.example/?#x") == urls.parse("http://a.example/")
    assert urls.parse("http://a.example/??").path == "/??"


@pytest.mark.parametrize(
    ("site", "norm"),
    [
        ("http://www.example.org", "example.org"),
        ("https://example.org", "example.org"),
        ("http://www.example.org:8080", "example.org:8080"),
        ("http://example.org:443", "example.org:443"),
        ("http://www.com", "www.com"),
        ("http://www.com:8080", "www.com:8080"),
        ("http://www.www.example.org", "www.example.org"),
        ("http://wwwx.example.org", "wwwx.example.org"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_normalised_site_loses_scheme_and_one_www_only(site: str, norm: str) -> None:
    assert urls.norm_of(site) == norm
    assert urls.parse(site).norm == norm


# --- footprints -------------------------------------------------------------------------------------------------


def test_footprint_is_keyed_blake2b_read_little_endian(footprints: urls.Footprints) -> None:
    expected = hashlib.blake2b(b"example.org", digest_size=8, key=KEY).digest()
    assert footprints.half("example.org") == int.from_bytes(expected, "little")
    assert footprints.half("example.org") != urls.Footprints(KEY[::-1]).half("example.org")


def test_footprints_come_in_the_order_of_the_index(footprints: urls.Footprints) -> None:
    url = urls.parse("http://www.example.org/page?q")
    expected = tuple(footprints.half(text) for text in ("example.org", "/page?q", "http://www.example.org"))
    assert footprints.of(url) == expected


@pytest.mark.parametrize("key", [b"", bytes(15), bytes(32)])
def test_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        urls.Footprints(key)


# --- batches ----------------------------------------------------------------------------------------------------


def test_batch_keeps_first_appearance_and_drops_what_join_refuses(footprints: urls.Footprints) -> None:
    raw = ["/b", "a", "/b#x", "mailto:x@y", "http://[", "//www.other.example/", "/dir/a", "http://u@v/", "/b?", "\ud800", ""]
    links = urls.batch("http://x.example/dir/page#top", raw, footprints)
    assert links.hrefs == [
        "http://x.example/b",
        "http://x.example/dir/a",
        "http://www.other.example/",
        "http://x.example/dir/%EF%BF%BD",
        "http://x.example/dir/page",
    ]
    assert links.sites[2] == "http://www.other.example"
    assert [site + path for site, path in zip(links.sites, links.paths, strict=True)] == links.hrefs
    assert links.norm[2] == footprints.half("other.example")


def test_batch_of_nothing_is_empty_arrays(footprints: urls.Footprints) -> None:
    links = urls.batch("http://x.example/", [], footprints)
    assert len(links) == 0
    assert links.norm.dtype == links.path.dtype == links.site.dtype == np.uint64
    assert links.norm.shape == links.path.shape == links.site.shape == (0,)


def test_batch_footprints_what_the_transform_made(footprints: urls.Footprints) -> None:
    def without_query(href: str) -> str | None:
        return None if "secret" in href else href.partition("?")[0]

    links = urls.batch("http://x.example/", ["/a?1", "/a?2", "/secret", "/b"], footprints, without_query)
    assert links.hrefs == ["http://x.example/a", "http://x.example/b"]
    assert links.path.tolist() == [footprints.half("/a"), footprints.half("/b")]


def test_link_one_letter_longer_than_a_known_site_is_another_site(footprints: urls.Footprints) -> None:
    urls.batch("https://known.example/", ["/"], footprints)
    links = urls.batch("https://other.example/", ["https://known.exampleX"], footprints)
    assert links.hrefs == ["https://known.examplex/"]


def test_full_site_cache_forgets_and_stays_right(footprints: urls.Footprints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "SITE_CACHE", 3)
    raw = [f"http://s{n % 7}.example/{n}" for n in range(50)]
    links = urls.batch("http://x.example/", raw, footprints)
    assert links.hrefs == raw
    assert links.site.tolist() == [footprints.half(f"http://s{n % 7}.example") for n in range(50)]
    assert len(footprints._sites) <= 3


# --- queue keys -------------------------------------------------------------------------------------------------


def test_queue_keys_are_those_of_the_format() -> None:
    assert tables.show_qkey(urls.qkey_of_address("192.0.2.7")) == "192.0.2.7"
    assert urls.qkey_of_address("192.0.2.7") >> 56 == tables.QKEY_IPV4
    six = urls.qkey_of_address("2001:db8::7")
    assert six >> 56 == tables.QKEY_IPV6
    packed = bytes.fromhex("20010db8000000000000000000000007")
    check64 = int.from_bytes(mmh3.hash_bytes(packed, 0x5348)[:8], "little")
    assert six & (1 << 56) - 1 == check64 & (1 << 56) - 1
    assert six == urls.qkey_of_address("2001:0db8:0::0007")
