"""Feedback against plain dictionaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.distinct_urls import Paths
from shepherd.cycle.feedback import rules as feedback
from shepherd.formats.feedback import FeedbackFlag
from shepherd.formats.tables import INDEX, Flag, RowType
from tests.support.random_rows import NORMS, PATHS, ROBOTS_PATH, ROOT_PATH, Row, columns, index_rows, key, rows_of, site_of

SAID = {"norm": "<u8", "path": "<u8", "site": "<u8", "weight": "<u2", "flags": "<u2"}
STATE = 9


@st.composite
def feedback_rows(draw: st.DrawFn) -> Row:
    norm = draw(NORMS)
    flags = draw(st.sampled_from([1, 2, 3, 4, 5, 7]))
    site = site_of(norm, draw(st.integers(0, 1)))
    return {"norm": norm, "path": draw(PATHS), "site": site, "weight": draw(st.integers(0, 65_535)), "flags": flags}


REFERENCES = FeedbackFlag.UNREFERENCED | FeedbackFlag.REFERENCED


def document(row: Row) -> tuple[int, ...]:
    return key(row) if row["path"] in (ROBOTS_PATH, ROOT_PATH) else (row["norm"], row["path"])


@given(index_rows(), st.lists(feedback_rows(), max_size=12))
def test_feedback_agrees_with_a_dictionary(index: list[Row], said: list[Row]) -> None:
    index = list({document(row): row for row in index}.values())  # an index has a document once
    expected = [dict(row) for row in index]
    by_document = {document(row): row for row in expected}
    unknown = deaf = 0
    for one in said:
        row = by_document.get(document(one))
        if row is None:
            unknown += 1
        elif row["type"] == RowType.FORGOTTEN or (row["type"] == RowType.ERROR and not one["flags"] & REFERENCES):
            deaf += 1
        else:
            if one["flags"] & FeedbackFlag.WEIGHT and row["type"] != RowType.ERROR:
                row["weight"] = one["weight"]
            if one["flags"] & FeedbackFlag.UNREFERENCED:
                row["flags"] |= Flag.UNREFERENCED
            elif one["flags"] & FeedbackFlag.REFERENCED:
                row["flags"] &= ~Flag.UNREFERENCED
    for row, before in zip(expected, index, strict=True):
        if row != before:
            row["touched"] = STATE
    given_ = columns(INDEX, index)
    heard = feedback.apply(given_, columns(SAID, said), Paths(ROBOTS_PATH, ROOT_PATH), state=STATE)
    assert rows_of(given_ | dict(heard.columns)) == expected
    assert (heard.counts["of unknown URLs"], heard.counts["of errors or forgotten rows"]) == (unknown, deaf)
    assert rows_of(given_) == index
