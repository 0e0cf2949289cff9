"""What archives do with WARC files: an index made by cdxj-indexer, and pages replayed by pywb. Both run in .venv-readers."""

from __future__ import annotations

import random
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.formats.cdxj import url_key
from shepherd.urls import parse
from tests.support.export_pages import LONG, READERS, WARES, bodies, export, reader
from tests.support.page_states import Herd, make_herd
from tests.support.waiting import PATIENCE_S, is_answering, wait_until

KEYS = {
    "https://www.Example.org/": "org,example)/",
    "http://example.org:8080/A/./b//c/?Z=1&a=2": "org,example:8080)/a/b/c?a=2&z=1",
    "https://192.0.2.7/x?": "7,2,0,192)/x",
    "http://[2001:db8::1]/": "2001:db8::1)/",
    "http://a.example/p?sid=0123456789abcdef0123456789abcdef&q=1": "example,a)/p?q=1",
    "http://www2.a.example/%41%2e/": "example,a)/a.",
}


@pytest.mark.parametrize("url", KEYS)
def test_key_of_a_url_is_that_of_wayback_machines(url: str) -> None:
    assert url_key(parse(url).href.encode()).decode() == KEYS[url]


def test_keys_are_those_of_surt(tmp_path: Path) -> None:
    """The library that pywb and cdxj-indexer make their keys by, on URLs of odd pieces."""
    dice = random.Random(5)
    hosts = (
        "a.example",
        "www.a.example",
        "www12.b.example",
        "127.0.0.1",
        "[::1]",
        "[::1]:81",
        "x.example.",
        "xn--bcher-kva.example:443",
    )
    parts = (
        "/a",
        "/B",
        "//",
        "/..",
        "/%2e%2e",
        "/%41",
        "/%25%34%31",
        "/(S(abcdefghijklmnopqrstuvwx))/",
        "/p.aspx",
        "/%2F",
        "/%00",
        "/~|",
    )
    queries = (
        "",
        "?",
        "?b=1&a=2",
        "?A=B&a",
        "?x=1&PHPSESSID=0123456789abcdef0123456789abcdef&y",
        "?cfid=1&cftoken=2",
        "?%3d%25&&",
        "?a==b",
    )
    made = {
        f"http://{dice.choice(hosts)}/{''.join(dice.choices(parts, k=dice.randrange(4)))}{dice.choice(queries)}"
        for _ in range(3_000)
    }
    urls = sorted(parse(url).href for url in made)
    (tmp_path / "urls").write_text("\n".join(urls))
    script = "import sys, surt\nfor url in open(sys.argv[1]).read().split('\\n'): print(surt.surt(url))"
    theirs = reader("python", "-c", script, tmp_path / "urls").splitlines()
    assert [url_key(url.encode()).decode() for url in urls] == theirs


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of pywb: WARC files and the index that we made."""
    home = tmp_path_factory.mktemp("archive")
    herd: Herd = make_herd(home / "herd", WARES, (), ())
    for place in ("archive", "indexes"):
        (home / "collections" / "sheep" / place).mkdir(parents=True)
    out = home / "collections" / "sheep" / "archive"
    export(herd, out, "--format", "warc", "--cdxj", "--split-bytes", "3000")
    (out / "shepherd-000002.cdxj").rename(home / "collections" / "sheep" / "indexes" / "index.cdxj")
    return home


def test_index_is_that_of_cdxj_indexer(archive: Path) -> None:
    collection = archive / "collections" / "sheep"
    theirs = reader("cdxj-indexer", "--sort", *sorted((collection / "archive").glob("*.warc.gz")))
    assert (collection / "indexes" / "index.cdxj").read_text() == theirs


@pytest.fixture(scope="module")
def wayback(archive: Path) -> Iterator[str]:
    reader("python", "-c", "import pywb")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [str(READERS / "wayback"), "--bind", "127.0.0.1", "--port", str(port)]
    with (archive / "log").open("wb") as log, subprocess.Popen(command, cwd=archive, stdout=log, stderr=log) as server:
        try:
            wait_until(lambda: is_answering(("127.0.0.1", port)) or server.poll() is not None)
            assert server.poll() is None, (archive / "log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def test_pywb_replays_the_page_that_was_gathered(wayback: str) -> None:
    for url, body in bodies().items():
        if url.endswith("/moved") or body in (LONG, b""):
            continue
        with urllib.request.urlopen(f"{wayback}/sheep/20260921141320id_/{url}", timeout=PATIENCE_S) as answer:
            assert answer.read() == body, url
            assert answer.headers["Memento-Datetime"] == "Mon, 21 Sep 2026 14:13:20 GMT"


def test_pywb_replays_a_redirect(wayback: str) -> None:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_arguments: object) -> None:
            return None

    with pytest.raises(urllib.error.HTTPError) as seen:
        urllib.request.build_opener(Stay).open(f"{wayback}/sheep/20260921141320id_/https://a.example/moved", timeout=PATIENCE_S)
    seen.value.close()
    assert seen.value.code == 301 and "www.b.example:8443" in seen.value.headers["Location"]
