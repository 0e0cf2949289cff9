"""The toy web as a model: it is the measure of whole gathers, so it must be right about itself."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections import deque
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import pytest

from shepherd.errors import UsageError
from shepherd.robots import Rules, rules_for
from tests.support.toywalk import followed, get, header, text_of
from toyweb.answer import Desk
from toyweb.builder import Resident
from toyweb.charsets import CHARSETS
from toyweb.draw import Draw
from toyweb.http import ToyRequest
from toyweb.model import Model, canonical
from toyweb.plan import FOLLOWED, MAX_DEPTH, REDIRECTS, PageKind, Via
from toyweb.residents import (
    COPY,
    ORIGINAL,
    RESIDENTS,
    etag_only,
    fickle_etag,
    hangs_up,
    modified_only,
    redirects_to_http,
    redirects_to_https,
    without_validators,
)

MODEL = Model()


def host_of(resident: Resident) -> str:
    return f"site{RESIDENTS.index(resident)}.toy.example"


def url_of(kind: PageKind) -> str:
    return next(page.url for page in MODEL.pages() if page.kind is kind)


LINKS_ONLY = frozenset((Via.LINK,))


def gather(model: Model, agent: str, version: int = 0, ways: frozenset[Via] = FOLLOWED) -> tuple[dict[str, int], dict[str, int]]:
    """Walk the answers as a polite gatherer would, breadth first: (stored URL -> depth, calendar URL -> depth).

    Shares nothing with the model's own expectation: links come from the bytes, rules from the served robots.txt by the reaper's
    own judge. The calendar is cut off below its second level.
    """
    desk = Desk(model, version)
    rules: dict[str, Rules | None] = {}
    stored: dict[str, int] = {}
    trapped: dict[str, int] = {}
    seen = set(model.seeds())
    queue = deque((url, 0) for url in model.seeds())

    def find(links: list[str], depth: int) -> None:
        for link in links:
            link = re.sub(r"[?&]utm_source=[a-z-]*$", "", link)
            if "/album/" in link and Via.REJECTED not in ways:
                continue
            if canonical(link) not in seen and not (model.is_trap(link) and depth > MAX_DEPTH + 1):
                seen.add(canonical(link))
                queue.append((link, depth + 1))

    def allowed(url: str, depth: int) -> bool:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        if site not in rules:
            where = f"{site}/robots.txt"
            while (answer := get(desk, where)).status in (301, 302):
                where = urljoin(where, header(answer, "Location"))
            rules[site] = decided = rules_for(answer.status, answer.body, agent)
            if decided is not None and Via.SITEMAP in ways:
                find(decided.sitemaps, depth)
        decided = rules[site]
        return decided is not None and decided.allows(url.removeprefix(site))

    while queue:
        url, depth = queue.popleft()
        if not allowed(url, depth):
            continue
        answer = get(desk, url)
        if answer.status in (429, 503):
            assert header(answer, "Retry-After")
            answer = get(desk, url)
        if answer.status in REDIRECTS.values():
            target = urljoin(url, header(answer, "Location"))
            if canonical(target) == canonical(url):  # a move to its own equivalent costs no depth
                queue.appendleft((target, depth))
                continue
            find([target], depth)
        elif answer.status == 200:
            (trapped if model.is_trap(url) else stored)[canonical(url)] = depth
            find(followed(url, answer, ways), depth)
    return stored, trapped


@pytest.mark.parametrize(("agent", "version"), [("shepherd", 0), ("shepherd", 1), ("nosy", 0)])
def test_walk_over_the_bytes_stores_exactly_what_the_model_expects(agent: str, version: int) -> None:
    stored, trapped = gather(MODEL, agent, version)
    assert set(stored) == MODEL.expected(agent, version)
    assert max(stored[url] for url in MODEL.expected(agent, version, LINKS_ONLY)) == MAX_DEPTH
    planned = {page.url: page.depth for page in MODEL.pages(agent)}
    assert all(depth <= planned[url] for url, depth in stored.items())
    assert len(trapped) > 30 and min(trapped.values()) == MAX_DEPTH + 1


def test_walk_that_reads_sitemaps_feeds_and_requisites_stores_those_pages_too() -> None:
    ways = frozenset(Via) - {Via.NOFOLLOW}
    stored, _ = gather(MODEL, "shepherd", ways=ways)
    assert set(stored) == MODEL.expected(ways=ways)
    for way in (Via.SITEMAP, Via.FEED, Via.REQUISITE, Via.REJECTED):
        assert MODEL.expected(ways=LINKS_ONLY | {way}) > MODEL.expected(ways=LINKS_ONLY)


def test_walk_that_follows_links_alone_stores_less() -> None:
    stored, _ = gather(MODEL, "shepherd", ways=LINKS_ONLY)
    assert set(stored) == MODEL.expected(ways=LINKS_ONLY) < MODEL.expected()


@pytest.mark.parametrize(("seed", "sites"), [(2, 50), (3, 120)])
def test_no_seed_or_size_makes_a_page_unreachable(seed: int, sites: int) -> None:
    model = Model(seed, sites)
    stored, _ = gather(model, "shepherd")
    assert set(stored) == model.expected()
    assert max(stored[url] for url in model.expected(ways=LINKS_ONLY)) == MAX_DEPTH


def test_agents_have_rules_of_their_own() -> None:
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
    assert kinds == set(PageKind) - {PageKind.CALENDAR}


def test_page_sizes_and_numbers_are_ordinary() -> None:
    desk = Desk(MODEL)
    answers = [get(desk, page.url) for page in MODEL.pages() if page.kind is PageKind.PAGE]
    sizes = [len(answer.body) for answer in answers if answer.status == 200]
    assert 9_000 < min(sizes) < 15_000 and 45_000 < max(sizes) < 66_000
    numbers = sorted(sum(page.via is Via.LINK for page in site.pages.values()) for site in MODEL.sites)
    assert numbers[0] >= 8 and numbers[40] < 20 and 40 <= numbers[-1] <= 58
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
    url = url_of(PageKind.CHANGING)
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
    changed = {page.kind for page in MODEL.pages() if get(old, page.url).body != get(new, page.url).body}
    # What names pages tells when they were changed.
    assert changed == {PageKind.CHANGING, PageKind.MOVING, PageKind.ARRIVED, PageKind.SITEMAP, PageKind.RSS, PageKind.ATOM}
    others = {page.host for page in MODEL.pages() if get(old, page.url) != get(new, page.url) and page.kind not in changed}
    assert others == {host_of(fickle_etag)}


def test_a_site_without_validators_repeats_its_bytes() -> None:
    url = f"http://{host_of(without_validators)}/"
    answer = get(Desk(MODEL), url)
    assert not header(answer, "ETag") and not header(answer, "Last-Modified")
    assert get(Desk(MODEL), url, if_modified_since="Fri, 01 Jan 2100 00:00:00 GMT") == answer


def test_a_site_may_have_one_validator_or_one_that_proves_nothing() -> None:
    for resident, sent in ((etag_only, {"ETag"}), (modified_only, {"Last-Modified"}), (fickle_etag, {"ETag"})):
        url = f"http://{host_of(resident)}/"
        answer = get(Desk(MODEL), url)
        assert {"ETag", "Last-Modified"} & dict(answer.headers).keys() == sent
        asked = {"if_none_match": header(answer, "ETag"), "if_modified_since": header(answer, "Last-Modified")}
        asked = {name: value for name, value in asked.items() if value}
        assert get(Desk(MODEL), url, **asked).status == 304
        later = get(Desk(MODEL, 1), url, **asked)
        assert (later.status, later.body) == ((200, answer.body) if resident is fickle_etag else (304, b""))


def test_https_serves_the_same_bytes_or_one_scheme_redirects_to_the_other() -> None:
    desk = Desk(MODEL)
    assert get(desk, "https://site12.toy.example/") == get(desk, "http://site12.toy.example/")
    for resident, wrong, right in ((redirects_to_https, "http", "https"), (redirects_to_http, "https", "http")):
        host = host_of(resident)
        for path in ("/", "/robots.txt", "/no-such-page"):
            assert header(get(desk, f"{wrong}://www.{host}{path}"), "Location") == f"{right}://www.{host}{path}"
        assert get(desk, f"{right}://{host}/").status == 200


def test_a_copy_has_the_bytes_of_its_original_under_its_own_name() -> None:
    desk = Desk(MODEL)
    copies = [page for page in MODEL.pages() if page.host == f"site{COPY}.toy.example"]
    assert len(copies) > 10
    for page in copies:
        assert get(desk, page.url) == get(desk, page.url.replace(f"site{COPY}.", f"site{ORIGINAL}."))


def test_every_charset_is_declared_as_it_is() -> None:
    desk = Desk(MODEL)
    seen = 0
    for page in (page for page in MODEL.pages() if page.kind is PageKind.CHARSET):
        variant = page.path.removeprefix("/charsets/").removesuffix(".html")
        charset = next(charset for name, charset in CHARSETS.items() if name.replace(" ", "-") == variant)
        answer = get(desk, page.url)
        assert charset.text in answer.body.removeprefix(charset.mark).decode(charset.name)
        if "nowhere" not in variant or charset.name == "utf-8":
            assert charset.text in text_of(answer)
        seen += 1
    assert seen == len(CHARSETS)


def test_pictures_and_papers_are_what_they_say() -> None:
    desk = Desk(MODEL)
    bodies = {page.path.rpartition(".")[2]: get(desk, page.url).body for page in MODEL.pages() if page.path.startswith("/album/")}
    png = bodies["png"]
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and png.endswith(b"IEND" + struct.pack(">I", zlib.crc32(b"IEND")))
    width, height = struct.unpack(">II", png[16:24])
    assert len(zlib.decompress(png[41:-16])) == height * (1 + 3 * width)
    assert bodies["gif"].startswith(b"GIF89a\x01\0\x01\0") and bodies["gif"].endswith(b"\x3b")
    assert bodies["jpeg"].startswith(b"\xff\xd8\xff\xe0") and bodies["jpeg"].endswith(b"\xff\xd9")
    assert ElementTree.fromstring(bodies["svg"]).tag == "{http://www.w3.org/2000/svg}svg"
    pdf = get(desk, url_of(PageKind.PDF)).body
    assert pdf[int(pdf.split()[-2]) :].startswith(b"xref")


def test_a_date_to_wait_for_is_one_to_two_seconds_away() -> None:
    page = next(page for page in MODEL.pages() if page.path == "/limited-until.html")
    answer = Desk(MODEL).answer(ToyRequest("GET", page.path, {"host": page.host}), 1_700_000_000.9)
    assert answer.status == 429 and header(answer, "Retry-After") == "Tue, 14 Nov 2023 22:13:22 GMT"


def test_web_of_very_many_sites_is_made_only_as_far_as_it_is_used() -> None:
    model = Model(sites=1_000_000, per_address=100, cdn=500_000, plain=True)
    assert len(model.addresses) == 5_001
    assert model.server_of("www.site999999.toy.example") == model.server_of("site500000.toy.example") == 5_000
    assert model.server_of("site1000000.toy.example") is None
    desk = Desk(model)
    assert get(desk, "http://site999999.toy.example/").status == 200
    directories = followed(model.seeds()[0], get(desk, model.seeds()[0]), FOLLOWED)
    assert len({url.partition("?")[0] for url in directories if "/directory/" in url}) == 1000


def test_a_plain_web_has_nothing_odd() -> None:
    model = Model(sites=30, plain=True)
    kinds = {page.kind for page in model.pages()}
    assert kinds <= {
        PageKind.PAGE,
        PageKind.CHANGING,
        PageKind.TEXT,
        PageKind.PDF,
        PageKind.IMAGE,
        PageKind.STYLE,
        PageKind.SCRIPT,
        PageKind.MISSING,
        *REDIRECTS,
    }
    stored, trapped = gather(model, "shepherd")
    assert set(stored) == model.expected() and not trapped


def test_large_sites_are_few() -> None:
    model = Model(sites=400, largest=4000, plain=True)
    sizes = sorted(len(site.pages) for site in model.sites)
    assert sizes[200] < 40 and sizes[380] > 100 and max(sizes) <= 4010


def test_prepared_answers_are_the_same() -> None:
    model = Model(sites=3, plain=True)
    ready, desk = Desk(model), Desk(model)
    assert ready.prepare() > 20
    for page in model.pages():
        asked = ToyRequest("GET", page.path, {"host": page.host, "accept-encoding": "gzip"})
        assert ready.answer(asked).message == desk.answer(asked).message


def test_gzip_only_for_those_who_accept_it() -> None:
    desk = Desk(MODEL)
    plain, packed = get(desk, MODEL.seeds()[0]), get(desk, MODEL.seeds()[0], accept_encoding="br, gzip")
    assert header(packed, "Content-Encoding") == "gzip" and gzip.decompress(packed.body) == plain.body
    assert not header(plain, "Content-Encoding")


def test_patience_is_asked_for_once() -> None:
    desk = Desk(MODEL)
    assert [get(desk, url_of(PageKind.LIMITED)).status for _ in range(3)] == [429, 200, 200]
    assert [get(desk, url_of(PageKind.BUSY)).status for _ in range(3)] == [503, 200, 200]


def test_a_site_that_hangs_up_never_keeps_a_connection() -> None:
    host = host_of(hangs_up)
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
    ("sites", "base"), [(49, "127.1.0.0"), (80, "10.0.0.0"), (80, "nowhere"), (80, "127.255.255.250"), (5_000_000, "127.255.0.0")]
)
def test_an_impossible_web_is_refused(sites: int, base: str) -> None:
    with pytest.raises(UsageError):
        Model(sites=sites, base=base)
