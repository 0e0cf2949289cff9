"""Which of several rows of one document readers get: one of each, the same whatever they weigh, by stream and one by one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.distinct_urls import take
from shepherd.cycle.rank import rules as rank
from shepherd.filters import parse_filter
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import INDEX, Array, Columns, Flag, Records, RowType
from shepherd.readers import choice as readers
from shepherd.readers.choice import Choice
from shepherd.readers.reading import Batch, Reading
from shepherd.serve import single
from shepherd.serve.answers import Refused
from shepherd.store.disk.names import StateName
from shepherd.store.state.directory import State
from tests.support.random_rows import ROOT_PATH, Row, columns, index_rows
from tests.support.segment_states import Sheep, fill, publish
from tests.worlds import NOW

ALL = Choice(robots=True, redirects=True)
CHOICES = st.builds(
    Choice,
    weight=st.sampled_from([0, 0, 2, 4]),
    sections=st.sampled_from([(), (1,)]),
    robots=st.booleans(),
    redirects=st.booleans(),
)
SPELT = ("http://", "http://www.", "https://", "https://www.")


def weighed(rows: list[Row], dice: random.Random) -> list[Row]:
    return [row | {"weight": dice.randrange(6)} for row in rows]


def kept_by_footprint(index: Columns, rows: Array) -> dict[tuple[int, int], int]:
    """Novelty a reader keeps: digests by site and path."""
    names = (index[name].take(rows).tolist() for name in ("site", "path", "digest"))
    return {(site, path): digest for site, path, digest in zip(*names, strict=True)}


@given(index_rows(max_size=40), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_weights_do_not_change_which_row_stands_for_a_document(
    rows: list[Row], dice: random.Random, robots: bool, redirects: bool
) -> None:
    choice = Choice(robots=robots, redirects=redirects)
    before, after = (readers.choose(columns(INDEX, some), choice) for some in (rows, weighed(rows, dice)))
    assert before.tolist() == after.tolist()


@given(index_rows(max_size=40))
def test_reader_gets_every_document_once(rows: list[Row]) -> None:
    index = columns(INDEX, rows)
    found = [rows[row] for row in readers.choose(index, ALL).tolist()]
    pages = [(row["norm"], row["path"]) for row in found if not row["flags"] & Flag.ROBOTS]
    gathered = [row for row in rows if row["type"] == RowType.GATHERED]
    assert len(pages) == len(set(pages))
    assert set(pages) == {(row["norm"], row["path"]) for row in gathered if not row["flags"] & Flag.ROBOTS}
    assert [row for row in found if row["flags"] & Flag.ROBOTS] == [row for row in gathered if row["flags"] & Flag.ROBOTS]


@given(index_rows(max_size=40), CHOICES)
def test_narrower_choice_has_the_same_row_of_a_document(rows: list[Row], choice: Choice) -> None:
    index = columns(INDEX, rows)
    assert set(readers.choose(index, choice).tolist()) <= set(readers.choose(index, ALL).tolist())


@given(index_rows(max_size=40))
def test_reader_gets_the_row_that_is_ranked(rows: list[Row]) -> None:
    index = columns(INDEX, rows)
    for row in readers.choose(index, Choice(redirects=True)).tolist():
        assert rank.standing(index)[row] == row


@given(index_rows(max_size=30), index_rows(max_size=30), CHOICES)
def test_reader_that_follows_changes_has_one_row_of_a_document(old: list[Row], new: list[Row], choice: Choice) -> None:
    """Whatever happens to the row that stood for a document: gone, an error, a redirect, or no more the first."""
    before, after = columns(INDEX, old), columns(INDEX, new)
    rows, chosen = readers.choose(before, choice), readers.choose(after, choice)
    found = readers.changes(take(before, rows), take(after, chosen))
    kept = kept_by_footprint(before, rows)
    for footprint in kept_by_footprint(before, rows.take(found.gone_rows)):
        del kept[footprint]
    told = kept_by_footprint(after, chosen.take(found.rows))
    assert all((footprint in kept) == (what == readers.Novelty.CHANGED) for footprint, what in zip(told, found.what, strict=True))
    assert kept | told == kept_by_footprint(after, chosen)


def test_light_page_stands_before_a_heavy_redirect() -> None:
    gathered = {"type": RowType.GATHERED, "norm": 10, "path": ROOT_PATH}
    rows = [
        dict.fromkeys(INDEX, 0) | gathered | {"site": 1, "flags": Flag.REDIRECT, "weight": 9},
        dict.fromkeys(INDEX, 0) | gathered | {"site": 2, "weight": 1},
        dict.fromkeys(INDEX, 0) | gathered | {"site": 3, "weight": 5},
    ]
    index = columns(INDEX, rows)
    assert [readers.choose(index, choice).tolist() for choice in (Choice(), ALL, Choice(weight=2))] == [[1], [1], []]
    only = columns(INDEX, rows[:1])
    assert [len(readers.choose(only, choice)) for choice in (Choice(), ALL)] == [0, 1]


# --- one by one --------------------------------------------------------------------------------------------------


def roots(dice: random.Random) -> list[Sheep]:
    """Root pages and robots files of equivalent sites, and pages that only one of them has."""
    found = []
    for n, spelt in ((n, spelt) for n in range(5) for spelt in SPELT if dice.random() < 0.7):
        for path, flags in (
            ("/", dice.choice([0, 0, Flag.REDIRECT])),
            ("/robots.txt", Flag.ROBOTS),
            (f"/{SPELT.index(spelt)}", 0),
        ):
            type_ = dice.choice([RowType.GATHERED] * 3 + [RowType.ERROR])
            body = f"{n} {spelt}".encode()
            found.append(Sheep(f"{spelt}s{n}.example{path}", type_, now=body, flags=flags, weight=dice.randrange(6)))
    return found


def footprint(row: Records) -> str:
    return f"{int(row['site']):016x}{int(row['path']):016x}"


def document(one: Sheep) -> tuple[int, ...]:
    """Novelty its rows have in common: robots files are of one site each."""
    norm, path, site = one.key
    return (norm, path, site) if one.flags & Flag.ROBOTS else (norm, path)


def stream(state: State, flock: list[Sheep]) -> dict[tuple[int, ...], str]:
    """The footprint that each document has in the stream of everything."""
    known = {"{2:016x}{1:016x}".format(*one.key): document(one) for one in flock}
    rows = [footprint(row) for batch in Reading(state, ALL).batches() for row in batch.rows]
    found = {known[row]: row for row in rows}
    assert len(found) == len(rows)
    return found


def answered(state: State, ask: Callable[[State, str], Batch], given: str) -> str | None:
    try:
        return footprint(ask(state, given).rows[0])
    except Refused:
        return None


def by_url(state: State, url: str) -> Batch:
    return single.by_url(state, parse_filter(""), url)


def test_single_document_is_the_one_of_the_stream(tmp_path: Path) -> None:
    dice = random.Random(7)
    flock = roots(dice)
    other_weights = [dataclasses.replace(one, weight=dice.randrange(6)) for one in flock]
    database = fill(tmp_path, flock)
    with database.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(3, CLOSED), NOW)
        publish(builder, other_weights, 1500)
        writer.publish(builder, {"phase": "test"})
    streams = [stream(database.closed(number), flock) for number in (2, 3)]
    assert streams[0] == streams[1]
    state = database.closed(3)
    for one in flock:
        expected = streams[1].get(document(one))
        assert answered(state, by_url, one.url) == expected, one.url
        assert answered(state, single.by_footprint, "{2:016x}{1:016x}".format(*one.key)) == expected, one.url
    assert len(set(map(document, flock))) > len(streams[1]) > 20  # some are in no stream
    assert len(flock) - len(set(map(document, flock))) > 5  # and some are there twice
