"""Files that are no pages: PDF, PNG, GIF, JPEG, SVG, CSS and JavaScript. Small, but every one of them opens."""

from __future__ import annotations

import struct
import zlib

_COLOURS = ((0x2E, 0x7D, 0x32), (0x8D, 0x6E, 0x63), (0xF5, 0xF5, 0xDC), (0x90, 0xA4, 0xAE))
IMAGE_TYPES = {"png": "image/png", "gif": "image/gif", "jpeg": "image/jpeg", "svg": "image/svg+xml"}


def image(variant: str, number: int) -> bytes:
    """A picture of one colour; which one, and for some its size, hang on the number."""
    colour, size = _COLOURS[number % len(_COLOURS)], 8 + number % 25
    if variant == "png":
        return _png(colour, size)
    if variant == "gif":
        return _gif(colour)
    if variant == "jpeg":
        return _jpeg(1 + number % 255)
    text = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}"><title>A field</title>'
    return f'{text}<rect width="{size}" height="{size}" fill="rgb{colour}"/></svg>\n'.encode()


def _png(colour: tuple[int, int, int], size: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * size) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    # Stored, not compressed: the same bytes from every zlib.
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def _gif(colour: tuple[int, int, int]) -> bytes:
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(colour) + b"\0\0\0"
    return screen + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00\x3b"


def _jpeg(step: int) -> bytes:
    """Baseline, grey, 8 by 8: one block whose every coefficient is 0, with Huffman tables of one code each."""
    quantisation = b"\xff\xdb" + struct.pack(">HB", 67, 0) + bytes([step]) * 64
    frame = b"\xff\xc0" + struct.pack(">HBHHBBBB", 11, 8, 8, 8, 1, 1, 0x11, 0)
    tables = b"".join(b"\xff\xc4" + struct.pack(">HB", 20, kind) + b"\x01" + b"\0" * 15 + b"\0" for kind in (0x00, 0x10))
    scan = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 0, 63, 0) + b"\x3f"
    application = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    return b"\xff\xd8" + application + quantisation + frame + tables + scan + b"\xff\xd9"


def style(paper: str) -> bytes:
    rules = (
        "body { font-family: Georgia, serif; max-width: 44rem; margin: 1rem auto; color: #222; }",
        f'body {{ background: #fdfbf5 url("{paper}") repeat; }}',
        "nav a { margin-right: 1em; } .note { border-left: 3px solid #2e7d32; padding-left: 1em; }",
        "h1 { font-weight: normal; } footer { font-size: 80%; color: #555; }",
    )
    return "\n".join((*rules, "")).encode()


def script() -> bytes:
    lines = (
        '"use strict";',
        "// Marks the link to the page that is open. The next line holds what looks like a link and is none.",
        'const example = "<a href=\\"/not-a-link.html\\">";',
        'for (const link of document.querySelectorAll("nav a")) {',
        '  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");',
        "}",
    )
    return "\n".join((*lines, "")).encode()


def pdf(name: str, sentences: list[str]) -> bytes:
    """One page of text, small but valid: objects, their offsets, the trailer."""
    # The words are ours and hold no parenthesis or backslash, which a PDF string would have to escape.
    text_lines = b"".join(b"(%b) Tj T*\n" % line.encode() for line in [name, "", *sentences])
    content = b"BT /F1 12 Tf 16 TL 60 780 Td\n" + text_lines + b"ET"
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
