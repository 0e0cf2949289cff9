"""URLs on generated input: normalising twice changes nothing, and the fast batch equals the plain way, link by link."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.filters import parse_filter

KEY = bytes(range(16))
HOSTS = ["a.example", "www.a.example", "A.example", "a.example:80", "a.example:8080", "xn--mnchen-3ya.example", "münchen.example",
         "127.1", "[::1]", "a.exampl", "u@a.example", "", "a%2eexample", "ａ.example"]  # fmt: skip
SCHEMES = ["http://", "https://", "HTTP://", "//", "http:", "/", "\\\\", "", "ftp://", "mailto:", "?", "#", " "]
PIECES = ["/", "/.", "..", ".", "%2e", "%2E", "a", "B", "index.html", "?", "#", "&", "=", ":", "@", "\\", " ", "\t", "\n", "%",
          "%41", "é", "~", "^", "|", "'", '"', "<", "`", "{", ";", "\x7f", "\ud800", "\U0001f411", "utm_x=1", "//"]  # fmt: skip

paths = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
spelt = st.builds("{}{}{}".format, st.sampled_from(SCHEMES), st.one_of(st.sampled_from(HOSTS), st.text(max_size=6)), paths)
links = st.one_of(spelt, paths, st.text(max_size=20))
bases = st.builds("{}{}{}".format, st.sampled_from(["http://", "https://"]), st.sampled_from(HOSTS[:9]), paths)


def joined(base: str, raw: list[str]) -> list[urls.Url]:
    """The plain way: each link by itself."""
    found: dict[urls.Url, None] = {}
    for link in raw:
        try:
            found[urls.join(base, link)] = None
        except BadUrl:
            continue
    return list(found)


@given(links)
@example("http://a.example/?")
@example("http://a.example/??#")
def test_normalising_twice_changes_nothing(text: str) -> None:
    try:
        url = urls.parse(text)
    except BadUrl:
        return
    assert urls.parse(url.href, strict=True) == url
    assert url.href == url.site + url.path
    assert url.href.isascii()
    assert url.norm == urls.norm_of(url.site)


@given(st.lists(st.tuples(bases, st.lists(links, max_size=12)), max_size=3))
@example([("https://a.example/", ["https://a.exampleX", "https://a.exampleX/", "/..", "/a/..", "/.a", "//a", "/%2e%2e/b"])])
@example([("http://u@a.example/", ["/x", "http://a.example/x"]), ("http://a.example", ["x", "/x?", "/x#", "?", "#"])])
def test_batch_equals_join_and_footprint_of_each_link(pages: list[tuple[str, list[str]]]) -> None:
    footprints = urls.Footprints(KEY)  # shared by the pages, so that later ones meet known sites
    for base, raw in pages:
        plain = joined(base, raw)
        try:
            found = urls.batch(base, raw, footprints)
        except BadUrl:
            assert not plain
            continue
        assert found.hrefs == [url.href for url in plain]
        assert found.sites == [url.site for url in plain]
        assert found.paths == [url.path for url in plain]
        arrays = zip(found.norm.tolist(), found.path.tolist(), found.site.tolist(), strict=True)
        assert list(arrays) == [footprints.of(url) for url in plain]


@given(st.lists(st.sampled_from(PIECES), max_size=10))
def test_stripped_url_is_still_normalised(query: list[str]) -> None:
    noise = parse_filter("strip utm_* a B")
    href = urls.parse("http://a.example/?" + "".join(query)).href
    stripped = noise.strip(href)
    assert urls.parse(stripped).href == stripped
    assert noise.strip(stripped) == stripped
