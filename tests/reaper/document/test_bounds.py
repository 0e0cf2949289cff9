"""Memory that a body takes while it is read: bounded for every type, whatever the bytes are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.config import FetchLimits
from tests.support import sampling

ROOT = Path(__file__).resolve().parents[3]
SIZE = FetchLimits().decoded_bytes
MOST_MB = 192  # beyond the body
TREE = 4 << 20  # bytes of the largest page that gets a tree

# By name: the type, and bytes that are repeated up to the limit of a decoded body, behind a beginning.
BODIES: dict[str, tuple[str, bytes, bytes]] = {
    "zeros as a page": ("text/html", b"", b"\0"),
    "zeros for a tree": ("text/html", b"", b"\0"),
    "references for a tree": ("text/html", b"<p>", b"&#0;"),
    "text for a tree": ("text/html; charset=utf-8", b"<p>", b"x "),
    "control characters as a page": ("text/html", b"<p>", b"\x01"),
    "windows-1252 as a page": ("text/html; charset=windows-1252", b"<p>", b"\x80"),
    "broken UTF-8 as a page": ("text/html; charset=utf-8", b"<p>", b"\x80"),
    "a far character before a page": ("text/html", "<p>\U0001f600".encode(), b"x"),
    "Chinese as a page": ("text/html; charset=gb18030", b"<p>", b"\xb0\xa1"),
    "openers as a page": ("text/html", b"", b"<a "),
    "references as a page": ("text/html", b"<p>", b"&amp"),
    "an attribute as a page": ("text/html", b"<a href='", b"\xe2\x82\xac"),
    "zeros as text": ("text/plain", b"", b"\0"),
    "windows-1252 as text": ("text/plain; charset=windows-1252", b"", b"\x80"),
    "a far character before a text": ("text/plain", "\U0001f600".encode(), b"x"),
    "empty lines behind URLs": ("text/plain", b"http://a.example/\n" * 300, b"\n"),
    "carriage returns behind URLs": ("text/plain", b"http://a.example/\n" * 300, b"\r"),
    "a style sheet": ("text/css; charset=windows-1252", b"", b"url(\x80"),
    "zeros as XML": ("application/xml", b"<urlset>", b"\0"),
    "elements as XML": ("application/xml", b"<urlset>", b"<url><loc>x</loc></url>"),
    "empty lists as a feed": ("application/feed+json", b"[", b"[],"),
    "zeros of no type": ("", b"", b"\0"),
}

MEASURED = """
import sys
from pathlib import Path
import selectolax.lexbor
from shepherd.reaper.document.extract import extract
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.fetch.exchange import ExtractOptions
from tests.reaper.document.test_bounds import body_of, BODIES
def status(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
body = body_of(sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
before = status("VmRSS")
extract(body, HeaderFacts(BODIES[sys.argv[1]][0]), "http://a.example/", ExtractOptions(10_000, "", True))
print((status("VmHWM") - before) // 1024)
"""


def body_of(name: str) -> bytes:
    _, beginning, unit = BODIES[name]
    size = TREE if name.endswith("tree") else SIZE
    return (beginning + unit * (size // len(unit)))[:size]


def taken_mb(name: str) -> int:
    run = subprocess.run([sys.executable, "-c", MEASURED, name], capture_output=True, check=True, cwd=ROOT, text=True)
    return int(run.stdout)


@pytest.mark.parametrize("name", sampling.of_the_day(BODIES, 3, "bodies"))
def test_memory_of_a_body_is_bounded(name: str) -> None:
    assert taken_mb(name) < MOST_MB
