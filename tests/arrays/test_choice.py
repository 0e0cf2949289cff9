"""The mask of selectors beside a loop over rows that asks each row by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd.arrays.choice import RowChoice, mask, some_of
from shepherd.formats.tables import INDEX

NARROW = ("type", "reason", "section", "status")
NUMBERS = ("weight", "checked")
VALUES = st.integers(0, 6) | st.sampled_from((200, 255))


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, int]]:
    one = dict.fromkeys((*NARROW, *NUMBERS, "flags", "site"), VALUES)
    return draw(st.lists(st.fixed_dictionaries(one), max_size=30))


@st.composite
def selector_values(draw: st.DrawFn) -> tuple[dict[str, list[range]], dict[str, tuple[int, int]], int, set[int] | None]:
    parts = st.builds(lambda first, size: range(first, first + size), VALUES, st.integers(0, 3))
    values = draw(st.dictionaries(st.sampled_from(NARROW), st.lists(parts, max_size=3)))
    between = draw(st.dictionaries(st.sampled_from(NUMBERS), st.tuples(VALUES, VALUES)))
    return values, between, draw(st.integers(0, 3)), draw(st.none() | st.sets(VALUES))


@given(rows(), selector_values())
def test_mask_agrees_with_a_loop_over_rows(
    table: list[dict[str, int]], selector_values: tuple[dict[str, list[range]], dict[str, tuple[int, int]], int, set[int] | None]
) -> None:
    values, between, without, sites = selector_values

    def is_wanted(row: dict[str, int]) -> bool:
        return (
            all(any(row[name] in part for part in parts) for name, parts in values.items())
            and all(least <= row[name] <= most for name, (least, most) in between.items())
            and not row["flags"] & without
            and (sites is None or row["site"] in sites)
        )

    known = None if sites is None else np.array(sorted(sites), np.uint64)
    wanted = RowChoice({name: some_of(name, *parts) for name, parts in values.items()}, between, without, known)
    columns = {name: np.array([row[name] for row in table], INDEX[name]) for name in wanted.columns}
    assert mask(columns, len(table), wanted).tolist() == [is_wanted(row) for row in table]
