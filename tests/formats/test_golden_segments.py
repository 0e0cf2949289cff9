"""Segments as older programs left them, read byte for byte by what reads buckets today."""

from __future__ import annotations

import numpy as np
import pytest

from shepherd.formats.bucket import Bucket, BucketFlag
from shepherd.formats.facts import facts_of, sound_bodies, walk_segment
from shepherd.formats.tables import U64, Array
from shepherd.store.state.objects import Objects
from tests.golden import segments
from tests.golden.segments import COMPRESSED, DOCUMENTS, HERE, PLAIN, Document

FILES: dict[str, tuple[Document, ...]] = dict.fromkeys(PLAIN, DOCUMENTS)
FILES |= {f"v3.3-{coder}": COMPRESSED for coder in segments.CODERS}
NUMBERS = list(FILES)


def objects() -> Objects:
    return Objects(HERE, lambda number: segments.path_of(NUMBERS[number]).name)


def facts(one: Bucket) -> tuple[object, ...]:
    header = one.header
    return one.attributes, header.flags, header.site, header.path, header.time_ms, header.state, header.plain_bytes


@pytest.mark.parametrize("name", PLAIN)
def test_golden_segment_is_what_its_description_gives(name: str) -> None:
    assert segments.path_of(name).read_bytes() == b"".join(map(PLAIN[name], DOCUMENTS))


@pytest.mark.parametrize("name", FILES)
def test_golden_segment_reads_the_same_through_every_reader(name: str) -> None:
    store, expected = objects(), FILES[name]
    scanned = list(store.scan(NUMBERS.index(name)))
    assert len(scanned) == len(expected)
    for (oid, header), one in zip(scanned, expected, strict=True):
        whole, head = store.get(oid), store.head(oid)
        assert whole.header == head.header == header
        assert facts(whole) == facts(head)
        assert facts(whole) == (one.all, one.flags, one.site, one.path, one.time_ms, one.state, len(one.body))
        assert whole.url == one.url.decode()
        assert whole.body() == one.body
        assert whole.body(3) == one.body[:3]
        assert store.get(oid, header.length) == whole
    store.close()


def test_golden_segments_contain_every_kind_of_bucket() -> None:
    store = objects()
    headers = [header for number in range(len(NUMBERS)) for _, header in store.scan(number)]
    assert {header.type for header in headers} == {0x20, 0x30, 0x33, 0x34}
    assert {int(header.codec) for header in headers} == set(range(7))
    kinds = {header.flags & (BucketFlag.THIN | BucketFlag.TOMBSTONE) for header in headers}
    assert kinds == {0, BucketFlag.THIN, BucketFlag.THIN | BucketFlag.TOMBSTONE}
    store.close()


def rebuilt(name: str) -> tuple[Array, list[bytes]]:
    """What an index would be made from again, but for places and sizes, and the URLs that the sites are known by."""
    data = segments.path_of(name).read_bytes()
    known: list[bytes] = []

    def norm_of(sites: U64, urls: list[bytes]) -> U64:
        known.extend(urls)
        return sites + np.uint64(1)

    (walk,) = walk_segment(data, len(data))
    assert walk.damage == ()
    assert sound_bodies(data, walk.offsets).all()
    found = facts_of(data, 1, walk.offsets, norm_of)
    return found[[field for field in found.dtype.names or () if field not in ("oid", "size")]], known


@pytest.mark.parametrize("name", ["v2", "v3.0"])
def test_index_made_from_old_buckets_is_that_of_new_ones(name: str) -> None:
    old, new = rebuilt(name), rebuilt("v3.3")
    assert old[0].tolist() == new[0].tolist()
    assert old[1] == new[1] == [DOCUMENTS[0].url]
    assert new[0]["status"].tolist()[:2] == [200, 0]
    assert new[0]["download_ms"].tolist()[:2] == [4_294_967_295, 0]
