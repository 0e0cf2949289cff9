"""What makes many buckets at once against what makes one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays import site_counts as sitecounts
from shepherd.errors import Corruption
from shepherd.formats import bucket
from shepherd.formats.tables import RowType
from shepherd.formats.thin import pack_thin
from shepherd.store.disk import names
from shepherd.store.state import objects
from shepherd.store.state.dry_run import _NoSegments
from shepherd.store.state.objects import SegmentWriter

U64S = st.integers(0, (1 << 64) - 1)
ASCII = st.text(st.characters(codec="ascii"), max_size=40).map(str.encode)
ROWS = st.lists(st.tuples(U64S, U64S, ASCII, ASCII), max_size=8)


@given(ROWS, st.integers(0, 1 << 40), st.integers(1, 1 << 31))
def test_thin_buckets_are_those_of_the_one_by_one_packer(
    rows: list[tuple[int, int, bytes, bytes]], time_ms: int, state: int
) -> None:
    site, path = (np.array([row[n] for row in rows], np.uint64) for n in (0, 1))
    made = pack_thin(site, path, time_ms, state, [row[2] for row in rows], [row[3] for row in rows])
    assert made == [bucket.thin(s, p, time_ms, state, (name + text).decode()) for s, p, name, text in rows]


@given(st.lists(st.lists(st.binary(min_size=1, max_size=9), max_size=9), max_size=4), st.integers(1, 30))
def test_appending_many_buckets_places_them_as_one_by_one(batches: list[list[bytes]], limit: int) -> None:
    with tempfile.TemporaryDirectory() as where:
        places = []
        for name in ("one", "many"):
            (Path(where) / name).mkdir()
            writer = SegmentWriter(Path(where) / name, names.segment, 3, limit)
            oids: list[int] = []
            for batch in batches:
                if name == "one":
                    oids += [writer.append(data) for data in batch]
                else:
                    lengths = np.array([len(data) for data in batch], np.int64)
                    oids += writer.append_all(b"".join(batch), lengths).tolist()
            writer.flush()
            writer.close()
            places.append((oids, writer.next, {p.name: p.read_bytes() for p in (Path(where) / name).iterdir()}))
        assert places[0] == places[1]
        told = _NoSegments(3, limit)
        rehearsed: list[int] = []
        for batch in batches:
            rehearsed += told.append_all(b"".join(batch), np.array([len(data) for data in batch], np.int64)).tolist()
        assert (rehearsed, told.next) == places[0][:2]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.data())
def test_verifying_a_segment_notices_every_altered_byte(sizes: list[int], data: st.DataObject) -> None:
    whole = b"".join(
        bucket.pack(site=1, path=n, time_ms=3, state=1, attributes=[("U", b"http://a.example/")], body=b"x" * size)
        for n, size in enumerate(sizes)
    )
    window = data.draw(st.integers(bucket.HEADER_BYTES, 2 * len(whole)))
    at = data.draw(st.integers(0, len(whole) - 1))
    altered = whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    cut = whole[:at]
    with tempfile.TemporaryDirectory() as where, mock.patch.object(objects, "SCAN_BYTES", window):
        for number, content in enumerate((whole, altered, cut), 1):
            (Path(where) / names.segment(number)).write_bytes(content)
        found = objects.Objects(Path(where))
        found.verify(1, len(whole))
        with pytest.raises(Corruption):
            found.verify(2, len(whole))
        with pytest.raises(Corruption):
            found.verify(3, len(whole))
        found.close()


SITES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(RowType))), max_size=30)


@given(SITES)
def test_rows_are_counted_by_site(rows: list[tuple[int, RowType]]) -> None:
    site = np.array([one for one, _type in rows], np.uint64)
    counted = np.array([type_ != RowType.SLEEPING for _one, type_ in rows], np.bool_)
    marked = np.array([type_ == RowType.GATHERED for _one, type_ in rows], np.bool_)
    found, count, marks = sitecounts.count_rows(site, counted, marked)
    kept = [one for one, type_ in rows if type_ != RowType.SLEEPING]
    gathered = [one for one, type_ in rows if type_ == RowType.GATHERED]
    assert dict(zip(found.tolist(), count.tolist(), strict=True)) == {one: kept.count(one) for one in kept}
    assert dict(zip(found.tolist(), marks.tolist(), strict=True)) == {one: gathered.count(one) for one in kept}
    assert found.tolist() == sorted(found.tolist())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.sets(st.integers(0, 5)))
def test_counts_change_by_what_comes_and_goes(moves: list[tuple[int, int]], known: set[int]) -> None:
    before, after = (np.array([move[n] for move in moves], np.uint64) for n in (0, 1))
    gained = sitecounts.changed(np.array(sorted(known), np.uint64), before, after)
    expected = [sum(to == site for _, to in moves) - sum(of == site for of, _ in moves) for site in sorted(known)]
    assert gained.tolist() == expected
