"""A journal record by itself is the same bytes as a row of many."""

from __future__ import annotations

import numpy as np
import pytest

from shepherd.errors import Corruption
from shepherd.formats.journal import LAYOUT, Entry, unpack
from shepherd.formats.tables import JOURNAL


def test_entry_has_the_fields_of_the_table() -> None:
    assert Entry._fields == JOURNAL.names
    assert LAYOUT.size == JOURNAL.itemsize
    values = list(range(1, len(Entry._fields) + 1))
    row = np.frombuffer(Entry(*values).pack(), JOURNAL)[0]
    assert [int(row[name]) for name in Entry._fields] == values
    assert unpack(row.tobytes()) == Entry(*values)


def test_largest_values_fit() -> None:
    most = [np.iinfo(JOURNAL[name]).max for name in Entry._fields]
    assert unpack(Entry(*map(int, most)).pack()) == tuple(most)


@pytest.mark.parametrize("size", [0, 127, 129])
def test_record_of_another_length_is_corruption(size: int) -> None:
    with pytest.raises(Corruption):
        unpack(bytes(size))
