"""Documents: rows of the index together with their buckets, for whoever reads a state (docs/api.md).

Rows come in the order of the index, a step at a time, and buckets are read when they are asked for: memory does not grow with the
state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from shepherd.formats import tables
from shepherd.formats.bucket import Bucket
from shepherd.formats.tables import Flag, RowType
from shepherd.store.state import lookup
from shepherd.urls import parse

if TYPE_CHECKING:
    from shepherd.store.state.directory import State

STEP_ROWS: Final = 16_384
BODY_BYTES: Final = 1 << 28  # most that a body may be decoded to
_BODILESS: Final = np.uint16(Flag.ROBOTS | Flag.REDIRECT)


@dataclass(frozen=True)
class StoredDocument:
    """One gathered document: its row, and its bucket, which is read and checked when it is first looked at."""

    row: int
    columns: Mapping[str, int]  # its values in the index, by the names of docs/formats.md: weight, status, gathered ...
    _state: State = field(repr=False)

    @cached_property
    def head(self) -> Bucket:
        """The bucket without its body: `head.attributes` has the letters of docs/formats.md."""
        return self._state.objects.head(self.columns["oid"])

    @cached_property
    def bucket(self) -> Bucket:
        """The whole bucket."""
        return self._state.objects.get(self.columns["oid"], self.columns["size"])

    @property
    def url(self) -> str:
        return self.head.url

    @property
    def content_type(self) -> str:
        return self.head.attributes.get("T", b"").decode("utf-8", "replace")

    def body(self, limit: int = BODY_BYTES) -> bytes:
        """The decoded body, at most `limit` bytes of it. Corruption if the stored one is damaged."""
        return self.bucket.body(limit)


def documents(state: State, site: str | None = None) -> Iterator[StoredDocument]:
    """The gathered documents of a state, or of one site given as host or URL; robots files and redirects are left out."""
    rows = range(state.index.rows) if site is None else lookup.rows_of_norm(state, _norm(state, site))
    for start in range(rows.start, rows.stop, STEP_ROWS):
        part = state.index.slice(start, min(start + STEP_ROWS, rows.stop))
        mask = (part["type"] == RowType.GATHERED) & ((part["flags"] & _BODILESS) == 0) & tables.in_bucket(part["oid"])
        for row in np.flatnonzero(mask).tolist():
            yield StoredDocument(start + row, {name: int(column[row]) for name, column in part.items()}, state)


def _norm(state: State, site: str) -> int:
    url = parse(site if "://" in site else f"http://{site}/", strict=True)
    return state.prints.norm(url.site)
