"""Whatever bytes come, a decoder gives a value or a ShepherdError, and takes no more memory than its input allows."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import Corruption, ShepherdError
from shepherd.formats import bucket, contrib, frame
from shepherd.formats.check import check64
from shepherd.formats.control import FileEntry, parse_control
from shepherd.formats.frame import FrameKind
from shepherd.store.state.columns import Column
from shepherd.store.state.lease import parse_lease
from tests.fuzz import targets
from tests.fuzz.targets import TARGETS, Target
from tests.support import sampling
from tests.support.contrib_blocks import a_block

Edit: TypeAlias = Callable[[bytes], bytes]

MOST_MEMORY = 32 << 20  # beyond some copies of the input
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def survives(target: Target, data: bytes) -> object:
    """The value, or the typed error; any other exception fails the test."""
    try:
        return target.decode(data)
    except ShepherdError as error:
        return error


def overwritten(at: float, data: bytes) -> Edit:
    return lambda whole: whole[: (start := int(at * len(whole)))] + data + whole[start + len(data) :]


def inserted(at: float, data: bytes) -> Edit:
    return lambda whole: whole[: (start := int(at * len(whole)))] + data + whole[start:]


def cut(at: float, length: int) -> Edit:
    return lambda whole: whole[: (start := int(at * len(whole)))] + whole[start + length :]


def repeated(at: float, length: int) -> Edit:
    return lambda whole: whole[: (start := int(at * len(whole))) + length] + whole[start:]


places = st.floats(0, 1, exclude_max=True)
numbers = st.sampled_from([0, 1, 2, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]).map(lambda n: struct.pack("<I", n))
pieces = st.one_of(
    st.binary(min_size=1, max_size=9), numbers, st.sampled_from([b"\n", b"\0", b'"', b"{", b"-1", b"999999999999"])
)
edits = st.one_of(
    st.builds(overwritten, places, pieces),
    st.builds(inserted, places, pieces),
    st.builds(cut, places, st.integers(1, 40)),
    st.builds(repeated, places, st.integers(1, 40)),
)


@each_target
def test_seeds_are_read_or_refused(target: Target) -> None:
    values = [survives(target, seed) for seed in target.seeds]
    assert not all(isinstance(value, ShepherdError) for value in values)


@each_target
@settings(max_examples=sampling.examples(100))
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_give_a_value_or_a_typed_error(target: Target, data: bytes) -> None:
    survives(target, data)


@each_target
@settings(max_examples=sampling.examples(200))
@given(number=st.integers(0, 99), changes=st.lists(edits, min_size=1, max_size=5))
def test_altered_bytes_give_a_value_or_a_typed_error(target: Target, number: int, changes: list[Edit]) -> None:
    data = target.seeds[number % len(target.seeds)]
    for change in changes:
        data = change(data)
    survives(target, data)


@each_target
def test_lengths_that_lie_cost_no_memory(target: Target) -> None:
    """Every aligned number at the beginning of some seeds becomes huge in turn."""
    tracemalloc.start()
    try:
        for seed in target.seeds[::3]:
            for at in range(0, min(len(seed) - 4, 72), 4):
                for lie in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x00"):
                    tracemalloc.reset_peak()
                    survives(target, seed[:at] + lie + seed[at + 4 :])
                    assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY + 20 * len(seed)
    finally:
        tracemalloc.stop()


# --- torn tails -------------------------------------------------------------------------------------------------


def torn(whole: bytes) -> list[bytes]:
    """Cut at every byte, and cut and filled with zeros or noise; none of them equal to the whole."""
    found = []
    for length in range(len(whole)):
        rest = len(whole) - length
        found += [
            whole[:length],
            whole[:length] + bytes(rest),
            whole[:length] + bytes(rest + 4096),
            whole[:length] + b"\xa5" * rest,
        ]
    return [data for data in found if data != whole and not data.startswith(whole)]


@pytest.mark.parametrize("seed", targets.log_seeds()[:2] + targets.log_seeds()[3:])
def test_torn_frame_is_no_frame(seed: bytes) -> None:
    assert all(frame.read_frame(data, 0) is None for data in torn(seed))


@pytest.mark.parametrize("seed", [targets.contrib_seeds()[1], targets.CHECKPOINTS[1]])
def test_torn_payload_is_no_frame_and_leaves_those_before_it(seed: bytes) -> None:
    first, second = (frame.pack_frame(FrameKind.CONTRIB, 1, payload) for payload in (b"first", seed))
    for data in torn(second):
        assert [one.end for one in frame.frames(first + data)] == [len(first)]


@pytest.mark.parametrize("seed", [seed for seed in targets.bucket_seeds() if len(seed) < 400])
def test_torn_bucket_is_no_bucket(seed: bytes) -> None:
    for data in torn(seed):
        with pytest.raises(Corruption):
            bucket.parse(data)


def test_torn_control_is_no_control() -> None:
    for data in torn(targets.control_seeds()[0]):
        with pytest.raises(ShepherdError):
            parse_control(data, "control")


def test_torn_lease_is_no_lease() -> None:
    assert parse_lease(targets.ITEM, targets.LEASE) is not None
    ends = (targets.LEASE[:-1],)  # without its line end it is still whole
    assert all(parse_lease(targets.ITEM, data) is None for data in torn(targets.LEASE) if data not in ends)


def test_torn_request_asks_for_nothing() -> None:
    for data in torn(targets.REQUEST):
        found = targets.read_request_file(data)
        assert data == targets.REQUEST[:-1] or not found.requests


def test_torn_column_or_block_table_is_no_column(tmp_path: Path) -> None:
    values = np.arange(1, 40, dtype="<u2")
    table = targets.block_table(values.tobytes())
    entry = FileEntry(len(values) * 2, check64(table))
    for column, checks in [(data, table) for data in torn(values.tobytes())] + [(values.tobytes(), data) for data in torn(table)]:
        (tmp_path / "column").write_bytes(column)
        (tmp_path / "column.check").write_bytes(checks)
        with pytest.raises(Corruption):
            Column(tmp_path / "column", "<u2", entry)[0:1]


# --- lies that a single number cannot tell ----------------------------------------------------------------------


def test_contrib_texts_that_claim_to_expand_beyond_reason_cost_no_memory() -> None:
    block = replace(a_block(4_000), texts=[b"/" * 65_000] * 4_000)
    honest = contrib.encode(block)
    n, m, k, squeezed, plain, stored, version = contrib.HEAD.unpack_from(honest)
    liar = contrib.HEAD.pack(n, m, k, squeezed, plain, 10, version) + honest[contrib.HEAD.size : len(honest) - stored + 10]
    tracemalloc.start()
    try:
        with pytest.raises(Corruption):
            contrib.decode(liar)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
