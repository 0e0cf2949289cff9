"""Novelty a reader gets of a state, against one that goes through dictionaries; in parts, by steps, and resumed anywhere."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import Corruption, UsageError
from shepherd.formats import stream
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import Array, Columns, Flag, RowType
from shepherd.readers import choice as readers
from shepherd.readers.choice import Choice, Novelty
from shepherd.readers.reading import Reading
from shepherd.store.disk import failpoints, fsio
from shepherd.store.disk.names import StateName
from shepherd.store.state import keys
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.urls import parse
from tests.support.segment_states import Sheep, fill, publish
from tests.worlds import NOW

Seen = dict[tuple[str, str], int]  # what by URL, with the name of what it is


def flock(seed: int) -> list[Sheep]:
    """Some dozens of documents on a few sites, roots with and without www., robots files, redirects and what is not gathered."""
    dice = random.Random(seed)
    urls = [
        f"{scheme}://{www}s{n}.example{path}"
        for n in range(6)
        for scheme, www in (("http", ""), ("https", ""), ("https", "www."))
        for path in ("/", "/robots.txt", f"/{scheme}{www}a", f"/{scheme}{www}b?x={n}")
    ]
    found = []
    for url in dice.sample(urls, 60):
        flags = Flag.ROBOTS if url.endswith("/robots.txt") else dice.choice([0, 0, 0, Flag.REDIRECT, Flag.NOINDEX])
        type_ = dice.choice([RowType.GATHERED] * 4 + [RowType.ERROR, RowType.SLEEPING, RowType.FORGOTTEN])
        body = bytes([97 + dice.randrange(3)]) * dice.randrange(1, 300)
        found.append(
            Sheep(url, type_, now=body, flags=flags, weight=dice.choice([0, 7, 7, 7, 500, 65535]), section=dice.randrange(3))
        )
    return found


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[Database, list[Sheep], list[Sheep]]:
    """One database with two states that have some documents in common."""
    old = flock(1)
    other = {one.url: one for one in flock(2)}
    new = [one if n % 3 else other.get(one.url, one) for n, one in enumerate(old[8:])]
    new += [one for url, one in sorted(other.items()) if url not in {o.url for o in old}]
    database = fill(tmp_path_factory.mktemp("reading"), old, segment_bytes=900)
    with database.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(3, CLOSED), NOW)
        publish(builder, new, 900)
        writer.publish(builder, {"phase": "test"})
    return database, old, new


def naive(sheep: list[Sheep], choice: Choice) -> dict[str, Sheep]:
    standing: dict[object, Sheep] = {}
    for one in sorted(
        (one for one in sheep if one.type == RowType.GATHERED), key=lambda one: (one.flags & Flag.REDIRECT, one.key)
    ):
        norm, path, site = one.key
        standing.setdefault((norm, path) if parse(one.url).path == "/" else (norm, path, site), one)
    least, beyond = choice.norms()
    found = [
        one
        for one in standing.values()
        if (choice.robots or not one.flags & Flag.ROBOTS) and (choice.redirects or not one.flags & Flag.REDIRECT)
        if least <= one.key[0] < beyond and one.weight >= choice.weight
        if not choice.sections or one.section in choice.sections
    ]
    best = sorted(found, key=lambda one: (-one.weight, one.key))[: choice.best]
    return {one.url: one for one in best}


def read(
    state: State, choice: Choice, since: State | None = None, after: int = 0, step: int = 500_000
) -> list[tuple[int, str, bytes]]:
    """Novelty, URL and body of everything, in order; of what is gone the footprint. Through the bytes of a stream."""
    reading = Reading(state, choice, since, step)
    data, items, size = io.BytesIO(), 0, 0
    for batch in reading.batches(after):
        data.write(stream.rows_frame(batch.rows))
        for length, oid in zip(batch.rows["length"].tolist(), batch.oid.tolist(), strict=True):
            data.write(state.objects._read(oid, length) if length else b"")
        items, size = items + len(batch.rows), size + int(batch.rows["length"].sum())
    data.write(stream.end_frame(items, size))
    if not after:
        assert (items, size) == (reading.items, reading.bucket_bytes)
    data.seek(0)
    found = []
    for item in stream.items(data.read):
        what = int(item.row["what"])
        if what == Novelty.REMOVED:
            found.append((what, f"{int(item.row['site']):016x}{int(item.row['path']):016x}", b""))
        else:
            bucket = item.bucket()
            assert item.row["weight"] in (0, 7, 500, 65535) and item.row["status"] == 200
            found.append((what, bucket.url, bucket.body()))
    return found


CHOICES = st.builds(
    Choice,
    best=st.sampled_from([None, None, 0, 1, 5, 12, 1000]),
    weight=st.sampled_from([0, 0, 7, 8, 65535]),
    sections=st.sampled_from([(), (), (1,), (0, 2)]),
    robots=st.booleans(),
    redirects=st.booleans(),
)


@given(choice=CHOICES, cut=st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3), (6, 7)]), step=st.sampled_from([1, 4, 1000]))
def test_reader_gets_the_documents_that_it_has_chosen(
    states: tuple[Database, list[Sheep], list[Sheep]], choice: Choice, cut: tuple[int, int], step: int
) -> None:
    database, _old, new = states
    choice = replace(choice, part=cut[0], parts=cut[1])
    expected = naive(new, choice)
    found = read(database.closed(3), choice, step=step)
    assert {(what, url, body) for what, url, body in found} == {(Novelty.PRESENT, url, one.now) for url, one in expected.items()}
    assert len(found) == len(expected)


@given(choice=CHOICES, step=st.sampled_from([1, 4, 1000]))
def test_what_is_new_since_a_state_is_the_difference_of_two_choices(
    states: tuple[Database, list[Sheep], list[Sheep]], choice: Choice, step: int
) -> None:
    database, old, new = states
    before, after = naive(old, choice), naive(new, choice)
    found = read(database.closed(3), choice, database.closed(2), step=step)
    told = {url: what for what, url, _body in found if what != Novelty.REMOVED}
    assert told == {
        url: Novelty.CHANGED if url in before else Novelty.ADDED
        for url, one in after.items()
        if url not in before or before[url].now != one.now
    }
    gone = {"{2:016x}{1:016x}".format(*one.key) for url, one in before.items() if url not in after}
    assert {url for what, url, _body in found if what == Novelty.REMOVED} == gone
    assert len(found) == len(told) + len(gone)


def test_resumed_transfer_neither_misses_nor_repeats_a_document(states: tuple[Database, list[Sheep], list[Sheep]]) -> None:
    database, _old, _new = states
    for since in (None, database.closed(2)):
        whole = read(database.closed(3), Choice(robots=True), since)
        assert len(whole) > 10
        for after in range(len(whole) + 2):
            assert read(database.closed(3), Choice(robots=True), since, after) == whole[after:]


def test_parts_are_the_whole(states: tuple[Database, list[Sheep], list[Sheep]]) -> None:
    state = states[0].closed(3)
    whole = read(state, Choice())
    parts = [read(state, Choice(part=n, parts=3)) for n in range(3)]
    assert sorted(one for part in parts for one in part) == sorted(whole) and all(parts)


def test_full_disk_costs_a_reader_only_its_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = fill(tmp_path, flock(1))
    before = fsio.use(failpoints.FailingOps(failpoints.parse_failpoint("link:=enospc")))
    try:
        keys.keep(database, database.closed(2), 5)
    finally:
        fsio.use(before)
    assert "are not kept" in caplog.text and not list((database.log_path / "keys").iterdir())
    keys.keep(database, database.closed(2), 5)
    assert [name.number for name in keys.SHELF.numbers(database.log_path)] == [2]


def test_keys_of_a_deleted_state_give_the_same_changes_until_they_are_pruned(tmp_path: Path) -> None:
    database = fill(tmp_path, flock(1))
    with database.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(3, CLOSED), NOW)
        publish(builder, flock(2), 900)
        writer.publish(builder, {"phase": "test"})
        expected = read(database.closed(3), Choice(), database.closed(2))
        keys.keep(database, database.closed(2), 5)
        keys.keep(database, database.closed(2), 5)
        writer.prune(1, NOW)
    assert [name.number for name in database.states()] == [3]
    assert expected and read(database.closed(3), Choice(), keys.state_or_keys(database, 2)) == expected
    keys.keep(database, database.closed(3), 1)
    with pytest.raises(UsageError, match="state 2 is not known any more"):
        keys.state_or_keys(database, 2)


def test_redirect_that_was_gathered_again_is_a_change() -> None:
    """A redirect has no digest, only its time is known. Novelty was gathered again and is the same is nothing new."""

    def rows(*gathered: int) -> Columns:
        keys_: dict[str, Array] = {name: np.array([1, 2, 3], np.uint64) for name in (*readers.KEYS, "digest")}
        flags = np.array([0, Flag.REDIRECT, Flag.REDIRECT], np.uint16)
        return keys_ | {"flags": flags, "gathered": np.array(gathered, np.uint32)}

    found = readers.changes(rows(5, 5, 5), rows(6, 6, 5))
    assert (found.rows.tolist(), found.what.tolist(), found.gone_rows.tolist()) == ([1], [Novelty.CHANGED], [])


def test_stream_that_is_cut_or_altered_is_corruption(states: tuple[Database, list[Sheep], list[Sheep]]) -> None:
    state = states[0].closed(3)
    data = io.BytesIO()
    for batch in Reading(state, Choice(best=3)).batches():
        data.write(stream.rows_frame(batch.rows))
        for length, oid in zip(batch.rows["length"].tolist(), batch.oid.tolist(), strict=True):
            data.write(state.objects._read(oid, length))
    data.write(stream.end_frame(3, Reading(state, Choice(best=3)).bucket_bytes))
    whole = data.getvalue()
    assert len([item.bucket() for item in stream.items(io.BytesIO(whole).read)]) == 3
    for end in range(len(whole)):
        with pytest.raises(Corruption):
            list(stream.items(io.BytesIO(whole[:end]).read))
    for at in range(len(whole)):
        altered = bytearray(whole)
        altered[at] ^= 1
        with pytest.raises(Corruption):
            for item in stream.items(io.BytesIO(altered).read):
                item.bucket()
