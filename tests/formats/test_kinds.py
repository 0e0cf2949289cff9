"""Kinds of columns: how their values are spelt, also those that no column should have."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.formats import kinds, tables
from shepherd.formats.kinds import ColumnKind
from shepherd.formats.tables import Flag

DTYPES = tables.TABLES | {
    "journal": {name: tables.JOURNAL[name].str for name in tables.JOURNAL.names or ()},
    "plan": {name: tables.PLAN[name].str for name in tables.PLAN.names or ()},
}
COLUMNS = [(kind, np.dtype(DTYPES[table][name])) for table, columns in tables.KINDS.items() for name, kind in columns.items()]


@given(data=st.data())
def test_any_value_is_spelt_and_text_is_what_json_has(data: st.DataObject) -> None:
    """A file may be damaged or of another version: what stands in it is shown all the same."""
    kind, dtype = data.draw(st.sampled_from(COLUMNS))
    limits = np.iinfo(dtype)
    value = data.draw(st.integers(int(limits.min), int(limits.max)) | st.just(kind.none or 0))
    spelt = kind.json(value)
    if value == kind.none or spelt == []:
        assert kind.text(value) == kinds.NONE
    elif isinstance(spelt, list):
        assert kind.text(value) == ",".join(spelt)
    else:
        assert spelt is not None and kind.text(value) == str(spelt)


@pytest.mark.parametrize(
    ("kind", "value", "spelt"),
    [
        (kinds.FOOTPRINT, 0x12, "0000000000000012"),
        (kinds.OID, kinds.NO_OID, None),
        (kinds.TIME_S, 1_790_000_000, "2026-09-21T14:13:20Z"),
        (kinds.TIME_S, 0, None),
        (kinds.TIME_MS, 1_790_000_000_005, "2026-09-21T14:13:20.005Z"),
        (kinds.TIME_MS, -1, "1970-01-01T00:00:00.000Z"),
        (kinds.TIME_MS, 2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (kinds.REASON, 20, "robots-denied"),
        (kinds.REASON, 17, "17"),
        (kinds.DEFERRED, 0, None),
        (kinds.ROW_FLAGS, int(Flag.PINNED | Flag.ROBOTS), ["robots", "pinned"]),
        (kinds.ROW_FLAGS, int(Flag.PINNED) | 1 << 15, ["pinned", "0x8000"]),
        (kinds.SECTION, 1, "html"),
        (kinds.SECTION, 77, "77"),
        (kinds.STATUS, 0, None),
        (kinds.LIMIT, kinds.NO_LIMIT, None),
        (kinds.ROW, kinds.NO_ROW, None),
        (kinds.COUNT, 0, 0),
    ],
)
def test_values_are_spelt_as_the_page_says(kind: ColumnKind, value: int, spelt: object) -> None:
    assert kind.json(value) == spelt


def test_digest_is_the_beginning_of_the_whole_one() -> None:
    whole = hashlib.sha256(b"a body")
    assert kinds.DIGEST.json(int.from_bytes(whole.digest()[:8], "little")) == whole.hexdigest()[:16]
