"""Texts and spilled rows against lists."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.column_spill import LENGTH, ColumnSpill
from shepherd.formats.tables import Array
from shepherd.formats.texts import Texts

WORDS = st.lists(st.binary(max_size=9), max_size=20)


@given(WORDS, st.data())
def test_taken_and_joined_texts_agree_with_a_list(words: list[bytes], data: st.DataObject) -> None:
    texts = Texts.of(words)
    assert texts.tolist() == words
    rows = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=30)) if words else []
    assert texts.take(np.array(rows, np.int64)).tolist() == [words[row] for row in rows]
    low, high = (data.draw(st.integers(0, len(words))) for _ in range(2))
    side_by_side = [*range(low, high), *range(len(words))]
    assert texts.take(np.array(side_by_side, np.int64)).tolist() == [words[row] for row in side_by_side]
    assert Texts.join([texts, texts, Texts.of([])]).tolist() == words * 2


ALIKE = st.lists(st.text("ab", max_size=40).map(str.encode), max_size=20)


@given(WORDS | ALIKE, WORDS | ALIKE, st.data())
def test_texts_differ_exactly_where_their_words_do(words: list[bytes], others: list[bytes], data: st.DataObject) -> None:
    if not words or not others:
        return
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(words) - 1), st.integers(0, len(others) - 1)), max_size=20))
    mine, theirs = (np.array([pair[n] for pair in pairs], np.int64) for n in range(2))
    differs = Texts.of(words).spans(mine).differ(Texts.of(others).spans(theirs))
    assert differs.tolist() == [words[a] != others[b] for a, b in pairs]


@pytest.mark.parametrize("sitting", [1, 5, 1000])
@given(
    rows=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 255), st.binary(max_size=5)), max_size=40),
    borders=st.lists(st.integers(1, 2**64 - 1), max_size=6, unique=True).map(sorted),
    piece=st.integers(1, 7),
)
def test_range_keeps_all_rows_in_their_order(
    sitting: int, rows: list[tuple[int, int, bytes]], borders: list[int], piece: int
) -> None:
    columns_of = {"key": "<u8", "value": "u1"}
    with (
        TemporaryDirectory() as scratch,
        ColumnSpill(Path(scratch), columns_of, "key", np.array(borders, np.uint64), True, sitting) as spill,
    ):
        for at in range(0, len(rows), piece):
            part = rows[at : at + piece]
            columns: dict[str, Array] = {
                "key": np.array([r[0] for r in part], np.uint64),
                "value": np.array([r[1] for r in part], np.uint8),
            }
            spill.add(columns, Texts.of([r[2] for r in part]))
        spilled = pickle.loads(pickle.dumps(spill.settle()))  # as another process gets it
        assert (len(spilled), spill.rows) == (len(borders) + 1, len(rows))
        for n, (low, high) in enumerate(zip([0, *borders], [*borders, 2**64], strict=True)):
            expected = [row for row in rows if low <= row[0] < high]
            found = spilled.read(n)
            texts = spilled.read_texts(n, found[LENGTH]).tolist()
            assert list(zip(found["key"].tolist(), found["value"].tolist(), texts, strict=True)) == expected


def test_one_different_byte_is_noticed_at_every_place_and_length() -> None:
    for length in range(28):
        text = bytes(range(65, 65 + length))
        others = [text[:at] + b"!" + text[at + 1 :] for at in range(length)]
        rows = np.arange(length + 1)
        differs = Texts.of([b"x", text]).spans(np.ones_like(rows)).differ(Texts.of([text, *others]).spans(rows))
        assert differs.tolist() == [False] + [True] * length
