"""What kind of document a body is: by its header, and by its first bytes where the header says nothing or cannot be right.

Invariant: bytes that can be nothing but a PDF, an image, an archive and so on are never called a text, whatever the header says;
and a header that says plain text never makes a page of it. Only the first bytes are looked at, so the cost does not depend on the
length of a body.
"""

from __future__ import annotations

from typing import Final

from shepherd.expressions import Beginning, HeaderForm

HTML: Final = "text/html"
XHTML: Final = "application/xhtml+xml"
HTML_TYPES: Final = (HTML, XHTML)
CSS: Final = "text/css"
PLAIN: Final = "text/plain"
RSS: Final = "application/rss+xml"  # RDF, which is RSS 1.0, counts as that
ATOM: Final = "application/atom+xml"
XML: Final = "application/xml"
GZIP: Final = "application/gzip"
GZIP_TYPES: Final = (GZIP, "application/x-gzip")
UNKNOWN: Final = "application/octet-stream"

_LOOK: Final = 1_024
_UNSPECIFIC: Final = (
    "",
    "unknown/unknown",
    "application/unknown",
    "*/*",
    UNKNOWN,
    "binary/octet-stream",
    "application/force-download",
)
_ROOTS: Final = {"html": XHTML, "rss": RSS, "rdf": RSS, "feed": ATOM}
FEED_ROOTS: Final = ("rss", "rdf", "feed")
SITEMAP_ROOTS: Final = ("urlset", "sitemapindex")

# offset, bytes, type: what no text begins with
_MAGIC: Final = (
    (0, b"%PDF-", "application/pdf"),
    (0, b"%!PS-Adobe-", "application/postscript"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBPVP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"\0\0\1\0", "image/x-icon"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (8, b"AVI ", "video/x-msvideo"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AIFF", "audio/aiff"),
    (0, b"OggS\0", "application/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"MThd\0\0\0\6", "audio/midi"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"OTTO\0", "font/otf"),
    (0, b"\0\1\0\0", "font/ttf"),
    (0, b"\x1f\x8b", GZIP),
    (0, b"PK\3\4", "application/zip"),
    (0, b"PK\5\6", "application/zip"),
    (0, b"Rar!\x1a\7", "application/vnd.rar"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),  # what Word and its like wrote before 2007
    (0, b"{\\rtf", "application/rtf"),
    (0, b"\0asm", "application/wasm"),
    (0, b"\x7fELF", "application/x-executable"),
)
_WEAK: Final = (
    b"BM",
    b"ID3",
    b"BZh",
    b"AVI ",
    b"WAVE",
    b"AIFF",
    b"WEBPVP",
)  # a text may begin with these, too
_ZIPPED: Final = (  # by the names of the first entries
    (b"mimetypeapplication/epub+zip", "application/epub+zip"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
    (b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
    (b"mimetypeapplication/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation"),
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    (b"[Content_Types].xml", "application/vnd.openxmlformats-officedocument"),
)
_UTF16: Final = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def media_type(header: str) -> str:
    """The type that a Content-Type header declares, in lower case and without parameters; "" where it declares none."""
    declared = HeaderForm.MEDIA_TYPE.match(header)
    return declared.group(1).lower() if declared else ""


def content_type(body: bytes, header: str) -> str:
    """The type of a body. A header that names a specific type other than text is believed."""
    declared = media_type(header)
    if declared in _UNSPECIFIC:
        return sniff(body)
    textual = declared.startswith("text/") or declared in HTML_TYPES or is_xml(declared)
    if not textual:
        return declared
    beginning = _beginning(body)
    if magic_type := _by_magic(beginning):
        return magic_type
    if declared == PLAIN:
        return UNKNOWN if Beginning.BINARY.search(beginning) else PLAIN
    root = root_element(beginning)
    if is_xml(declared) or (declared == HTML and root in FEED_ROOTS):
        return _ROOTS.get(root, declared)
    return declared


def sniff(body: bytes) -> str:
    """The type of a body whose header says nothing."""
    beginning = _beginning(body)
    text = beginning.lstrip()
    if Beginning.HTML.match(text):
        return HTML
    if magic_type := _by_magic(beginning) or _by_magic(text):
        return magic_type
    root = root_element(text)
    if text.startswith(b"<?xml") or root in (*_ROOTS, *SITEMAP_ROOTS):
        return _ROOTS.get(root, XML)
    return UNKNOWN if Beginning.BINARY.search(beginning) else PLAIN


def is_xml(media: str) -> bool:
    return media in ("text/xml", XML) or media.endswith("+xml")


def root_element(body: bytes) -> str:
    """The name of the first element, without its prefix and in lower case; "" if the first bytes do not show it."""
    beginning = _beginning(body)
    start = Beginning.PROLOGUE.match(beginning)
    root = Beginning.ROOT.match(beginning, start.end() if start else 0)
    return (root.group(2) or root.group(1)).decode("ascii").lower() if root else ""


def _by_magic(beginning: bytes) -> str:
    if beginning[:1] in (b"<", b"\n"):  # as most pages do, and nothing below
        return ""
    for offset, magic, magic_type in _MAGIC:
        if beginning.startswith(magic, offset) and (magic not in _WEAK or Beginning.BINARY.search(beginning, 0, 64)):
            return _zipped(beginning) if magic == b"PK\3\4" else magic_type
    return ""


def _zipped(beginning: bytes) -> str:
    return next((zip_type for name, zip_type in _ZIPPED if name in beginning), "application/zip")


def _beginning(body: bytes) -> bytes:
    """The first bytes, without a byte order mark; those of UTF-16 as UTF-8."""
    for mark, codec in _UTF16:
        if body.startswith(mark):
            return body[2:_LOOK].decode(codec, "replace").encode("utf-8", "replace")
    return body[:_LOOK].removeprefix(b"\xef\xbb\xbf")
