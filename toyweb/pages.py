"""The bytes of a page: HTML with prose and links, or a file of another type. A function of (model, page, version) alone.

A page is a row of pieces: its own text, and blocks from the stock of `text.py`. Ordinary ones are of 10 to 60 KB.
"""

from __future__ import annotations

import html
import struct
import zlib
from collections.abc import Sequence

from toyweb import feeds, media
from toyweb.builder import LOGO, PAPER, SCRIPT, STYLE
from toyweb.charsets import CHARSETS
from toyweb.draw import Draw
from toyweb.links import Link, links, title
from toyweb.model import Model, canonical_url
from toyweb.plan import HTML_KINDS, NAMING_KINDS, PageKind, Ref, ToyPage
from toyweb.text import BLOCKS, TextBlock, block, paragraph, sentence

LARGEST_BYTES = 60_000
SMALLEST_BYTES = 10_000

_HTML = "text/html; charset=utf-8"
_META_ROBOTS = {PageKind.NOINDEX: "noindex", PageKind.NOFOLLOW: "nofollow"}
_TYPES = {
    PageKind.TEXT: "text/plain; charset=utf-8",
    PageKind.PDF: "application/pdf",
    PageKind.STYLE: "text/css",
    PageKind.SCRIPT: "text/javascript",
}
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_DEFLATE_END = b"\x03\0"
_STORED_MOST = 0xFFFF
_FEED_ENTRIES = 10


def content_type(page: ToyPage) -> str:
    if page.kind is PageKind.CHARSET:
        return CHARSETS[page.variant].content_type
    if page.kind is PageKind.IMAGE:
        return media.IMAGE_TYPES[page.variant]
    if page.kind in NAMING_KINDS:
        return feeds.content_type(page.kind, page.variant)
    return _TYPES.get(page.kind, _HTML)


def x_robots(page: ToyPage) -> str:
    """The X-Robots-Tag of a page that says its wish there; "" for most."""
    return _META_ROBOTS.get(page.kind, "") if page.variant == "header" else ""


def body(model: Model, page: ToyPage, version: int) -> bytes:
    """The body of a page that answers 200. Only changing pages depend on the version."""
    page = model.original(page)
    draw = Draw(model.seed, "body", *page.ref, _edition(page, version))
    if page.kind in HTML_KINDS:
        plain = b"".join(piece if isinstance(piece, bytes) else piece.plain for piece in _html(model, page, draw, version))
        return CHARSETS[page.variant].encode(plain.decode()) if page.kind is PageKind.CHARSET else plain
    if page.kind in NAMING_KINDS:
        home = canonical_url(Ref(page.ref.site, "/"))
        return feeds.document(page.kind, page.variant, title(model, page.ref), home, _named(model, page, version))
    if page.kind is PageKind.IMAGE:
        return media.image(page.variant, draw.below(1000))
    if page.kind is PageKind.STYLE:
        return media.style(PAPER)
    if page.kind is PageKind.SCRIPT:
        return media.script()
    if page.kind is PageKind.PDF:
        return media.pdf(title(model, page.ref), [sentence(draw) for _ in range(8)])
    paragraphs = [paragraph(draw) for _ in range(2 + draw.below(6))]
    return "\n\n".join([title(model, page.ref), *paragraphs, ""]).encode()


def packed_body(model: Model, page: ToyPage, version: int) -> bytes:
    """The same as a gzip stream."""
    original = model.original(page)
    if original.kind not in HTML_KINDS or original.kind is PageKind.CHARSET:
        return zlib.compress(body(model, page, version), 6, 31)  # 31: as a gzip stream, whose time stays 0
    return _gzip(_html(model, original, Draw(model.seed, "body", *original.ref, _edition(original, version)), version))


def _edition(page: ToyPage, version: int) -> int:
    return version if page.kind is PageKind.CHANGING else 0


def _gzip(pieces: Sequence[bytes | TextBlock]) -> bytes:
    """Blocks as they lie ready; what is the page's own as stored blocks, which cost nothing to make."""
    out = [_GZIP_HEAD]
    check = size = 0
    for piece in pieces:
        plain = piece if isinstance(piece, bytes) else piece.plain
        check, size = zlib.crc32(plain, check), size + len(plain)
        if isinstance(piece, TextBlock):
            out.append(piece.packed)
            continue
        for offset in range(0, len(plain), _STORED_MOST):
            part = plain[offset : offset + _STORED_MOST]
            out += [struct.pack("<BHH", 0, len(part), len(part) ^ 0xFFFF), part]
    return b"".join((*out, _DEFLATE_END, struct.pack("<II", check, size & 0xFFFFFFFF)))


def _html(model: Model, page: ToyPage, draw: Draw, version: int) -> list[bytes | TextBlock]:
    site = model.sites[page.ref.site]
    children, others = links(model, page)
    lines = ["<!DOCTYPE html>", '<html lang="en">', "<head>", *_head(model, page, children), "</head>"]
    if page.kind is PageKind.MARKUP and page.variant == "frame":
        frames = "".join(f'<frame src="{html.escape(link.href)}">' for link in children)
        return ["\n".join([*lines, f'<frameset cols="*">{frames}</frameset>', "</html>", ""]).encode()]
    lines += ["<body>", f'<img src="{LOGO}" srcset="{LOGO}?x=2 2x" alt="">', f"<h1>{html.escape(title(model, page.ref))}</h1>"]
    if page.kind is not PageKind.CALENDAR:
        lines += [
            "<nav>",
            *(f'<a href="{path}">{html.escape(title(model, Ref(site.number, path)))}</a>' for path in site.sections),
        ]
        lines.append("</nav>")
    if page.kind is PageKind.CHARSET:
        lines.append(f"<p>{html.escape(CHARSETS[page.variant].text)}</p>")
    if _edition(page, version):
        lines.append(f"<p>Edition {version}.</p>")
    if children:
        lines += _children(page, children)
    foot = [f"<p>See also {', '.join(map(_anchor, others))}.</p>"] if others else []
    foot.append(f"<footer>{html.escape(site.title)}, a farm of the toy web.</footer>")
    foot += [f'<script src="{SCRIPT}"></script>', "</body>", "</html>", ""]
    count = 2
    if page.kind is not PageKind.CALENDAR:
        most = LARGEST_BYTES * 1000 // (1100 + draw.below(1000 * LARGEST_BYTES // SMALLEST_BYTES - 2000))
        count = max(most // 1200, 2)
    return ["\n".join([*lines, ""]).encode(), *(block(draw.below(BLOCKS)) for _ in range(count)), "\n".join(foot).encode()]


def _head(model: Model, page: ToyPage, children: Sequence[Link]) -> list[str]:
    site = model.sites[page.ref.site]
    name = title(model, page.ref)
    name = name if page.ref.path == "/" else f"{name} - {site.title}"
    meta = '<meta charset="utf-8">'
    if page.kind is PageKind.CHARSET:
        name, meta = CHARSETS[page.variant].text, CHARSETS[page.variant].meta_element
    lines = [meta] if meta else []
    lines += [f"<title>{html.escape(name)}</title>", f'<link rel="stylesheet" href="{STYLE}">']
    if page.kind in _META_ROBOTS and not page.variant:
        lines.append(f'<meta name="robots" content="{_META_ROBOTS[page.kind]}">')
    if page.kind is PageKind.MARKUP:
        for link in children:
            href = html.escape(link.href)
            if page.variant == "refresh":
                lines.append(f'<meta http-equiv="refresh" content="5; url={href}">')
            elif page.variant == "base":
                lines.append(f'<base href="{href.rpartition("/")[0]}/">')
            elif page.variant in ("next", "canonical"):
                lines.append(f'<link rel="{page.variant}" href="{href}">')
    return lines


def _children(page: ToyPage, children: Sequence[Link]) -> list[str]:
    if page.kind is not PageKind.MARKUP:
        return ["<ul>", *(f"<li>{_anchor(link)}</li>" for link in children), "</ul>"]
    if page.variant == "iframe":
        return [f'<iframe src="{html.escape(link.href)}"></iframe>' for link in children]
    if page.variant == "area":
        areas = "".join(f'<area shape="default" href="{html.escape(link.href)}" alt="">' for link in children)
        return [f'<map name="farm">{areas}</map>']
    if page.variant == "base":
        return [f'<p><a href="{html.escape(link.href.rpartition("/")[2])}">By its base</a></p>' for link in children]
    return []


def _anchor(link: Link) -> str:
    rel = ' rel="nofollow"' if link.nofollow else ""
    return f'<a href="{html.escape(link.href)}"{rel}>{html.escape(link.text)}</a>'


def _named(model: Model, page: ToyPage, version: int) -> list[feeds.Named]:
    """What a sitemap or a feed names: its children, and the plain pages of the site."""
    plain = [Ref(page.ref.site, path) for path in model.sites[page.ref.site].popular]
    if page.kind is PageKind.SITEMAP_INDEX:
        plain = []
    elif page.kind is not PageKind.SITEMAP:  # a feed has what is new
        plain = sorted(plain, key=lambda ref: -model.modified_s(ref, version))[:_FEED_ENTRIES]
    refs = (*page.children, *plain)
    return [feeds.Named(canonical_url(ref), title(model, ref), model.modified_s(ref, version)) for ref in refs]
