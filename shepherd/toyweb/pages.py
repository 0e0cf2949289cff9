"""The bytes of a page: HTML with prose and links, plain text, or a small PDF. A function of (model, page, version) alone."""

from __future__ import annotations

import html

from shepherd.toyweb.draw import Draw
from shepherd.toyweb.links import Link, links, title
from shepherd.toyweb.model import Model
from shepherd.toyweb.plan import Kind, Page
from shepherd.toyweb.text import paragraph, sentence

_META_ROBOTS = {Kind.NOINDEX: "noindex", Kind.NOFOLLOW: "nofollow"}
_CONTENT_TYPES = {
    Kind.TEXT: "text/plain; charset=utf-8",
    Kind.PDF: "application/pdf",
    Kind.LATIN1: "text/html; charset=iso-8859-1",
}


def content_type(page: Page) -> str:
    return _CONTENT_TYPES.get(page.kind, "text/html; charset=utf-8")


def body(model: Model, page: Page, version: int) -> bytes:
    """The body of a page that answers 200. Only changing pages depend on the version."""
    edition = version if page.kind is Kind.CHANGING else 0
    draw = Draw(model.seed, "body", *page.ref, edition)
    if page.kind is Kind.TEXT:
        return _plain(model, page, draw)
    if page.kind is Kind.PDF:
        return _pdf(title(model, page.ref), [sentence(draw) for _ in range(8)])
    return _html(model, page, draw, edition)


def _html(model: Model, page: Page, draw: Draw, edition: int) -> bytes:
    charset = "iso-8859-1" if page.kind is Kind.LATIN1 else "utf-8"
    site = model.sites[page.ref.site]
    name = html.escape(title(model, page.ref))
    children, others = links(model, page)
    lines = ["<!DOCTYPE html>", '<html lang="en">', "<head>", f'<meta charset="{charset}">']
    lines.append(f"<title>{name}</title>" if page.ref.path == "/" else f"<title>{name} - {html.escape(site.title)}</title>")
    if page.kind in _META_ROBOTS:
        lines.append(f'<meta name="robots" content="{_META_ROBOTS[page.kind]}">')
    lines += ["</head>", "<body>", f"<h1>{name}</h1>"]
    if page.kind is Kind.LATIN1:
        lines.append("<p>The caf\u00e9 by the br\u00fcck serves cr\u00e8me fra\u00eeche, \u00e5 la carte, on Sundays.</p>")
    if edition:
        lines.append(f"<p>Edition {edition}.</p>")
    if children:
        lines += ["<ul>", *(f"<li>{_anchor(link)}</li>" for link in children), "</ul>"]
    length = 2 + draw.below(2 if page.kind is Kind.CALENDAR else 16)
    paragraphs = [html.escape(paragraph(draw), quote=False) for _ in range(length)]
    for number, link in enumerate(others):
        paragraphs[number % len(paragraphs)] += f" See {_anchor(link)}."
    lines += [f"<p>{text}</p>" for text in paragraphs]
    lines += [f"<p><small>{html.escape(site.title)}, a farm of the toy web.</small></p>", "</body>", "</html>", ""]
    return "\n".join(lines).encode(charset)


def _anchor(link: Link) -> str:
    rel = ' rel="nofollow"' if link.nofollow else ""
    return f'<a href="{html.escape(link.href)}"{rel}>{html.escape(link.text)}</a>'


def _plain(model: Model, page: Page, draw: Draw) -> bytes:
    paragraphs = [paragraph(draw) for _ in range(2 + draw.below(6))]
    return "\n\n".join([title(model, page.ref), *paragraphs, ""]).encode()


def _pdf(name: str, sentences: list[str]) -> bytes:
    """One page of text, small but valid: objects, their offsets, the trailer."""
    # The words are ours and hold no parenthesis or backslash, which a PDF string would have to escape.
    shown = b"".join(b"(%b) Tj T*\n" % line.encode() for line in [name, "", *sentences])
    content = b"BT /F1 12 Tf 16 TL 60 780 Td\n" + shown + b"ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, text)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)
