"""One document of a state, by its URL or its footprint, as a reader of everything would get it."""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.errors import BadUrl
from shepherd.expressions import StoredForm
from shepherd.filters import Filter
from shepherd.formats import stream
from shepherd.formats.tables import I64
from shepherd.readers import choice as readers
from shepherd.readers.choice import Choice
from shepherd.readers.reading import Batch, records_of
from shepherd.serve.answers import Refused
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import parse

ANY: Final = Choice(robots=True, redirects=True)
NONE: Final = np.zeros(0, np.int64)


def by_url(state: State, filter_: Filter, url_text: str) -> Batch:
    """A row from before a strip line came into the filter is found as well."""
    try:
        url = parse(url_text, strict=True)
        stripped = parse(filter_.strip(url.href))
    except BadUrl as error:
        raise Refused(400, f"`url`: {error}") from None
    rows = _rows_of(state, *state.prints.of(stripped))
    return _batch(state, rows if len(rows) else _rows_of(state, *state.prints.of(url)))


def by_footprint(state: State, footprint_text: str) -> Batch:
    match = StoredForm.FOOTPRINT.fullmatch(footprint_text)
    if match is None:
        raise Refused(400, "`footprint` is 32 hexadecimal digits: site, then path")
    site, path = int(match[1], 16), int(match[2], 16)
    place = lookup.site_row(state, site)
    return _batch(state, NONE if place is None else _rows_of(state, state.sites["norm"].value(place), path, site))


def _rows_of(state: State, norm: int, path: int, site: int) -> I64:
    """The row of a document; of several equivalent ones the representative, whichever of them is asked for."""
    within = lookup.rows_of(state, norm, path)
    if path == state.prints.robots:  # these are of one site each
        own = lookup.row_of(state, norm, path, site)
        within = range(0) if own is None else range(own, own + 1)
    return within.start + readers.choose(state.index.slice(within.start, within.stop, readers.READ), ANY)


def _batch(state: State, rows: I64) -> Batch:
    if not len(rows):
        raise Refused(404, "no such document is gathered in this state")
    columns = state.index.take(rows[:1], (*stream.COLUMNS, "size", "oid"))
    return Batch(records_of(columns, np.zeros(1, np.uint8)), columns["oid"])
