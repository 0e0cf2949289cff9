"""shep cat --text: a stored page as a person would read it, whatever its charset and however wild its markup."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.formats.tables import Reason, RowType
from tests.support.page_states import ROOT, Herd, Page, Run, make_herd, objects, stdout_of
from tests.support.waiting import PATIENCE_S

HTML = """<!DOCTYPE html><html><head><title>Wool &amp; hay</title><style>p { color: red }</style></head>
<body><h1>Prices</h1><p>A f<b>leec</b>e costs\n 3&nbsp;&euro;.<br>Ask \x1b[31mus.</p><!-- not <p>this</p> -->
<script>if (a < b) { alert("</p>") }</script><ul><li>one<li>two</ul><table><tr><td>x</td><td>y</td></tr></table></body></html>"""
READ = "Wool & hay\nPrices\nA fleece costs 3 €.\nAsk \x1b[31mus.\none\ntwo\nx y\n"
WILD = b"<p>begin<" + b"div " * 1_000 + b"<p>end" + b"<" * 10_000


def page(name: str, body: bytes, kind: str, charset: str = "") -> Page:
    attributes = {"T": kind.encode()} | ({"C": charset.encode()} if charset else {})
    return Page(f"http://a.example/{name}", RowType.GATHERED, Reason.GATHERED, body, attributes)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    pages = (
        page("html", HTML.encode(), "text/html", "utf-8"),
        page("turkish", HTML.replace("hay", "ğ").encode("cp1254", "xmlcharrefreplace"), "text/html", "windows-1254"),
        page("wild", WILD, "text/html", "utf-8"),
        page("numbers", b"<p>a &#" + b"9" * 5_000 + b"; b &#x" + b"f" * 5_000 + b" &#65;", "text/html", "utf-8"),
        page("code", b"<p>wool", "text/html", "punycode"),
        page("plain", b"a < b\n\tc\n", "text/plain", "utf-8"),
        page("xml", b"<a><b>said</b></a>", "application/xhtml+xml", "utf-8"),
        page("paper", b"%PDF-1.4", "application/pdf"),
    )
    return make_herd(tmp_path_factory.mktemp("shelf"), pages, (), ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("html", READ),
        ("turkish", READ.replace("hay", "ğ")),
        ("plain", "a < b\n\tc\n"),
        ("numbers", "a \ufffd b \ufffd A\n"),
        ("code", "wool\n"),
        ("xml", "said\n"),
    ],
)
def test_page_reads_as_a_person_would_see_it(shelf: Herd, shep: Run, name: str, text: str) -> None:
    assert shep(shelf, "cat", "--text", f"http://a.example/{name}").stdout.decode() == text
    (found,) = objects(shep(shelf, "cat", "--text", "--json", f"http://a.example/{name}"))
    assert found["text"] == text and "body_base64" not in found


def test_wild_markup_does_not_hide_the_text_before_it(shelf: Herd, shep: Run) -> None:
    assert shep(shelf, "cat", "--text", "http://a.example/wild").stdout.startswith(b"begin")


def test_text_cannot_steer_a_terminal(shelf: Herd) -> None:
    ours, theirs = pty.openpty()
    words = ["shep", "cat", "--text", "--db", str(shelf.db), "--cf", str(shelf.cf), "http://a.example/html"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    subprocess.run([sys.executable, "-m", "shepherd.cli", *words], stdout=theirs, env=environment, timeout=PATIENCE_S, check=True)
    shown = os.read(ours, 10_000)
    os.close(ours)
    os.close(theirs)
    assert b"Ask \\x1b[31mus.\r\n" in shown and b"\x1b" not in shown


def test_document_without_text_is_refused_with_advice(shelf: Herd, shep: Run) -> None:
    answer = shep(shelf, "cat", "--text", "http://a.example/paper")
    assert stdout_of(answer, 4) == ""
    assert "application/pdf" in answer.stderr.decode() and "--body" in answer.stderr.decode()


def test_text_of_a_bucket_without_a_content_type(tmp_path: Path, shep: Run) -> None:
    """Buckets of the older formats have no content type: what looks like text is treated as text."""
    old = make_herd(tmp_path, (Page("http://a.example/old", RowType.GATHERED, Reason.GATHERED, b"<p>an old page"),), (), ())
    assert stdout_of(shep(old, "cat", "--text", "http://a.example/old")) == "an old page\n"
