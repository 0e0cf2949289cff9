"""Cleanup against a plain telling of what it may do, on small random databases: documents, rows, bytes, and its own end."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.arrays.rows import THIN_BYTES
from shepherd.config import Cleanup
from shepherd.cycle.cleanup import rules as cleanup
from shepherd.cycle.cleanup import shakedown
from shepherd.cycle.cleanup.shakedown import Fill
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import INDEX, NO_OID, SACRED, Flag, Reason, RowType
from shepherd.store.state.directory import State
from tests.support import sampling, segment_states
from tests.support.segment_states import NOTHING, THIN, TOMBSTONE, Sheep
from tests.support.toy_farm import contents
from tests.worlds import NOW

ASLEEP = (RowType.SLEEPING, Reason.BELOW_BAR)
KINDS = (
    (RowType.GATHERED, Reason.GATHERED, bytes),
    (RowType.GATHERED, Reason.GATHERED, bytes),
    (*ASLEEP, bytes),
    (*ASLEEP, THIN),
    (RowType.UNGATHERED, Reason.LINK, THIN),
    (RowType.ERROR, Reason.SERVER_ERROR, bytes),
    (RowType.FORGOTTEN, Reason.BELOW_SLEEP, bytes),
    (RowType.FORGOTTEN, Reason.BELOW_SLEEP, NOTHING),
    (RowType.FORGOTTEN, Reason.DELETED, TOMBSTONE),
    (RowType.FORGOTTEN, Reason.DELETED, bytes),
    (RowType.FORGOTTEN, Reason.PURGED, TOMBSTONE),
)
BODIES = st.binary(min_size=1, max_size=12).flatmap(lambda text: st.integers(1, 40).map(lambda times: text * times))
RULE = "reject ext zip\n"


@st.composite
def flocks(draw: st.DrawFn) -> list[Sheep]:
    flock = []
    for number in range(draw(st.integers(1, 9))):
        type_, reason, what = draw(st.sampled_from(KINDS))
        url = f"http://{draw(st.sampled_from('ab'))}.example/{number}{draw(st.sampled_from(['', '', '.zip']))}"
        now = draw(BODIES) if what is bytes else str(what)
        before = tuple(draw(st.lists(BODIES, max_size=3)))
        flags = draw(st.sampled_from([0, 0, int(Flag.INITIAL), int(Flag.PINNED), int(Flag.NOINDEX)]))
        flock.append(Sheep(url, type_, reason, now, before, flags, draw(st.integers(0, 3))))
    return flock


def expected(one: Sheep, pressed: bool, older: bool) -> tuple[int, int, object]:
    """Type, reason, and its body or what stands in the place of one: what a cleanup must make of a row."""
    if one.type == RowType.FORGOTTEN:
        if one.reason == Reason.DELETED and not older:
            return one.type, Reason.NONE, NOTHING
        return one.type, one.reason, TOMBSTONE if one.now == TOMBSTONE else NOTHING
    if one.url.endswith(".zip"):
        return RowType.FORGOTTEN, Reason.FILTER, NOTHING
    if pressed:
        return RowType.SLEEPING, Reason.SPACE, THIN
    return one.type, one.reason, THIN if one.type == RowType.SLEEPING else one.now


def actual(state: State, one: Sheep) -> tuple[int, int, object]:
    row = segment_states.rows(state)[one.key]
    if row["oid"] == NO_OID:
        assert row["size"] == row["digest"] == row["gathered"] == 0 or one.now == NOTHING
        return row["type"], row["reason"], NOTHING
    stored = state.objects.get(row["oid"])
    assert (stored.url, stored.header.length) == (one.url, row["size"])
    if stored.header.flags & BucketFlag.TOMBSTONE:
        return row["type"], row["reason"], TOMBSTONE
    if stored.header.flags & BucketFlag.THIN:
        assert row["digest"] == row["gathered"] == 0
        return row["type"], row["reason"], THIN
    return row["type"], row["reason"], stored.body()


@settings(max_examples=sampling.examples(25), deadline=None)
@given(
    flock=flocks(),
    made_of=st.sampled_from([300, 900, 5000]),
    segment_bytes=st.sampled_from([400, 1500, 20_000]),
    sparse=st.sampled_from([0, 50, 100]),
    small=st.sampled_from([0, 25, 50]),
    over=st.sampled_from([None, None, 30, 60, 90]),
    batch_bytes=st.sampled_from([0, 3000]),
    step=st.integers(1, 5),
)
def test_cleanup_agrees_with_its_model_row_by_row(
    flock: list[Sheep],
    made_of: int,
    segment_bytes: int,
    sparse: int,
    small: int,
    over: int | None,
    batch_bytes: int,
    step: int,
) -> None:
    home = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        db = segment_states.fill(home, flock, made_of, rule=RULE)
        before = db.closed()
        documents = segment_states.documents(before)
        needed = sum(used for _length, used in segment_states.waste(before).values())
        limit = needed * over // 100 if over else 0
        keys = {"sparse": sparse, "small": small, "size_bytes": limit, "batch_bytes": batch_bytes}
        config = segment_states.config(home / "cf", segment_bytes, step, **keys)
        state = segment_states.clean(db, config) or before
        pressed = {one.url for one in flock if segment_states.rows(state)[one.key]["reason"] == Reason.SPACE}
        for one in flock:
            assert actual(state, one) == expected(one, one.url in pressed, older_left(state, one)), one
        check_room(state, flock, pressed, limit)
        check_segments(state, config.cleanup, segment_bytes, batch_bytes)
        assert segment_states.faults(db) == []
        purged = [one.url.encode() for one in flock if one.reason == Reason.PURGED]
        for url in purged:  # only its tombstone
            assert sum(path.read_bytes().count(url) for path in (state.path / "objects").iterdir()) == 1
        if not pressed:
            kept = {url: told for url, told in documents.items() if not url.endswith(".zip")}
            assert segment_states.documents(state) == kept
        left = contents(db.states_path)
        assert segment_states.clean(db, config, everything=True) is None
        assert contents(db.states_path) == left
    finally:
        shutil.rmtree(home)


def older_left(state: State, one: Sheep) -> bool:
    """Whether a bucket of a document is there that is no tombstone."""
    _norm, path, site = one.key
    heads = (head for number in state.segments() for _oid, head in state.objects.scan(number))
    return any((head.site, head.path) == (site, path) and not head.flags & BucketFlag.TOMBSTONE for head in heads)


def check_room(state: State, flock: list[Sheep], pressed: set[str], limit: int) -> None:
    """Never a better document for a worse, never a sacred one, and within the limit if that could be."""
    if not limit:
        assert not pressed
        return
    could = [one for one in flock if isinstance(one.now, bytes) and one.type == RowType.GATHERED and not one.flags & SACRED]
    could = [one for one in could if not one.url.endswith(".zip")]
    assert pressed <= {one.url for one in could}
    stay = [one.weight for one in could if one.url not in pressed]
    assert not pressed or not stay or min(stay) >= max(one.weight for one in could if one.url in pressed)
    if stay:
        assert sum(used for _length, used in segment_states.waste(state).values()) <= limit


def check_segments(state: State, wanted: Cleanup, segment_bytes: int, batch_bytes: int) -> None:
    """No segment is left that is empty or sparse, nor two that are small; those too large for a batch apart."""
    waste = segment_states.waste(state)
    assert all(used > 0 for _length, used in waste.values())
    assert all(used * 100 >= length * wanted.sparse for length, used in waste.values())
    little = sorted(used for length, used in waste.values() if length * 100 < segment_bytes * wanted.small)
    assert len(little) < 2 or (batch_bytes and little[0] + little[1] > batch_bytes)


# --- the functions by themselves --------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2000)


@given(
    fills=st.lists(st.tuples(NUMBERS, st.integers(0, 5), st.integers(0, 100)), max_size=12),
    sparse=st.integers(0, 100),
    small=st.integers(0, 50),
    size_bytes=st.sampled_from([0, 500, 3000]),
    room=st.sampled_from([0, 100, 1000, 10**9]),
    rows=st.integers(1, 12),
)
def test_a_batch_has_room_for_all_that_it_takes(
    fills: list[tuple[int, int, int]], sparse: int, small: int, size_bytes: int, room: int, rows: int
) -> None:
    length = np.array([one[0] + 1 for one in fills], np.int64)
    count = np.array([one[1] for one in fills], np.int64)
    used = np.where(count > 0, np.maximum(length * np.array([one[2] for one in fills], np.int64) // 100, 1), 0)
    fill = Fill(np.arange(5, 5 + len(fills)), length, count, used)
    choice = shakedown.choose(fill, Cleanup(sparse=sparse, small=small, size_bytes=size_bytes), 1000)
    chosen = choice.places.tolist()
    assert len(set(chosen)) == len(chosen) == choice.empty + choice.sparse + choice.small
    assert {n for n in range(len(fills)) if count[n] == 0} <= set(chosen)
    assert {n for n in range(len(fills)) if count[n] and used[n] * 100 < length[n] * sparse} <= set(chosen)
    taken = shakedown.batch(fill, choice, room, rows).tolist()
    assert set(taken) <= set(chosen)
    assert sum(used[n] for n in taken) <= room
    assert sum(count[n] for n in taken) <= rows or len([n for n in taken if count[n]]) == 1
    assert {n for n in chosen if count[n] == 0} <= set(taken)


@given(
    weights=st.lists(st.tuples(st.integers(0, 4), st.integers(161, 900)), min_size=1, max_size=12),
    excess=st.integers(0, 6000),
    cut=st.integers(0, 12),
)
def test_bodies_that_make_room_are_the_least_and_no_more_than_needed(
    weights: list[tuple[int, int]], excess: int, cut: int
) -> None:
    columns = {name: np.zeros(len(weights), dtype) for name, dtype in INDEX.items()}
    columns["type"][:], columns["digest"][:], columns["gathered"][:] = RowType.GATHERED, 1, NOW
    columns["weight"][:], columns["size"][:] = [one[0] for one in weights], [one[1] for one in weights]
    look = cleanup.look(columns, cleanup.Wishes(), 1)
    bar = cleanup.bar_for(look.weights, excess)
    gone: list[int] = []
    for start, stop in ((0, min(cut, len(weights))), (min(cut, len(weights)), len(weights))):
        part = {name: column[start:stop] for name, column in columns.items()}
        go, bar = cleanup.squeezed(part, cleanup.Wishes(), bar)
        gone += (np.flatnonzero(go) + start).tolist()
    freed, least = 0, []
    for row in sorted(range(len(weights)), key=lambda row: (weights[row][0], row)):
        if freed >= excess:
            break
        least.append(row)
        freed += weights[row][1] - THIN_BYTES
    assert gone == sorted(least)
