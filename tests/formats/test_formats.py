"""Bytes to values and back; whatever is cut, zeroed or altered is noticed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib, frame, tables
from shepherd.formats.check import check64
from shepherd.formats.checkpoint import Checkpoint, Mark, unpack_checkpoint
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind
from tests.support.contrib_blocks import a_block


def test_record_widths_are_those_of_the_documentation() -> None:
    assert tables.JOURNAL.itemsize == 128
    assert tables.PLAN.itemsize == 64
    assert bucket.HEADER_BYTES == 64
    assert frame.HEADER.size == 24


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


def test_contrib_texts_stored_plain_but_of_another_length_are_corruption() -> None:
    data = contrib.encode(a_block(1))
    n, m, k, squeezed, plain, stored, version = contrib.HEAD.unpack_from(data)
    assert not squeezed
    for more in (1, -1):
        head = contrib.HEAD.pack(n, m, k, squeezed, plain, stored + more, version)
        body = data[contrib.HEAD.size :]
        with pytest.raises(Corruption):
            contrib.decode(head + (body + b"x" if more > 0 else body[:-1]))
    with pytest.raises(Corruption):
        contrib.decode(contrib.HEAD.pack(n, m, k, 2, plain, stored, version) + data[contrib.HEAD.size :])


def test_contrib_text_or_name_beyond_ascii_is_corruption() -> None:
    for torn in (replace(a_block(1), texts=["/é".encode()]), replace(a_block(), names=["http://é".encode(), b"http://b"])):
        with pytest.raises(Corruption, match="ASCII"):
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
