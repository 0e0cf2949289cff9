"""Buckets: whatever is cut, altered or malformed is noticed; bodies come back whole, or up to the limit."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import lz4.frame
import pytest
import zstandard

from shepherd.errors import Corruption
from shepherd.formats import bucket
from shepherd.formats.bucket import Codec
from tests.golden import segments
from tests.golden.segments import Document, sealed

ROOT = Path(__file__).resolve().parents[2]
TEXT = b"the sheep are in the meadow " * 300
ONE = Document(b"http://a.example/", {"T": b"text/html", "X": b""}, TEXT)
WRITERS: dict[str, Callable[[Document], bytes]] = {
    "v2": segments.v2,
    "v3.0": segments.v30,
    "v3.3": segments.v33,
    "v3.3 compressed": lambda one: segments.v34(one, "lz4"),
}
each_type = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


# --- damage -----------------------------------------------------------------------------------------------------


@each_type
def test_bucket_with_any_bit_flipped_is_noticed(write: Callable[[Document], bytes]) -> None:
    data = write(Document(b"http://a.example/", {"T": b"text/html"}, b"the body\n"))
    for at in range(len(data)):
        for bit in range(8):
            with pytest.raises(Corruption):
                bucket.parse(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


@each_type
def test_bucket_cut_anywhere_or_ended_by_zeros_is_noticed(write: Callable[[Document], bytes]) -> None:
    data = write(Document(b"http://a.example/", {"T": b"text/html"}, b"the body\n"))
    for length in range(len(data.rstrip(b"\0"))):
        for torn in (data[:length], data[:length] + bytes(len(data) - length)):
            with pytest.raises(Corruption):
                bucket.parse(torn)


@each_type
def test_damaged_body_still_leaves_the_url_where_it_stands_apart(write: Callable[[Document], bytes]) -> None:
    data = write(ONE)
    torn = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(Corruption, match="damaged"):
        bucket.parse(torn)
    if write is segments.v2:
        with pytest.raises(Corruption, match="damaged"):
            bucket.parse(torn, with_body=False)
    else:
        assert bucket.parse(torn, with_body=False).url == "http://a.example/"


def test_quick_reading_agrees_with_slow_reading_and_refuses_damage() -> None:
    for body in (b"", b"wool " * 9):
        data = bucket.pack(
            site=1, path=2, time_ms=3, state=4, attributes=[("U", b"http://a.example/"), ("t", b"Wool")], body=body
        )
        assert bucket.read_whole(data) == bucket.parse(data)
        for bit in range(len(data) * 8):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            assert bucket.read_whole(bytes(flipped)) is None, bit
        assert all(bucket.read_whole(data[:end]) is None for end in range(len(data)))
        assert bucket.read_whole(data + b"\0") is None


def test_quick_walk_stops_exactly_at_the_first_damaged_bucket() -> None:
    one = bucket.pack(site=1, path=2, time_ms=3, state=4, attributes=[("U", b"http://a.example/")], body=b"wool")
    thin = bucket.thin(5, 6, 7, 8, "http://b.example/")
    whole = one + thin
    assert bucket.sound_until(whole) == len(whole)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert bucket.sound_until(bytes(flipped)) == (0 if bit < len(one) * 8 else len(one)), bit
    for end in range(len(whole)):
        assert bucket.sound_until(whole[:end]) == (0 if end < len(one) else len(one)), end
    assert bucket.sound_until(segments.v30(ONE) + one) == 0  # of another day: the slow reader knows it


def test_bucket_without_a_url_is_noticed_when_the_url_is_read() -> None:
    for url in (b"", b"http://\xe9/"):
        with pytest.raises(Corruption, match="has no URL"):
            bucket.parse(segments.v33(Document(url)), 0).url  # noqa: B018
    nameless = bucket.parse(sealed(0x33, ONE, b"", b"", 0))
    with pytest.raises(Corruption, match="has no URL"):
        nameless.url  # noqa: B018


@pytest.mark.parametrize(
    ("kind", "codec", "stored", "plain", "flags"),
    [
        (0x20, 0, b"x", 1, 0),
        (0x20, 1, b"", 0, 0),
        (0x30, 2, b"x", 1, 0),
        (0x30, 0, b"x", 2, 0),
        (0x33, 1, b"x", 1, 0),
        (0x33, 0, b"x", 0, 0),
        (0x34, 0, b"x", 1, 0),
        (0x34, 7, b"x", 1, 0),
        (0x35, 0, b"x", 1, 0),
        (0x33, 0, b"x", 1, 1),
        (0x34, 1, b"", 9, 2),
    ],
)
def test_header_of_an_impossible_shape_is_no_header(kind: int, codec: int, stored: bytes, plain: int, flags: int) -> None:
    text = b"\n" if kind == 0x30 else b""
    with pytest.raises(Corruption, match="no bucket header"):
        bucket.parse(sealed(kind, Document(b"", flags=flags), text, stored, plain, codec))


def record(letter: bytes, contents: bytes = b"x", length: int | None = None) -> bytes:
    return struct.pack("<I", len(contents) if length is None else length) + contents + letter


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (record(b"U")[:-1], "over the end"),
        (record(b"U") + b"\x00\x00\x00\x00", "cut off"),
        (record(b"U", length=2), "over the end"),
        (record(b"U", length=2**32 - 1), "over the end"),
        (record(b"U") + record(b"T") + record(b"U"), "twice"),
        (record(b"\xc1"), "not a letter"),
        (record(b"1"), "not a letter"),
    ],
)
def test_malformed_record_under_a_valid_checksum_is_corruption(table: bytes, said: str) -> None:
    with pytest.raises(Corruption, match=f"seg at 0: .*{said}"):
        bucket.parse(sealed(0x33, ONE, table, b"", 0), where="seg")


def test_only_letters_of_the_table_are_written() -> None:
    for attributes in ([("U", b""), ("U", b"")], [("F", b"")], [("B", b"")], [("z", b"")], [("", b"")], [("UT", b"")]):
        with pytest.raises(ValueError, match="attribute"):
            bucket.pack(site=1, path=2, time_ms=3, state=4, attributes=attributes)


# --- malformed text ---------------------------------------------------------------------------------------------

DIGEST = b"00" * 32
LINES = {
    "last line cut off": b"Uhttp://a.example/",
    "empty line": b"Ux\n\nTy\n",
    "letter twice": b"Ux\nTy\nUz\n",
    "digit for a letter": b"1x\n",
    "letter beyond ASCII": b"\xe9x\n",
    "control character for a letter": b"\rx\n",
    "digest in capitals": b"D" + DIGEST[:-2] + b"AB\n",
    "digest with a digit missing": b"D" + DIGEST[:-1] + b"\n",
    "digest too short": b"D" + DIGEST[:-2] + b"\n",
    "digest too long": b"D" + DIGEST + b"00\n",
    "digest with a blank": b"D" + DIGEST[:-2] + b" 0\n",
    "digest over two lines": b"D" + DIGEST + b"\nD\n",
    "no digest": b"D\n",
    "links with half a pair": b"L" + b"00" * 24 + b"\n",
    "too many links": b"L" + b"00" * 16 * 257 + b"\n",
    "number with a sign": b"m+7\n",
    "number with a leading zero": b"m07\n",
    "number with an underscore": b"m1_0\n",
    "number of other digits": b"m\xd9\xa3\n",
    "number too large": b"m4294967296\n",
    "number far too large": b"M" + b"9" * 5000 + b"\n",
    "empty number": b"m\n",
    "another footprint": b"F" + b"11" * 16 + b"\n",
    "another time": b"G1001\n",
    "lines without end": b"Ux\n" + b"Hx\n" * 350_000,
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_malformed_line_under_a_valid_checksum_is_corruption(text: bytes) -> None:
    for data in (sealed(0x20, ONE, text, b"", 0), sealed(0x30, ONE, text + b"\n", b"", 0)):
        for with_body in (True, False):
            with pytest.raises(Corruption, match="seg at 0: "):
                bucket.parse(data, where="seg", with_body=with_body)


@pytest.mark.parametrize("text", [b"", b"Ux\n", b"Ux\n\nTy\n\n", b"Ux\nBbody\n\n", b"Ux\nbbody\n\n", b"\n\n"])
def test_malformed_end_of_a_v30_header_is_corruption(text: bytes) -> None:
    with pytest.raises(Corruption, match="bucket at 0: "):
        bucket.parse(sealed(0x30, ONE, text, b"", 0))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (b"Ux\nBbody", 5),
        (b"Ux\nBbody\nTx\n", 5),
        (b"Ux\nBbody\n\n", 5),
        (b"Ux\nbbody\nBmore\n", 9),
        (b"Ux\nbbody\nbmore\n", 9),
        (b"Ux\nBbody\nb\n", 5),
        (b"Ux\nBbody\n", 4),
        (b"Ux\nbbody\n", 5),
        (b"Ux\n", 1),
    ],
)
def test_malformed_body_lines_are_corruption(text: bytes, plain: int) -> None:
    with pytest.raises(Corruption, match="bucket at 0: "):
        bucket.parse(sealed(0x20, ONE, text, b"", plain))


def test_sixteen_million_bytes_of_empty_body_lines_are_read_without_a_list_of_them() -> None:
    text = b"B\n" * (bucket.MAX_ATTRIBUTES // 2)
    assert bucket.parse(sealed(0x20, ONE, text, b"", len(text) // 2)).body() == b"\n" * (len(text) // 2)


# --- bodies -----------------------------------------------------------------------------------------------------

CODED = {
    "none": (Codec.NONE, TEXT),
    "lz4": (Codec.LZ4, bucket.compress(TEXT, "lz4")[1]),
    "zstd": (Codec.ZSTD, bucket.compress(TEXT, "zstd")[1]),
    "gzip": (Codec.GZIP_SENT, gzip.compress(TEXT)),
    "gzip members": (Codec.GZIP_SENT, gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])),
    "br": (Codec.BR_SENT, brotli.compress(TEXT)),
    "zstd as sent": (Codec.ZSTD_SENT, zstandard.ZstdCompressor().compress(TEXT)),
    "deflate": (Codec.DEFLATE_SENT, zlib.compress(TEXT)),
    "raw deflate": (Codec.DEFLATE_SENT, zlib.compress(TEXT)[2:-4]),
}
each_codec = pytest.mark.parametrize(("codec", "stored"), CODED.values(), ids=CODED)


def coded(codec: Codec, stored: bytes, plain: int = len(TEXT)) -> bucket.Bucket:
    attributes = [("U", b"http://a.example/")]
    data = bucket.pack(site=1, path=2, time_ms=3, state=4, attributes=attributes, body=stored, codec=codec, plain_bytes=plain)
    return bucket.parse(data)


@each_codec
def test_body_decodes_whole_and_under_a_limit(codec: Codec, stored: bytes) -> None:
    one = coded(codec, stored)
    assert one.stored == stored
    assert one.body() == TEXT
    for limit in (0, 1, 77, len(TEXT) - 1, len(TEXT), len(TEXT) + 1):
        assert one.body(limit) == TEXT[:limit]


@each_codec
def test_body_of_another_length_than_its_header_says_is_noticed(codec: Codec, stored: bytes) -> None:
    if codec == Codec.NONE:
        return  # such a header has no possible shape
    for plain in (0, len(TEXT) - 1, len(TEXT) + 1, 2**32 - 1):
        with pytest.raises(Corruption, match="where its header says"):
            coded(codec, stored, plain).body()


@each_codec
def test_stream_that_was_never_coded_or_is_cut_is_noticed(codec: Codec, stored: bytes) -> None:
    if codec == Codec.NONE:
        return
    for broken in (b"<html>just text, and more of it</html>" * 10, stored[: len(stored) // 2], b""):
        with pytest.raises(Corruption):
            coded(codec, broken).body()


def test_body_that_compression_does_not_help_is_stored_plain() -> None:
    noise = random.Random(1).randbytes(10_000)
    assert bucket.compress(noise, "lz4") == (Codec.NONE, noise)


BOMB = """
import resource, sys
from shepherd.formats.bucket import Codec, decode
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(decode(Codec[sys.argv[1]], bomb, 1 << 20)), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("codec", ["LZ4", "ZSTD"])
def test_bomb_in_a_codec_of_ours_stops_at_the_limit(codec: str) -> None:
    bomb = lz4.frame.compress(bytes(200_000_000)) if codec == "LZ4" else zstandard.compress(bytes(200_000_000), 3)
    run = subprocess.run([sys.executable, "-c", BOMB, codec], input=bomb, capture_output=True, check=True, cwd=ROOT)
    size, grown_mib = map(int, run.stdout.split())
    assert size == 1 << 20
    assert grown_mib < 40
