"""WARC files as they come: every record that is whole is read, and every damage reported where it is."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import tracemalloc
from collections.abc import Callable

import pytest

from shepherd.importing import warc_file
from shepherd.importing.warc_file import MOST_VAIN, SPARE_VAIN, Damage, Record, Stream, records
from tests.support.warcs import HTML, PAGE, Warc

MOST = 1 << 20


class Pipe:
    """What cannot go back."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, 1000))

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, /) -> object:
        raise OSError("not seekable")


def three(packed: bool = True, version: str = "1.0") -> tuple[Warc, list[int]]:
    warc = Warc(packed, version)
    return warc, [warc.response(f"http://a.example/{n}", PAGE * 20 + b"%d" % n) for n in range(3)]


def read(data: bytes, stream: Callable[[bytes], Stream] = io.BytesIO, most: int = MOST) -> list[Record | Damage]:
    return list(records(stream(data), most))


def urls(found: list[Record | Damage]) -> list[str]:
    return [one.headers["warc-target-uri"][-1] for one in found if isinstance(one, Record)]


def damage(found: list[Record | Damage]) -> list[int]:
    return [one.offset for one in found if isinstance(one, Damage)]


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
@pytest.mark.parametrize("sizes", [[200_000] * 3, [70_000] * 5, [1_000] * 10 + [200_000] + [1_000] * 10, [65_536, 1, 131_072, 0]])
def test_large_record_does_not_lead_back_to_the_one_before(sizes: list[int], stream: Callable[[bytes], Stream]) -> None:
    """At the end of a gzip member zlib shows what follows it twice."""
    warc = Warc()
    offsets = [warc.response(f"http://a.example/{n}", b"x" * size) for n, size in enumerate(sizes)]
    found = list(itertools.islice(records(stream(warc.data), MOST), len(sizes) + 1))
    assert [(one.offset, one.length) for one in found if isinstance(one, Record)] == [
        (offset, len(b"HTTP/1.1 200 OK\r\nContent-Type: \r\n\r\n") + len(HTML) + size)
        for offset, size in zip(offsets, sizes, strict=True)
    ]
    assert damage(found) == []


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("packed", [True, False])
def test_every_record_of_a_sound_file_is_read(packed: bool, version: str, stream: Callable[[bytes], Stream]) -> None:
    warc, offsets = three(packed, version)
    found = read(warc.data, stream)
    assert [one.offset for one in found] == offsets
    one = found[2]
    assert isinstance(one, Record)
    assert (one.type, one.headers["warc-ip-address"], one.cut) == ("response", "192.0.2.7", False)
    assert one.block.startswith(b"HTTP/1.1 200 OK\r\n") and one.block.endswith(PAGE + b"2")
    assert len(one.block) == one.length


def test_every_record_of_a_file_that_was_packed_as_a_whole_is_read() -> None:
    warc, _ = three(packed=False)
    assert urls(read(gzip.compress(warc.data))) == ["0", "1", "2"]


def test_members_and_plain_records_in_one_file_are_read() -> None:
    found = read(three()[0].data + three(packed=False)[0].data + three()[0].data)
    assert (urls(found), damage(found)) == (["0", "1", "2"] * 3, [])


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
def test_broken_member_does_not_cost_its_neighbours(stream: Callable[[bytes], Stream]) -> None:
    warc, offsets = three()
    for at in range(offsets[1], offsets[2]):
        data = bytearray(warc.data)
        data[at] ^= 0x55
        found = read(bytes(data), stream)
        kept, told = urls(found), damage(found)
        assert kept in (["0", "2"], ["0", "1", "2"]), at  # a time or a name in the header of gzip may be anything
        assert told == ([offsets[1]] if len(kept) == 2 else []), at


def test_byte_that_changed_in_a_plain_block_is_noticed() -> None:
    warc, offsets = three(packed=False)
    data = bytearray(warc.data)
    data[warc.data.index(b"<title>", offsets[1])] ^= 1
    found = read(bytes(data))
    assert (urls(found), damage(found)) == (["0", "2"], [offsets[1]])


@pytest.mark.parametrize("length", ["10", "99999", "999999999999", "-1", "x", "", "9" * 40])
@pytest.mark.parametrize("packed", [True, False])
def test_wrong_length_does_not_cost_its_neighbours(length: str, packed: bool) -> None:
    before, after = three(packed)[0], three(packed)[0]
    plain = Warc(packed=False)
    plain.response("http://a.example/5", PAGE)
    wrong = plain.data.replace(b"Content-Length: %d" % _length(plain.data), f"Content-Length: {length}".encode(), 1)
    at = before.raw(wrong.replace(b"WARC-Block-Digest", b"X-Block-Digest"))
    found = read(before.data + after.data)
    assert urls(found) == ["0", "1", "2", "0", "1", "2"]
    assert damage(found) == [at]


def _length(data: bytes) -> int:
    return int(data[data.index(b"Content-Length: ") + 16 :].split(b"\r\n")[0])


@pytest.mark.parametrize("packed", [True, False])
def test_file_that_was_cut_off_keeps_its_whole_records(packed: bool) -> None:
    warc, offsets = three(packed)
    for end in range(offsets[2] + 1, len(warc.data) - 4, 97):
        found = read(warc.data[:end])
        assert (urls(found), damage(found)) == (["0", "1"], [offsets[2]]), end


JUNK = {
    "nothing": b"",
    "empty lines": b"\n" * 9000,
    "another format": b"<html>",
    "the begin of a record": b"WARC/1.0",
    "a header without lines": b"WARC/1.0\r\n\r\n",
    "another version": b"WARC/9.9\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n",
    "a header that is none": b"WARC/1.0\r\nno colon\r\n\r\n\r\n\r\n",
    "a long line": b"WARC/1.0\r\n" + b"A" * 300_000,
    "many lines": b"WARC/1.0\r\n" + b"A: b\r\n" * 60_000,
    "the begin of a member": b"\x1f\x8b\x08" + b"\0" * 50,
    "many of these": b"\x1f\x8b\x08" * 500,
    "an empty member": gzip.compress(b""),
    "a member without a record": gzip.compress(b"no record"),
    "a bomb": gzip.compress(b"\0" * 5_000_000),
    "noise": random.Random(7).randbytes(200_000),
}


@pytest.mark.parametrize("name", JUNK)
@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
def test_junk_does_not_hide_the_records_behind_it(name: str, stream: Callable[[bytes], Stream]) -> None:
    found = read(JUNK[name] + three()[0].data, stream)
    assert urls(found) == ["0", "1", "2"]
    assert len(damage(found)) == (name not in ("nothing", "empty lines", "an empty member"))


def test_long_block_is_cut_at_the_limit_in_memory() -> None:
    warc = Warc()
    warc.response("http://a.example/0", b"x" * 40_000_000)
    tracemalloc.start()
    (found,) = read(warc.data, most=100_000)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, Record) and found.cut
    assert (len(found.block), found.length > 40_000_000) == (100_000, True)
    assert peak < 4_000_000


def test_block_of_an_unneeded_record_is_not_read() -> None:
    warc = Warc()
    warc.other("request")
    warc.other("metadata")
    warc.other("warcinfo")
    found = read(warc.data)
    assert [(one.type, one.block) for one in found if isinstance(one, Record)] == [
        ("request", b""),
        ("metadata", b""),
        ("warcinfo", b""),
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_random_damage_neither_raises_nor_makes_records_up(packed: bool) -> None:
    rng = random.Random(5)
    whole = three(packed)[0].data
    blocks = {one.block for one in read(whole) if isinstance(one, Record)}
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
        found = {one.block for one in read(bytes(data)) if isinstance(one, Record)}
        assert not packed or found <= blocks


class Counting(io.BytesIO):
    """Counts the bytes that are read, also those that are read again."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


@pytest.mark.parametrize(
    "unit",
    [
        b"WARC/1.0\r\nContent-Length: 99999999999999\r\n\r\n",
        b"WARC/1.0",
        b"WARC/1.0\r\n",
        b"\x1f\x8b\x08",
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
    ],
)
def test_file_of_beginnings_is_given_up(unit: bytes) -> None:
    """Read to the end from each of them it would be 36 GB, and of a file of 1 GB a thousand times that."""
    stream = Counting(unit * ((1 << 21) // len(unit)))
    found = list(records(stream, MOST))
    *before, last = found
    assert isinstance(last, Damage) and last.is_last and "its rest is not read" in last.why
    assert all(isinstance(one, Damage) and not one.is_last for one in before)
    size = stream.getbuffer().nbytes
    assert stream.count <= (MOST_VAIN + 2) * size + SPARE_VAIN


@pytest.mark.parametrize("packed", [True, False])
def test_file_of_small_damaged_records_is_read_to_its_end(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read, found not to have its digest, and looked through for the next."""
    sound = Warc(packed=False)
    sound.response("http://a.example/", b"the body")
    damaged = sound.data.replace(b"the body", b"THE BODY")
    record = gzip.compress(damaged) if packed else damaged
    monkeypatch.setattr(warc_file, "SPARE_VAIN", 0)
    count = 300
    found = read(record * count)
    assert len(damage(found)) == count
    assert not any(one.is_last for one in found if isinstance(one, Damage))
