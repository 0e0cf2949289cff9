"""Facts of documents, read from the buckets of a segment as arrays: all that an index row can be made from again.

Read `bucket` first. Headers and attributes are verified one by one; their fields are then read from all of them side by side.
A place where no sound header stands is damage: the walk continues at the next sound one.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import mmh3
import numpy as np

from shepherd.formats import bucket, layout
from shepherd.formats.attributes import TABLE, pack_records
from shepherd.formats.check import SEED, check64
from shepherd.formats.tables import I64, REASON_TEXT, U64, Array, Bools, Reason, bucket_oid
from shepherd.urls import PAST_SCHEME

FACT: Final = np.dtype(
    [
        ("norm", "<u8"),
        ("path", "<u8"),
        ("site", "<u8"),
        ("oid", "<u8"),
        ("digest", "<u8"),
        ("time_ms", "<i8"),
        ("state", "<u4"),
        ("size", "<u4"),
        ("download_ms", "<u4"),
        ("status", "<u2"),
        ("flags", "<u2"),
    ]
)
REDIRECT: Final = 1 << 8  # of flags, beyond those of a bucket
BODY_DAMAGED: Final = 1 << 9  # its body was damaged
PURGED: Final = 1 << 10  # a tombstone that says so
PART: Final = 1 << 14  # buckets: their bytes are gone over once for each attribute, and should still be in the cache

_LENGTHS: Final = layout.struct_of(bucket.HEADER, ("attribute_bytes", "body_bytes"))
_LENGTHS_AT: Final = layout.offset_of(bucket.HEADER, "attribute_bytes")
_HEAD: Final = bucket.HEAD.size
_FIXED: Final = bucket.HEADER_BYTES
_PURGED: Final = REASON_TEXT[Reason.PURGED].encode()
_STATUS_AT: Final = 12  # "HTTP/1.1 200": the status stands within so many bytes


@dataclass(frozen=True)
class Walk:
    """Where sound buckets begin in a part of a segment, and where something else stands: offset and what is wrong there."""

    offsets: I64
    damage: tuple[tuple[int, str], ...]


def walk_segment(data: mmap.mmap | bytes, size: int) -> Iterator[Walk]:
    """Every bucket whose header and attributes check, some thousand at a time: a segment of thin ones has millions."""
    offsets: list[int] = []
    damage: list[tuple[int, str]] = []
    offset = 0
    digest, unpack = mmh3.mmh3_x64_128_digest, _LENGTHS.unpack_from
    while offset < size:
        if offset + _FIXED <= size and data[offset : offset + 4] == bucket.MAGIC:
            attributes, body = unpack(data, offset + _LENGTHS_AT)
            middle = offset + _FIXED + attributes
            whole = attributes <= bucket.MAX_ATTRIBUTES and middle + body <= size
            # One hash over both parts laid end to end is what check64 is; written out, because this is the loop that counts.
            if (
                whole
                and digest(data[offset : offset + _HEAD] + data[offset + _FIXED : middle], SEED)[:8]
                == data[offset + _HEAD : offset + _HEAD + 8]
            ):
                offsets.append(offset)
                offset = middle + body
                if len(offsets) == PART:
                    yield Walk(np.array(offsets, np.int64), tuple(damage))
                    offsets, damage = [], []
                continue
        if not damage or (offsets and damage[-1][0] < offsets[-1]):
            damage.append((offset, "no sound bucket begins here"))
        next_magic = data.find(bucket.MAGIC, offset + 1)
        offset = next_magic if next_magic >= 0 else size
    if offsets or damage:
        yield Walk(np.array(offsets, np.int64), tuple(damage))


def facts_of(data: mmap.mmap | bytes, segment: int, offsets: I64, norm_of: Callable[[U64, list[bytes]], U64]) -> Array:
    """One FACT for each bucket. `norm_of` is asked for the norms of distinct sites, each with a URL of one of its documents."""
    view = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    heads = _every_place(view, bucket.HEADER)[offsets]
    facts = np.zeros(len(offsets), FACT)
    for name in ("path", "site", "time_ms", "state"):
        facts[name] = heads[name]
    facts["oid"] = np.uint64(bucket_oid(segment, 0)) + offsets.astype(np.uint64)
    facts["size"] = _FIXED + heads["attribute_bytes"] + heads["body_bytes"]
    facts["flags"] = heads["flags"]
    start = offsets + _FIXED
    end = start + heads["attribute_bytes"]
    old = np.isin(heads["type"], bucket.TEXT_TYPES)
    text = _as_records(data, offsets[old])
    url_at = np.zeros((2, len(offsets)), np.int64)  # begin and length
    for rows, source, begin, stop in ((~old, view, start[~old], end[~old]), (old, *text)):
        attribute_at = find_attributes(source, begin, stop, b"UDSEm")
        facts["digest"][rows] = numbers_at(source, *attribute_at["D"], "<u8")
        facts["download_ms"][rows] = numbers_at(source, *attribute_at["m"], "<u4")
        facts["status"][rows] = _statuses(source, *attribute_at["S"])
        facts["flags"][rows] |= np.where(attribute_at["E"][1] > 0, np.uint16(REDIRECT), np.uint16(0))
        url_at[:, rows] = attribute_at["U"]
    for n in np.flatnonzero(heads["flags"] & bucket.BucketFlag.TOMBSTONE).tolist():  # few, and none of them old
        if bucket.parse(memoryview(data), int(offsets[n]), with_body=False).attributes.get("P") == _PURGED:
            facts["flags"][n] |= PURGED
    sites, first = np.unique(facts["site"], return_index=True)
    places = zip(old[first].tolist(), *url_at[:, first].tolist(), strict=True)
    urls = [bytes((text[0] if is_old else view)[a : a + n]) for is_old, a, n in places]
    facts["norm"] = norm_of(sites, urls)[np.searchsorted(sites, facts["site"])]
    return facts


def _as_records(data: mmap.mmap | bytes, offsets: I64) -> tuple[Array, I64, I64]:
    """The attributes of buckets that have them as text, as the records of today; begin and end of those of each."""
    tables = []
    for offset in offsets.tolist():
        attributes = bucket.parse(memoryview(data), offset, with_body=False).attributes
        tables.append(pack_records((letter, contents) for letter, contents in attributes.items() if letter in TABLE))
    ends = np.cumsum([0, *map(len, tables)], dtype=np.int64)
    return np.frombuffer(b"".join(tables), np.uint8), ends[:-1], ends[1:]


def sound_bodies(data: mmap.mmap | bytes, offsets: I64) -> Bools:
    """Which of these buckets have the body that was written."""
    sound = np.zeros(len(offsets), np.bool_)
    view = memoryview(data)
    for n, offset in enumerate(offsets.tolist()):
        header = bucket.parse_header(view, offset)
        end = offset + header.length
        sound[n] = check64(view[end - header.body_bytes : end]) == header.body_check
    return sound


def own_names(data: mmap.mmap | bytes, offsets: I64, half: Callable[[str], int]) -> Bools:
    """Which of these buckets have the footprint of the URL in them. `half` is the footprint of a site, and of a path."""
    view, halves = memoryview(data), dict[bytes, int]()
    own = np.zeros(len(offsets), np.bool_)
    for n, offset in enumerate(offsets.tolist()):
        head = bucket.parse(view, offset, with_body=False)
        url = head.attributes.get("U", b"")
        slash = url.find(b"/", PAST_SCHEME)
        name = url[: max(slash, 0)]
        if name not in halves:
            halves[name] = half(name.decode("ascii", "replace"))
        path = half(url[slash:].decode("ascii", "replace"))
        own[n] = slash > 0 and (halves[name], path) == (head.header.site, head.header.path)
    return own


def find_attributes(data: Array, start: I64, end: I64, letters: bytes) -> dict[str, tuple[I64, I64]]:
    """Where each bucket has these attributes: begin and length of the contents, length 0 without one. All are walked at once."""
    places = {chr(letter): (np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)) for letter in letters}
    length_at = _every_place(data, "<u4")
    rows = np.flatnonzero(start + 5 <= end)
    offsets, stop = start[rows], end[rows]
    while len(rows):
        length = length_at[offsets].astype(np.int64)
        offsets += 4
        letter_at = offsets + length
        if not (whole := letter_at < stop).all():  # most buckets have the same attributes: mostly there is nothing to leave out
            rows, offsets, stop, length, letter_at = (part[whole] for part in (rows, offsets, stop, length, letter_at))
        letter = data[letter_at]
        for name, (begins, lengths) in places.items():
            here = np.flatnonzero(letter == ord(name))
            if len(here):
                begins[rows[here]], lengths[rows[here]] = offsets[here], length[here]
        offsets = letter_at + 1
        if not (more := offsets + 5 <= stop).all():
            rows, offsets, stop = rows[more], offsets[more], stop[more]
    return places


def numbers_at(data: Array, offsets: I64, length: Array, dtype: str) -> Array:
    """The numbers at some places, aligned or not; 0 where there are not enough bytes."""
    numbers = np.zeros(len(offsets), dtype)
    there = np.flatnonzero(length >= numbers.itemsize)
    numbers[there] = _every_place(data, dtype)[offsets[there]]
    return numbers


def _every_place(data: Array, dtype: str | np.dtype[np.void]) -> Array:
    """A view of some bytes: what stands at each of them, read as this type. They overlap, and nothing is copied."""
    width = np.dtype(dtype).itemsize
    return np.ndarray(max(len(data) - width + 1, 0), dtype, data.data if len(data) else b"", strides=(1,))


def _statuses(data: Array, offsets: I64, length: I64) -> Array:
    """The three digits behind the first blank of a status line."""
    statuses = np.zeros(len(offsets), np.uint16)
    there = np.flatnonzero(length >= _STATUS_AT - 2)  # "HTTP/2 200" is the shortest
    text = data[np.minimum(offsets[there][:, None] + np.arange(_STATUS_AT), max(len(data) - 1, 0))]
    blank = np.argmax(text == ord(" "), axis=1)
    digits = text[np.arange(len(there))[:, None], np.minimum(blank[:, None] + (1, 2, 3), _STATUS_AT - 1)].astype(np.int64) - ord(
        "0"
    )
    number = digits @ np.array([100, 10, 1])
    fine = (digits >= 0).all(axis=1) & (digits <= 9).all(axis=1) & (blank > 0) & (blank + 3 < _STATUS_AT)
    statuses[there[fine]] = number[fine]
    return statuses
