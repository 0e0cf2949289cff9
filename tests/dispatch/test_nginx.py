"""Real documentation, served by a real server: gathered whole, kept as sent, and asked for conditionally the next time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from shepherd.formats.bucket import Codec
from shepherd.store.state.database import Database
from shepherd.store.state.documents import StoredDocument
from tests.support import programs
from tests.support.nginx import Nginx, nginx
from tests.support.programs import call

FAQ = Path("/usr/share/doc/debian/FAQ")
PLAIN, SECURE = "http://faq.example/index.en.html", "https://safe.example/index.en.html"
CF = """
[identity]
contact = "test@example.org"
[politeness]
delay_s = 0.001
[plan]
refresh_s = {refresh_s}
[fetch]
verify_tls = {verify}
[network]
allow = ["127.0.0.0/8"]
static = "static"
"""


@dataclass(frozen=True)
class Gathered:
    home: Path
    server: Nginx

    def cycles(self, *, refresh_s: int = 2_592_000) -> None:
        """Until nothing is due."""
        (self.home / "cf" / "shepherd.toml").write_text(CF.format(refresh_s=refresh_s, verify="false"))
        for _ in range(8):
            if not programs.cycle(self.home / "db", self.home / "cf"):
                return

    def run(self, program: str, *arguments: str) -> int:
        done = call(program, *arguments, SHEPHERD_DB=str(self.home / "db"), SHEPHERD_CF=str(self.home / "cf"))
        assert done.returncode in (0, 4), done
        return done.returncode

    def documents(self) -> dict[str, StoredDocument]:
        return {one.url: one for one in Database(self.home / "db").closed().documents()}


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gathered]:
    if not FAQ.is_dir():
        pytest.skip("no HTML documentation to serve (on Debian: apt install debian-faq)")
    home = tmp_path_factory.mktemp("nginx")
    home.chmod(0o755)
    with nginx(home / "server", FAQ, ["safe.example"]) as server:
        (home / "cf").mkdir()
        (home / "cf" / "static").write_text(f"faq.example 127.0.0.1 {server.plain}\nsafe.example 127.0.0.1 {server.secure}\n")
        (home / "cf" / "filter").write_text("accept host faq.example safe.example\ndefault reject\n")
        one = Gathered(home, server)
        one.run("shep-init", "-q")
        one.run("shep", "insert", PLAIN, SECURE)
        one.cycles()
        yield one


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base, self.found = base, set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag in ("a", "area") and href:
            self.found.add(urljoin(self.base, href).partition("#")[0])


def reachable(start: str) -> set[str]:
    """The pages that links lead to from here, found by another parser and read from the disk."""
    host, found, left = urlsplit(start).netloc, set[str](), [start]
    while left:
        url = left.pop()
        path = FAQ / urlsplit(url).path.lstrip("/")
        if url in found or not path.is_file() or urlsplit(url).netloc != host:
            continue
        found.add(url)
        if path.suffix == ".html":
            links = _Links(url)
            links.feed(path.read_text(errors="replace"))
            left += links.found
    return found


@pytest.mark.parametrize("start", [PLAIN, SECURE])
def test_every_page_that_links_lead_to_is_kept_as_it_is_on_the_disk(gathered: Gathered, start: str) -> None:
    wanted = reachable(start)
    assert len(wanted) > 15
    documents = gathered.documents()
    assert wanted <= set(documents)
    for url in wanted:
        assert documents[url].body() == (FAQ / urlsplit(url).path.lstrip("/")).read_bytes(), url


def test_what_came_compressed_is_stored_as_it_came(gathered: Gathered) -> None:
    sent = {(one.host, one.path): one.encoding for one in gathered.server.requests() if one.status == 200}
    assert set(sent.values()) >= {"gzip"}
    for url, document in gathered.documents().items():
        host, path = urlsplit(url).netloc, urlsplit(url).path
        if sent.get((host, path)) == "gzip" and not path.endswith("robots.txt"):
            assert document.bucket.header.codec == Codec.GZIP_SENT, url


def test_tls_is_spoken_in_http2_and_plain_text_in_http1(gathered: Gathered) -> None:
    protocols = {(one.scheme, one.protocol) for one in gathered.server.requests()}
    assert protocols == {("http", "HTTP/1.1"), ("https", "HTTP/2.0")}


def test_robots_txt_is_fetched_first_on_each_site(gathered: Gathered) -> None:
    for host in ("faq.example", "safe.example"):
        assert next(one.path for one in gathered.server.requests() if one.host == host) == "/robots.txt"


def test_nothing_is_fetched_twice_in_a_gather(gathered: Gathered) -> None:
    asked = [(one.host, one.path) for one in gathered.server.requests() if one.status == 200]
    assert len(asked) == len(set(asked))


def test_a_refresh_is_conditional_and_keeps_every_body(gathered: Gathered) -> None:
    before, asked = gathered.documents(), len(gathered.server.requests())
    gathered.cycles(refresh_s=1)
    again = [one for one in gathered.server.requests()[asked:] if one.path.endswith(".html")]
    assert {(one.status, bool(one.if_none_match)) for one in again} == {(304, True)}
    after = gathered.documents()
    assert {url: one.columns["oid"] for url, one in after.items()} == {url: one.columns["oid"] for url, one in before.items()}


def test_untrusted_certificate_is_refused(gathered: Gathered, tmp_path: Path) -> None:
    home = tmp_path
    (home / "cf").mkdir()
    for name in ("static", "filter"):
        (home / "cf" / name).write_bytes((gathered.home / "cf" / name).read_bytes())
    (home / "cf" / "shepherd.toml").write_text(CF.format(refresh_s=100, verify="true"))
    one, asked = Gathered(home, gathered.server), len(gathered.server.requests())
    one.run("shep-init", "-q")
    one.run("shep", "insert", SECURE)
    assert programs.cycle(home / "db", home / "cf")
    assert one.documents() == {}
    assert len(gathered.server.requests()) == asked  # not even a request line was sent
