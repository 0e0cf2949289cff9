"""The toy web as a model: it is the measure of whole gathers, so it must be right about itself."""

from __future__ import annotations

import gzip
import html
import re
from collections import deque
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import pytest

from shepherd.errors import UsageError
from shepherd.toyweb.answer import Answer, Desk, Request
from shepherd.toyweb.draw import Draw
from shepherd.toyweb.log import Entry, audit, header_line, line, read_log
from shepherd.toyweb.model import Model, canonical
from shepherd.toyweb.plan import MAX_DEPTH, Kind
from shepherd.toyweb.zoo import RESIDENTS, hangs_up, without_validators

MODEL = Model()


def get(desk: Desk, url: str, **headers: str) -> Answer:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return desk.answer(Request("GET", target, {"host": parts.netloc, **given}))


def header(answer: Answer, name: str) -> str:
    return dict(answer.headers).get(name, "")


def url_of(kind: Kind) -> str:
    return next(page.url for page in MODEL.pages() if page.kind is kind)


def followed(answer: Answer) -> list[str]:
    """The links that a reader of the HTML alone would follow."""
    kind, _, charset = header(answer, "Content-Type").partition("; charset=")
    if kind != "text/html":
        return []
    text = answer.body.decode(charset)
    if '<meta name="robots" content="nofollow">' in text:
        return []
    return [html.unescape(href) for href in re.findall(r'<a href="([^"]*)">', text)]


def gather(model: Model, agent: str, version: int = 0) -> tuple[dict[str, int], dict[str, int]]:
    """Walk the answers as a polite gatherer would, breadth first: (stored URL -> depth, calendar URL -> depth).

    Shares nothing with the model's own expectation: links come from the HTML, rules from the served robots.txt.
    The calendar is cut off below its second level.
    """
    desk = Desk(model, version)
    rules: dict[str, RobotFileParser | None] = {}

    def allowed(host: str, url: str) -> bool:
        if host not in rules:
            where = f"http://{host}/robots.txt"
            while (answer := get(desk, where)).status in (301, 302):
                where = urljoin(where, header(answer, "Location"))
            # The standard library takes the first rule that matches, so an Allow must come before what it pierces.
            lines = re.sub(r"(Disallow: .*\n)(Allow: .*\n)", r"\2\1", answer.body.decode()).splitlines()
            parser = RobotFileParser()
            parser.parse(lines if answer.status == 200 else [])
            rules[host] = None if answer.status >= 500 else parser
        decided = rules[host]
        return decided is not None and decided.can_fetch(agent, url)

    stored: dict[str, int] = {}
    trapped: dict[str, int] = {}
    seen = set(model.seeds())
    queue = deque((url, 0) for url in model.seeds())
    while queue:
        url, depth = queue.popleft()
        if not allowed(urlsplit(url).netloc, url):
            continue
        answer = get(desk, url)
        if answer.status in (429, 503):
            assert header(answer, "Retry-After")
            answer = get(desk, url)
        found: list[str] = []
        if answer.status in (301, 302):
            found = [urljoin(url, header(answer, "Location"))]
            if canonical(found[0]) == canonical(url):  # a move to its own equivalent costs no depth
                queue.appendleft((found[0], depth))
                continue
        elif answer.status == 200:
            (trapped if model.is_trap(url) else stored)[canonical(url)] = depth
            found = [urljoin(url, href) for href in followed(answer)]
        for link in found:
            link = re.sub(r"[?&]utm_source=[a-z-]*$", "", link)
            if canonical(link) not in seen and not (model.is_trap(link) and depth > MAX_DEPTH + 1):
                seen.add(canonical(link))
                queue.append((link, depth + 1))
    return stored, trapped


@pytest.mark.parametrize(("agent", "version"), [("shepherd", 0), ("shepherd", 1), ("nosy", 0)])
def test_a_walk_over_the_bytes_finds_exactly_what_the_model_expects(agent: str, version: int) -> None:
    stored, trapped = gather(MODEL, agent, version)
    assert set(stored) == MODEL.expected(agent, version)
    assert max(stored.values()) == MAX_DEPTH
    planned = {page.url: page.depth for page in MODEL.pages(agent)}
    assert all(depth <= planned[url] for url, depth in stored.items())
    assert len(trapped) > 30 and min(trapped.values()) == MAX_DEPTH + 1


@pytest.mark.parametrize(("seed", "sites"), [(2, 50), (3, 120)])
def test_no_seed_or_size_makes_a_page_unreachable(seed: int, sites: int) -> None:
    model = Model(seed, sites)
    stored, _ = gather(model, "shepherd")
    assert set(stored) == model.expected() and max(stored.values()) == MAX_DEPTH


def test_agents_are_told_apart() -> None:
    named, other, banned = (MODEL.expected(agent) for agent in ("shepherd", "somebody", "nosy"))
    assert banned < other < named


def test_two_models_of_one_seed_serve_the_same_bytes() -> None:
    desks = [Desk(Model(seed=5, sites=50)) for _ in range(2)]
    for page in desks[0].model.pages():
        first, second = (get(desk, page.url, accept_encoding="gzip") for desk in desks)
        assert first == second
    assert {page.url for page in Model(seed=6, sites=50).pages()} != {page.url for page in desks[0].model.pages()}


def test_draws_do_not_depend_on_the_machine() -> None:
    draw = Draw("a", 1)
    assert [draw.below(1000) for _ in range(3)] == [520, 459, 108]
    assert [draw.zipf(range(50)) for _ in range(5)] == [9, 7, 12, 14, 2]


def test_every_kind_exists_in_the_smallest_web() -> None:
    kinds = {page.kind for page in Model(seed=9, sites=50).pages()}
    assert kinds == set(Kind) - {Kind.CALENDAR}


def test_page_sizes_and_numbers_are_ordinary() -> None:
    desk = Desk(MODEL)
    answers = [get(desk, page.url) for page in MODEL.pages() if page.kind is Kind.PAGE]
    sizes = [len(answer.body) for answer in answers if answer.status == 200]
    assert min(sizes) > 700 and max(sizes) < 12_000
    assert all(10 <= len(site.pages) <= 40 for site in MODEL.sites)
    assert len(MODEL.addresses) == 40


def test_mirrors_serve_equal_bytes_or_redirect_to_each_other() -> None:
    desk = Desk(MODEL)
    same = get(desk, "http://site12.toy.example/")
    assert same.status == 200 and same == get(desk, "http://www.site12.toy.example/")
    assert header(get(desk, "http://site2.toy.example/x?y=1"), "Location") == "http://www.site2.toy.example/x?y=1"
    assert get(desk, "http://www.site2.toy.example/").status == 200
    assert header(get(desk, "http://www.site3.toy.example/"), "Location") == "http://site3.toy.example/"
    assert get(desk, "http://www.site3.toy.example/robots.txt").status in (200, 404)


def test_a_validator_is_honoured_until_the_page_changes() -> None:
    desk = Desk(MODEL)
    url = url_of(Kind.CHANGING)
    first = get(desk, url)
    tag, modified = header(first, "ETag"), header(first, "Last-Modified")
    assert get(desk, url, if_none_match=tag).status == 304
    assert get(desk, url, if_modified_since=modified).status == 304
    assert get(desk, url, if_none_match='"other"', if_modified_since=modified).status == 200
    assert get(desk, url, if_modified_since="last Tuesday").status == 200
    desk.advance()
    for headers in ({"if_none_match": tag}, {"if_modified_since": modified}):
        changed = get(desk, url, **headers)
        assert changed.status == 200 and changed.body != first.body


def test_a_version_changes_only_what_should_change() -> None:
    old, new = Desk(MODEL, 0), Desk(MODEL, 1)
    assert {page.kind for page in MODEL.pages() if get(old, page.url) != get(new, page.url)} == {
        Kind.CHANGING,
        Kind.MOVING,
        Kind.ARRIVED,
    }


def test_a_site_without_validators_repeats_its_bytes() -> None:
    url = f"http://site{RESIDENTS.index(without_validators)}.toy.example/"
    answer = get(Desk(MODEL), url)
    assert not header(answer, "ETag") and not header(answer, "Last-Modified")
    assert get(Desk(MODEL), url, if_modified_since="Fri, 01 Jan 2100 00:00:00 GMT") == answer


def test_gzip_only_for_those_who_accept_it() -> None:
    desk = Desk(MODEL)
    plain, packed = get(desk, MODEL.seeds()[0]), get(desk, MODEL.seeds()[0], accept_encoding="br, gzip")
    assert header(packed, "Content-Encoding") == "gzip" and gzip.decompress(packed.body) == plain.body
    assert not header(plain, "Content-Encoding")


def test_patience_is_asked_for_once() -> None:
    desk = Desk(MODEL)
    assert [get(desk, url_of(Kind.LIMITED)).status for _ in range(3)] == [429, 200, 200]
    assert [get(desk, url_of(Kind.BUSY)).status for _ in range(3)] == [503, 200, 200]


def test_a_site_that_hangs_up_never_keeps_a_connection() -> None:
    host = f"site{RESIDENTS.index(hangs_up)}.toy.example"
    assert get(Desk(MODEL), f"http://{host}/robots.txt").close and get(Desk(MODEL), f"http://{host}/").close


def test_calendar_never_ends() -> None:
    desk = Desk(MODEL)
    url = f"http://{MODEL.trap_host()}/calendar/2024/01"
    for _ in range(100):
        assert MODEL.is_trap(url)
        url = urljoin(url, re.findall(r'href="([^"]*/calendar/\d+/\d+)"', get(desk, url).body.decode())[0])
    assert "/calendar/2032/" in url
    assert get(desk, f"http://{MODEL.trap_host()}/calendar/2024/13").status == 404


@pytest.mark.parametrize(
    ("sites", "base"), [(49, "127.1.0.0"), (201, "127.1.0.0"), (80, "10.0.0.0"), (80, "nowhere"), (80, "127.255.255.250")]
)
def test_an_impossible_web_is_refused(sites: int, base: str) -> None:
    with pytest.raises(UsageError):
        Model(sites=sites, base=base)


ENTRY = Entry(100.0, 100.5, "127.1.0.1", 80, "a.toy.example", "/", 200, 10, "shepherd/1", False)


def entries(*times: tuple[float, float], **fields: str) -> list[Entry]:
    return [replace(ENTRY, start_s=start, end_s=end, **fields) for start, end in times]  # type: ignore[arg-type]


def test_a_line_survives_whatever_a_client_sends(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(header_line() + line(ENTRY) + line(replace(ENTRY, agent="evil\tagent\n", path="/\u2028", conditional=True)))
    first, second = read_log(path)
    assert first == ENTRY
    assert second == replace(ENTRY, agent="evil?agent?", path="/?", conditional=True)


@pytest.mark.parametrize("text", [b"", b"nonsense\n", header_line() + b"1.0\t2.0\n"])
def test_a_file_that_is_no_access_log_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(text)
    with pytest.raises(UsageError):
        read_log(path)


def test_audit_accepts_exactly_the_delay() -> None:
    assert audit(entries((1_790_000_000.1, 1_790_000_000.3), (1_790_000_000.5, 1_790_000_000.6)), {"127.1.0.1": 0.2}) == []


def test_audit_catches_a_gap_that_is_too_short() -> None:
    found = audit(entries((1.0, 1.1), (1.25, 1.3)), {"127.1.0.1": 0.2})
    assert [violation.whom for violation in found] == ["127.1.0.1", "a.toy.example"]
    assert "0.150000 s after the end" in str(found[0])
    assert audit(entries((1.0, 1.1), (1.25, 1.3)), {"127.1.0.1": 0.2}, tolerance_s=0.06) == []


def test_audit_catches_overlap_where_no_delay_is_due() -> None:
    assert audit(entries((1.0, 2.0), (1.5, 1.6)), lambda _name: 0.0)


def test_audit_catches_two_hosts_of_one_address() -> None:
    found = audit(entries((1.0, 1.1)) + entries((1.2, 1.3), host="b.toy.example"), {"127.1.0.1": 0.5})
    assert [violation.whom for violation in found] == ["127.1.0.1"]


def test_audit_knows_a_longer_delay_of_one_host() -> None:
    found = audit(entries((1.0, 1.1), (1.2, 1.3)), {"127.1.0.1": 0.1, "a.toy.example": 0.3})
    assert [violation.whom for violation in found] == ["a.toy.example"]


def test_audit_gives_each_slot_its_own_delay() -> None:
    two_hosts = [*entries((1.0, 1.2), (3.2, 3.3)), *entries((1.1, 1.5), (3.5, 3.6), host="b.toy.example")]
    assert audit(two_hosts, {"127.1.0.1": 2.0}, slots=2) == []
    assert audit([*two_hosts, *entries((3.55, 3.6), host="c.toy.example")], {"127.1.0.1": 2.0}, slots=2)


def test_delays_of_a_model_are_known_for_every_address_and_host() -> None:
    delays = MODEL.delays_s(0.05)
    assert delays["site7.toy.example"] == delays["www.site7.toy.example"] == 0.1
    assert delays["127.1.0.40"] == delays["site0.toy.example"] == 0.05
