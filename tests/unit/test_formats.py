"""Bytes to values and back; whatever is cut, zeroed or altered is noticed."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import brotli
import numpy as np
import pytest
import zstandard

from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib, frame, tables
from shepherd.formats.bucket import Codec
from shepherd.formats.check import check64
from shepherd.formats.checkpoint import Checkpoint, Mark, unpack_checkpoint
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind

DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
TEXT = b"the sheep are in the meadow " * 300


def a_bucket() -> bytes:
    codec, body = bucket.compress(TEXT, "lz4")
    return bucket.pack(
        site=1,
        path=2,
        time_ms=3,
        state=4,
        attributes=[("U", b"http://a.example/"), ("T", b"text/html"), ("X", b"")],
        body=body,
        codec=codec,
        plain_bytes=len(TEXT),
    )


def a_block(count: int = 5) -> Block:
    numbers = np.arange(count, dtype="<u8")
    return Block(
        norm=numbers + 100,
        path=numbers + 200,
        site=numbers % 2 + 300,
        lastmod=np.zeros(count, "<u4"),
        parent=np.zeros(count, "<u4"),
        parent_weight=np.full(count, 7, "<u2"),
        flags=np.zeros(count, "<u2"),
        section=np.zeros(count, "u1"),
        texts=[b"/page/%d" % n for n in range(count)],
        sites=np.array([300, 301], "<u8"),
        norms=np.array([100, 101], "<u8"),
        names=[b"http://a.example", b"http://b.example"],
        parents_site=np.array([9], "<u8"),
        parents_path=np.array([8], "<u8"),
        filter_version=77,
    )


def test_worked_example_in_the_documentation_is_what_is_written() -> None:
    data = bucket.thin(0x1111111111111111, 0x2222222222222222, 1000, 1, "http://a.example/")
    lines = [line for line in DOCS.read_text().splitlines() if line[:4].isalnum() and line[4:6] == "  "]
    assert b"".join(bytes.fromhex(line[6:53]) for line in lines) == data


def test_record_widths_are_those_of_the_documentation() -> None:
    assert tables.JOURNAL.itemsize == 128
    assert tables.PLAN.itemsize == 64
    assert bucket.HEADER_BYTES == 64
    assert frame.HEADER.size == 24


def test_bucket_with_any_bit_flipped_is_noticed() -> None:
    data = a_bucket()
    assert bucket.parse(data).body() == TEXT
    for at in range(len(data)):
        with pytest.raises(Corruption):
            bucket.parse(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


def test_damaged_body_still_leaves_the_url() -> None:
    data = a_bucket()
    torn = data[:-1] + bytes([data[-1] ^ 1])
    assert bucket.parse(torn, with_body=False).url == "http://a.example/"


def test_bucket_cut_anywhere_is_noticed() -> None:
    data = a_bucket()
    for length in range(len(data)):
        with pytest.raises(Corruption):
            bucket.parse(data[:length])


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        (Codec.NONE, TEXT),
        (Codec.LZ4, bucket.compress(TEXT, "lz4")[1]),
        (Codec.ZSTD, bucket.compress(TEXT, "zstd")[1]),
        (Codec.GZIP_SENT, gzip.compress(TEXT)),
        (Codec.GZIP_SENT, gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])),
        (Codec.BR_SENT, brotli.compress(TEXT)),
        (Codec.ZSTD_SENT, zstandard.compress(TEXT)),
        (Codec.DEFLATE_SENT, zlib.compress(TEXT)),
        (Codec.DEFLATE_SENT, zlib.compress(TEXT)[2:-4]),
    ],
    ids=["none", "lz4", "zstd", "gzip", "gzip members", "br", "zstd as sent", "deflate", "raw deflate"],
)
def test_body_decodes_whole_and_under_a_limit(codec: Codec, stored: bytes) -> None:
    assert bucket.decode(codec, stored, 1 << 20) == TEXT
    assert bucket.decode(codec, stored, 77) == TEXT[:77]


def test_body_that_compression_does_not_help_is_stored_plain() -> None:
    noise = random.Random(1).randbytes(10_000)
    assert bucket.compress(noise, "lz4") == (Codec.NONE, noise)


def test_zero_filled_tail_is_not_a_frame() -> None:
    data = frame.pack_frame(FrameKind.JOURNAL, 1, b"x" * 128) + bytes(4096)
    assert [f.end for f in frame.frames(data)] == [24 + 128]
    assert frame.read_frame(bytes(4096), 0) is None


def test_frame_with_any_bit_flipped_or_cut_is_not_a_frame() -> None:
    data = frame.pack_frame(FrameKind.CONTRIB, 3, b"payload of three")
    for at in range(len(data)):
        assert frame.read_frame(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0) is None
        assert frame.read_frame(data[:at], 0) is None


def test_check64_in_pieces_is_that_of_the_whole() -> None:
    assert check64(b"ab", b"", b"cdef") == check64(b"abcdef")
    assert check64(b"") != 0


@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_contrib_block_reads_back(count: int) -> None:
    block = a_block(count)
    again = contrib.decode(contrib.encode(block))
    for name in ("norm", "path", "site", "lastmod", "parent", "parent_weight", "flags", "section", "sites", "norms"):
        assert np.array_equal(getattr(again, name), getattr(block, name)), name
    assert (again.texts, again.names, again.filter_version) == (block.texts, block.names, 77)
    assert contrib.decode(contrib.encode(block), with_texts=False).texts == []


def test_contrib_block_cut_anywhere_is_corruption() -> None:
    data = contrib.encode(a_block())
    for length in range(len(data)):
        with pytest.raises(Corruption):
            contrib.decode(data[:length])


def test_contrib_record_of_a_site_without_a_name_is_corruption() -> None:
    block = a_block()
    torn = Block(**{**block.__dict__, "sites": block.sites[:1], "norms": block.norms[:1], "names": block.names[:1]})
    with pytest.raises(Corruption, match="site"):
        contrib.decode(contrib.encode(torn))


def test_contrib_decoder_gives_a_block_or_corruption_whatever_bytes_come() -> None:
    source, whole = random.Random(5), contrib.encode(a_block(50))
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(source.randint(1, 6)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            contrib.decode(bytes(data))
        except Corruption:
            continue


def test_checkpoint_reads_back_and_wrong_lengths_are_corruption() -> None:
    point = Checkpoint(3, 4, Mark(5, 6), Mark(7, 8), (Mark(9, 10), Mark(11, 12)))
    assert unpack_checkpoint(point.pack()) == point
    for length in range(len(point.pack())):
        with pytest.raises(Corruption):
            unpack_checkpoint(point.pack()[:length])


def test_queue_keys_are_shown_by_kind() -> None:
    assert tables.show_qkey(tables.QKEY_IPV4 << 56 | 0x7F010002) == "127.1.0.2"
    assert tables.show_qkey(tables.qkey_unresolved(0xABCDEF)) == "7fabcdef?"
    assert tables.show_qkey(tables.QKEY_IPV6 << 56 | 1) == "[v6:00000000000001]"
