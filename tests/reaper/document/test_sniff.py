"""What a document is, by header and bytes."""

from __future__ import annotations

import gzip
import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.reaper.document.sniff import content_type, media_type, root_element, sniff
from tests.support import sampling

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
MP4 = b"\0\0\0\x18ftypmp42"


def zipped(*names: str, first: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        if first:
            archive.writestr("mimetype", first)
        for name in names:
            archive.writestr(name, "x")
    return out.getvalue()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"%PDF-1.4\n%\xe2\xe3", "application/pdf"),
        (PNG, "image/png"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
        (b"\0\0\0\x18ftypavif", "image/avif"),
        (MP4, "video/mp4"),
        (b"\x1a\x45\xdf\xa3\1", "video/webm"),
        (b"ID3\4\0\0", "audio/mpeg"),
        (b"OggS\0\2", "application/ogg"),
        (b"wOF2\0\1", "font/woff2"),
        (gzip.compress(b"x", mtime=0), "application/gzip"),
        (zipped("a.txt"), "application/zip"),
        (zipped("[Content_Types].xml", "word/document.xml"), WORD),
        (zipped("x", first="application/epub+zip"), "application/epub+zip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "application/x-ole-storage"),
        (b"{\\rtf1", "application/rtf"),
        (b"  <!doctype HTML><p>", "text/html"),
        (b"<!-- x --><p>", "text/html"),
        (b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>", "application/xhtml+xml"),
        (b"<?xml version='1.0'?><!-- c --><rss version='2.0'>", "application/rss+xml"),
        (b"<rdf:RDF xmlns:rdf='x'>", "application/rss+xml"),
        (b"<feed xmlns='http://www.w3.org/2005/Atom'>", "application/atom+xml"),
        (b"<urlset xmlns='x'>", "application/xml"),
        (b"<?xml version='1.0'?><data/>", "application/xml"),
        ("<html>".encode("utf-16"), "text/html"),
        (b"BMW is a car", "text/plain"),
        (b"ID3 is a tag", "text/plain"),
        (b"", "text/plain"),
        (b"a\0b", "application/octet-stream"),
    ],
)  # fmt: skip
def test_bytes_without_a_header(body: bytes, found: str) -> None:
    assert sniff(body) == found
    for nothing in ("", "*/*", "application/octet-stream", "nonsense", "unknown/unknown"):
        assert content_type(body, nothing) == found


@pytest.mark.parametrize(
    ("body", "header", "found"),
    [
        (b"%PDF-1.4", "text/html; charset=utf-8", "application/pdf"),
        (b"%PDF-1.4", "text/plain", "application/pdf"),
        (PNG, "application/xhtml+xml", "image/png"),
        (MP4, "text/html", "video/mp4"),
        (b"<html>", "text/plain", "text/plain"),
        (b"<html>", "image/png", "image/png"),
        (b"<html>", "application/pdf", "application/pdf"),
        (b"\0\1\2", "text/plain", "application/octet-stream"),
        (b"\0<html>", "text/html", "text/html"),
        (b"<rss version='2'>", "text/html", "application/rss+xml"),
        (b"<?xml version='1.0'?>\n<feed>", "text/xml", "application/atom+xml"),
        (b"<feed>", "application/rss+xml", "application/atom+xml"),
        (b"<html xmlns='x'>", "application/xml", "application/xhtml+xml"),
        (b"<html>", "text/html", "text/html"),
        (b"<svg>", "image/svg+xml", "image/svg+xml"),
        (b"<urlset>", "text/xml", "text/xml"),
        (b"a { color: red }", "text/css", "text/css"),
    ],
)
def test_a_wrong_header_does_not_make_a_pdf_html(body: bytes, header: str, found: str) -> None:
    assert content_type(body, header) == found


def test_header_without_its_parameters() -> None:
    assert media_type(" Text/HTML ;charset=x") == "text/html"
    assert (media_type("html"), media_type("")) == ("", "")


def test_root_element_behind_a_prologue() -> None:
    assert (
        root_element(b"\xef\xbb\xbf<?xml version='1.0'?><?x y?><!-- <a> --> <!DOCTYPE html PUBLIC 'x'>\n<sm:URLSET a='b'>")
        == "urlset"
    )
    assert root_element("<?xml version='1.0'?><rss>".encode("utf-16")) == "rss"
    for none in (b"", b"<", b"<!--", b"text <a>", b"<?xml", b"<a" + b"b" * 5_000):
        assert root_element(none) == "", none


@settings(max_examples=sampling.examples(300), deadline=None)
@given(body=st.binary(max_size=300), header=st.text(max_size=40))
def test_noise_is_never_an_error(body: bytes, header: str) -> None:
    for noise in (body, b"<" + body, b"PK\3\4" + body, b"\xff\xfe" + body):
        assert "/" in content_type(noise, header) and "/" in sniff(noise)
