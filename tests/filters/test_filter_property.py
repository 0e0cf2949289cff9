"""The filter against a naive judge that reads the same text line by line: no dicts, no sets of expressions, no caches."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cycle.common.site_table import settings_of
from shepherd.filters import parse_filter
from shepherd.urls import parse, qkey_of_address

# --- the naive judge --------------------------------------------------------------------------------------------


def wild(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern)


def by_address(pattern: str, href: str, address: str) -> bool:
    """`address` is that of the server, or nothing. An IPv6 range is not known by server, a single address is."""
    network = ipaddress.ip_network(pattern)
    host = (urlsplit(href).hostname or "").removesuffix(".")
    try:
        if ipaddress.ip_address(host) in network:
            return True
    except ValueError:
        pass
    if not address:
        return False
    return ipaddress.ip_address(address) in network and (network.version == 4 or network.num_addresses == 1)


def by_host(pattern: str, href: str, _address: str) -> bool:
    host = (urlsplit(href).hostname or "").removesuffix(".")
    return f".{host}".endswith("." + pattern.strip("[]"))


def components(href: str) -> list[str]:
    return [part for part in urlsplit(href).path.split("/") if part]


NAIVE: dict[str, Callable[[str, str, str], bool]] = {
    "host": by_host,
    "glob": lambda pattern, href, _: re.fullmatch(wild(pattern), href) is not None,
    "prefix": lambda pattern, href, _: href.startswith(pattern),
    "ext": lambda pattern, href, _: urlsplit(href).path.split("/")[-1].lower().endswith(f".{pattern.lower()}"),
    "regex": lambda pattern, href, _: re.search(pattern, href) is not None,
    "address": by_address,
    "repeats": lambda n, href, _: any(components(href).count(part) >= int(n) for part in components(href)),
    "depth": lambda n, href, _: len(components(href)) > int(n),
    "length": lambda n, href, _: len(href.encode()) > int(n),
}


def matching(text: str, begins: tuple[str, ...], href: str, address: str) -> Iterator[tuple[int, list[str]]]:
    """Number and words of the lines that begin so and match."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if tuple(words[: len(begins)]) != begins and not (begins == ("accept",) and words[:1] == ["reject"]):
            continue
        at = next(n for n, word in enumerate(words) if n and word in NAIVE and not (words[0] == "group" and n == 1))
        if any(NAIVE[words[at]](pattern, href, address) for pattern in words[at + 1 :]):
            yield number, words


def first(text: str, begins: tuple[str, ...], href: str, address: str = "") -> tuple[int, list[str]]:
    return next(matching(text, begins, href, address), (0, []))


# --- filters and URLs from few pieces, so that they meet --------------------------------------------------------

HOSTS = [
    "example",
    "a.example",
    "b.a.example",
    "ba.example",
    "a.example.",
    "10.0.0.1",
    "10.0.1.7",
    "[2001:db8::1]",
    "[2001:db8::2]",
]
PARTS = ["a", "b", "A", "a.pdf", "b.PDF", "a.b", ".pdf", "pdf", ""]
ADDRESSES = ["10.0.0.1", "10.0.1.7", "10.1.0.0", "11.0.0.0", "9.255.255.255", "2001:db8::1", "2001:db8::2"]
PATTERNS = {
    "host": ["example", "a.example", "b.a.example", "10.0.0.1", "[2001:db8::1]"],
    "glob": ["*", "*.pdf", "http://*a.example/*", "*://*/a/*", "http?://*", "*/?", "https://*:81*"],
    "prefix": ["http://a.example/a", "https:", "http://10.0.", "http://b.a.example/"],
    "ext": ["pdf", "b", "PDF", "b.pdf", "a.b"],
    "regex": ["a/b", "[?]x", "/$", "^https://[a-b]+[.]", "(a|b)[.]pdf"],
    "address": ["10.0.0.0/8", "10.0.0.0/24", "10.0.0.1", "0.0.0.0/0", "2001:db8::/32", "2001:db8::1", "10.1.0.0/16"],
    "repeats": ["2", "3"],
    "depth": ["0", "2", "4"],
    "length": ["18", "25", "40"],
}
VALUES = {
    "set slots": ["1", "9"],
    "set min_delay": ["0.5", "60"],
    "set select_bonus": ["-3", "3"],
    "set section": ["pdf", "77"],
    "set robots": ["ignore", "obey"],
    "group": ["g", "h"],
}
COLUMN = {"set slots": "slots", "set min_delay": "delay_ms", "set select_bonus": "select_bonus", "set section": "section",
          "set robots": "policy", "group": "group"}  # fmt: skip


@st.composite
def patterns(draw: st.DrawFn, kinds: list[str]) -> str:
    kind = draw(st.sampled_from(kinds))
    most = 1 if kind in ("repeats", "depth", "length") else 3
    return f"{kind} {' '.join(draw(st.lists(st.sampled_from(PATTERNS[kind]), min_size=1, max_size=most)))}"


verdicts = st.builds("{} {}".format, st.sampled_from(["accept", "reject"]), patterns(list(PATTERNS)))
urls_sections = patterns(["host", "glob", "prefix", "ext", "regex"])
sections = st.builds("section {} {}".format, st.sampled_from(["pdf", "html", "77"]), urls_sections)
setters = st.sampled_from(list(VALUES)).flatmap(
    lambda name: st.builds(f"{name} {{}} {{}}".format, st.sampled_from(VALUES[name]), patterns(["host", "glob", "address"]))
)
texts = st.lists(st.one_of(verdicts, verdicts, sections, setters), max_size=12).map("\n".join)
hrefs = st.builds(
    "{}://{}{}/{}{}".format,
    st.sampled_from(["http", "https"]),
    st.sampled_from(HOSTS),
    st.sampled_from(["", ":81"]),
    st.lists(st.sampled_from(PARTS), max_size=7).map("/".join),
    st.sampled_from(["", "", "?x", "?a/a/a/a.pdf"]),
).map(lambda text: parse(text).href)


@given(texts, st.lists(st.tuples(hrefs, st.sampled_from(["", *ADDRESSES])), min_size=1, max_size=4))
def test_verdict_is_that_of_the_first_line_that_matches(text: str, pages: list[tuple[str, str]]) -> None:
    rules = parse_filter(text)
    for href, address in pages:
        number, words = first(text, ("accept",), href, address)
        verdict = rules.judge(href, qkey_of_address(address) if address else 0)
        assert (verdict.line, verdict.accepted) == (number, words[:1] != ["reject"])
        kind, _, pattern = rules.why(href, qkey_of_address(address) if address else 0).partition(" ")
        assert (kind in words) if number else not kind
        assert not number or NAIVE[kind](pattern, href, address)
        assert rules.clean(href) == (href if first(text, ("accept",), href)[1][:1] != ["reject"] else None)


@given(texts, st.lists(hrefs, min_size=1, max_size=8))
def test_section_is_that_of_the_first_line_that_matches(text: str, pages: list[str]) -> None:
    rules = parse_filter(text)
    for href in pages:
        site = parse(href).site
        number = first(text, ("section",), href)[0] or first(text, ("set", "section"), site)[0]
        assert rules.section_of(href).line == number


@given(texts, st.lists(st.tuples(hrefs, st.sampled_from(ADDRESSES)), max_size=8))
def test_settings_are_those_of_the_first_lines_that_match(text: str, pages: list[tuple[str, str]]) -> None:
    rules = parse_filter(text)
    sites = [(parse(href).site, address) for href, address in pages]
    qkeys = np.array([qkey_of_address(address) for _, address in sites], np.uint64)
    columns = settings_of([site.encode() for site, _ in sites], rules, qkeys)
    unlooked = settings_of([site.encode() for site, _ in sites], rules)
    for at, (site, address) in enumerate(sites):
        lines = {f"set {line.name}" if line.name != "group" else "group": line for line in rules.set_lines(site, int(qkeys[at]))}
        for name in VALUES:
            number, words = first(text, tuple(name.split()), site, address)
            assert (lines[name].line if name in lines else 0) == number
            assert not number or lines[name].value_text == words[len(name.split())]
            column = COLUMN[name]
            assert int(columns[column][at]) == getattr(rules.site_settings(site, int(qkeys[at])), column)
            assert int(unlooked[column][at]) == getattr(rules.site_settings(site), column)
            assert not number or int(columns[column][at]) == lines[name].value


@given(texts, st.lists(st.sampled_from(ADDRESSES), max_size=8))
def test_servers_are_rejected_by_the_first_range_that_contains_them(text: str, addresses: list[str]) -> None:
    only = "\n".join(line for line in text.split("\n") if line.split()[1:2] == ["address"])
    rules = parse_filter(only)
    for address in addresses:
        accepted = first(only, ("accept",), "http://nowhere.org/", address)[1][:1] != ["reject"]
        assert rules.judge("http://nowhere.org/", qkey_of_address(address)).accepted == accepted
