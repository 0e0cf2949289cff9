"""The golden segments: what is in them, and how the text buckets in them were written once, from docs/formats.md alone.

    .venv/bin/python -m tests.golden.segments      # writes those that are missing, from the root of the source tree

A golden file is never changed: it stands for what an older program left behind. The writers of v2 and v3.0 use nothing of
shepherd's own reading or writing of buckets, so that they can prove it wrong.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import brotli
import lz4.frame
import mmh3
import zstandard

HERE = Path(__file__).resolve().parent
HEX = "DhLF"
NUMBERS = "mMG"
MANY_LINES = b"".join(b"line %d of the sheep\n" % n for n in range(100))


@dataclass(frozen=True)
class Document:
    """One bucket to be."""

    url: bytes
    attributes: dict[str, bytes] = field(default_factory=dict)
    body: bytes = b""
    flags: int = 0
    site: int = 0x1111111111111111
    path: int = 0x2222222222222222
    time_ms: int = 1_000
    state: int = 1

    @property
    def all(self) -> dict[str, bytes]:
        return {"U": self.url, **self.attributes}


DOCUMENTS = (
    Document(
        b"http://a.example/",
        {
            "S": b"HTTP/1.1 200 OK",
            "H": b"Content-Type: text/html\r\nX-Odd: \x00\xff\r\n\r\n",
            "T": b"text/html",
            "C": b"utf-8",
            "D": bytes(range(32)),
            "t": "Grüße".encode(),
            "L": bytes(range(64)),
            "A": b"192.0.2.7",
            "m": struct.pack("<I", 4_294_967_295),
            "X": b"",
            "P": b"two\nlines",
            "K": b"http://b.example/",
            "M": struct.pack("<Q", 1_790_000_000_000),
            "h": b"\n" * 8,
            "z": b"a letter that no table has",
        },
        MANY_LINES,
        flags=4,
    ),
    Document(b"http://a.example/every-byte", {"m": struct.pack("<I", 0)}, bytes(range(256)) * 3, state=7, time_ms=-5),
    Document(b"http://a.example/looks-like-lines", {}, b"Uhttp://b.example/\nBb\n\nb\r\nB", path=2**64 - 1),
    Document(b"http://a.example/one-line-end", {}, b"\n"),
    Document(b"http://a.example/no-line-end", {}, b"b"),
    Document(b"http://a.example/empty", {"S": b"HTTP/1.0 200 OK"}, b""),
    Document(b"http://a.example/thin", {}, flags=1, time_ms=2**62),
    Document(b"http://a.example/deleted", {"P": b"operator@host"}, flags=3),
)


def check(data: bytes) -> int:
    return int.from_bytes(mmh3.mmh3_x64_128_digest(data, 0x5348)[:8], "little")


def sealed(kind: int, one: Document, table: bytes, stored: bytes, plain: int, codec: int = 0) -> bytes:
    """The bucket of these attributes and this body, whatever they are, with checksums that hold."""
    lengths = struct.pack("<IIII", len(table), len(stored), plain, one.state)
    head = b"SHB3" + struct.pack("<BBH", kind, codec, one.flags) + lengths + struct.pack("<QQq", one.site, one.path, one.time_ms)
    return head + struct.pack("<QQ", check(head + table), check(stored)) + table + stored


def lines(one: Document) -> bytes:
    """The attribute lines of both text formats, with footprint and time where they can be spelt."""
    more = {"F": struct.pack("<QQ", one.site, one.path)}
    if one.time_ms >= 0:
        more["G"] = struct.pack("<q", one.time_ms)
    text = b""
    for letter, contents in (one.all | more).items():
        if letter in HEX:
            contents = contents.hex().encode()
        elif letter in NUMBERS:
            contents = str(int.from_bytes(contents, "little")).encode()
        text += b"".join(letter.encode() + line + b"\n" for line in contents.split(b"\n"))
    return text


def body_lines(body: bytes) -> bytes:
    *whole, rest = body.split(b"\n")
    return b"".join(b"B" + line + b"\n" for line in whole) + (b"b" + rest + b"\n" if rest else b"")


def records(one: Document) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text + letter.encode() for letter, text in one.all.items())


def v2(one: Document) -> bytes:
    return sealed(0x20, one, lines(one) + body_lines(one.body), b"", len(one.body))


def v30(one: Document) -> bytes:
    return sealed(0x30, one, lines(one) + b"\n", one.body, len(one.body))


def v33(one: Document) -> bytes:
    return sealed(0x33, one, records(one), one.body, len(one.body))


# Codec and how a body is brought into it. What a library writes changes with its version, so these files are only ever read.
CODERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "lz4": (1, lz4.frame.compress),
    "zstd": (2, zstandard.ZstdCompressor().compress),
    "gzip": (3, lambda body: gzip.compress(body, mtime=0)),
    "br": (4, brotli.compress),
    "zstd-sent": (5, zstandard.ZstdCompressor(level=10).compress),
    "deflate": (6, zlib.compress),
}


def v34(one: Document, coder: str) -> bytes:
    codec, encode = CODERS[coder]
    return sealed(0x34, one, records(one), encode(one.body), len(one.body), codec)


COMPRESSED = tuple(one for one in DOCUMENTS if one.body)
PLAIN: dict[str, Callable[[Document], bytes]] = {"v2": v2, "v3.0": v30, "v3.3": v33}


def path_of(name: str) -> Path:
    return HERE / f"segment-{name}"


def main() -> None:
    files = {name: b"".join(map(write, DOCUMENTS)) for name, write in PLAIN.items()}
    files |= {f"v3.3-{coder}": b"".join(v34(one, coder) for one in COMPRESSED) for coder in CODERS}
    for name, data in files.items():
        if not path_of(name).exists():
            path_of(name).write_bytes(data)
            print(f"{path_of(name)}: {len(data)} bytes")


if __name__ == "__main__":
    main()
