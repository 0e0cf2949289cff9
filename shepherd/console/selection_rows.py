"""The rows of a state that a selection means.

URLs are looked up; a site, a server, or a glob whose host is spelled out is a slice of the index; all else is a pass over a few
columns. What is left after that is read for a glob, bucket by bucket in the order of the segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from shepherd.console import common, shared
from shepherd.console.shared import GivenUrl
from shepherd.errors import BadUrl, UsageError

if TYPE_CHECKING:
    from shepherd.arrays.choice import RowChoice
    from shepherd.console.selectors import Selection
    from shepherd.filters import Filter
    from shepherd.formats.tables import I64, U64
    from shepherd.store.state.directory import State

STEP_ROWS = 65_536
FEW_NORMS = 1_000  # up to which each is bisected; for more the column of norms is read
_LITERAL_HOST = re.compile(r"(\*|https?|https?\*|http\?)://([^/*?]+)/")

NOT_KNOWN = "not known"
OnUnknown = Callable[[GivenUrl, str], None]  # gets a text that is not a URL, and why, or one that is NOT_KNOWN


def selected_rows(
    state: State,
    selection: Selection,
    filter_: Filter | None = None,
    on_unknown: OnUnknown = lambda url, why: None,
    *,
    stored: bool = False,
) -> Iterator[I64]:
    """The rows, some at a time: in the order of the index, but for a glob in the order of the segments.

    `filter_` strips parameters of the URLs that are given, as it did when they were found. With `stored` a URL whose row has no
    bucket any more is not known, either.
    """
    conditions = _conditions(state, selection)
    if selection.by_url:
        sources: list[range | I64] = [_rows_of_urls(state, selection, filter_, on_unknown, stored)]
    else:
        sources = _sources(state, selection, conditions)

    def pieces() -> Iterator[I64]:
        for source in sources:
            yield from _masked(state, source, conditions)

    if selection.glob is None:
        yield from pieces()
        return
    from shepherd.filters import patterns
    from shepherd.readers import search

    counts, matches = search.count(state, pieces), patterns.glob_matcher(selection.glob)
    with common.progress(int(counts.sum()), "searching", " rows") as bar:
        yield from search.matching(state, pieces, counts, matches, bar.update)


def _conditions(state: State, selection: Selection) -> RowChoice:
    """What the columns must hold."""
    from shepherd.arrays.choice import RowChoice, some_of
    from shepherd.formats.tables import Reason, RowType

    allowed: dict[str, Sequence[int]] = {
        "type": [RowType[name.upper()] for name in selection.types],
        "reason": [Reason[name.upper().replace("-", "_")] for name in selection.reasons],
        "section": selection.sections,
    }
    values = {name: some_of(name, *(range(number, number + 1) for number in some)) for name, some in allowed.items() if some}
    if selection.statuses:
        values["status"] = some_of("status", *selection.statuses)
    between = {}
    if selection.weights is not None:
        between["weight"] = selection.weights
    if selection.older is not None or selection.newer is not None:  # what was never checked is neither old nor new
        most = common.LATEST_S if selection.older is None else selection.now - selection.older - 1
        between["checked"] = (max(selection.now - selection.newer, 1) if selection.newer is not None else 1, max(most, 0))
    return RowChoice(values, between, sites=None if selection.server is None else _sites_of(state, selection.server))


def _sites_of(state: State, server: int) -> U64:
    """The sites on a server, in order."""
    import numpy as np

    parts = [np.zeros(0, np.uint64)]
    for start in range(0, state.sites.rows, STEP_ROWS):
        part = state.sites.slice(start, min(start + STEP_ROWS, state.sites.rows), ("site", "qkey"))
        parts.append(part["site"][part["qkey"] == np.uint64(server)])
    return np.concatenate(parts)


# --- where rows can be at all -----------------------------------------------------------------------------------


def _sources(state: State, selection: Selection, conditions: RowChoice) -> list[range | I64]:
    """Ranges of rows, or rows, outside of which no row can be meant."""
    by_options = (_norms_of_site(state, selection), _norms_of_glob(state, selection))
    norms = [some for some in by_options if some is not None]
    if conditions.sites is not None:
        norms.append(_norms_of_sites(state, conditions.sites))
    if not norms:
        return [range(state.index.rows)]
    return _spans(state, sorted(set.intersection(*norms)))


def _rows_of_urls(state: State, selection: Selection, filter_: Filter | None, on_unknown: OnUnknown, stored: bool) -> I64:
    """The rows of the URLs that are given, in order, those of the site that is asked for."""
    import numpy as np

    from shepherd.filters import parse_filter
    from shepherd.formats.tables import CONTRIB_BIT
    from shepherd.report.find import seek

    filter_ = filter_ or parse_filter("")
    site = _norms_of_site(state, selection)
    first_rows = []
    for url in selection.given_urls():
        try:
            position = seek(state, filter_, url.text)
        except UsageError as error:
            on_unknown(url, str(error.__context__) if isinstance(error.__context__, BadUrl) else str(error))
            continue
        rows = [row for row in position.rows if not stored or state.index["oid"].value(row) < CONTRIB_BIT]
        if not rows:
            on_unknown(url, NOT_KNOWN)
        elif site is None or position.norm in site:
            first_rows.append(rows[0])
    return np.unique(np.array(first_rows, np.int64))


def _norms_of_site(state: State, selection: Selection) -> set[int] | None:
    from shepherd.report.find import norm_of_host

    return None if selection.site is None else {norm_of_host(state, selection.site)}


def _norms_of_glob(state: State, selection: Selection) -> set[int] | None:
    """The normalised sites of which alone URLs can match; None if the glob has no literal host."""
    host_match = _LITERAL_HOST.match(selection.glob or "")
    if not host_match:
        return None
    try:
        sites = {shared.parse_given(f"{scheme}://{host_match[2]}/").site for scheme in ("http", "https")}
    except BadUrl:
        return None
    return {state.prints.norm(site) for site in sites}


def _norms_of_sites(state: State, sites: U64) -> set[int]:
    import numpy as np

    from shepherd.arrays.keys import find_sites

    norms: set[int] = set()
    for start in range(0, state.sites.rows, STEP_ROWS):
        part = state.sites.slice(start, min(start + STEP_ROWS, state.sites.rows), ("site", "norm"))
        norms.update(part["norm"][np.asarray(find_sites(sites, part["site"]) >= 0)].tolist())
    return norms


def _spans(state: State, norms: list[int]) -> list[range | I64]:
    """The rows of normalised sites: long ranges as they are, short ones together."""
    import numpy as np

    from shepherd.store.state import lookup

    if len(norms) <= FEW_NORMS:
        ranges = [lookup.rows_of_norm(state, norm) for norm in norms]
    else:
        column, queries = state.index["norm"][0 : state.index.rows], np.array(norms, np.uint64)
        ends = (np.searchsorted(column, queries, side=side).tolist() for side in ("left", "right"))
        ranges = [range(start, stop) for start, stop in zip(*ends, strict=True)]
    if all(len(span) >= STEP_ROWS for span in ranges):
        return list(ranges)
    return [np.concatenate([np.zeros(0, np.int64), *(np.arange(span.start, span.stop) for span in ranges)])]


def _masked(state: State, source: range | I64, conditions: RowChoice) -> Iterator[I64]:
    """Those of the rows whose columns meet the conditions, a partition at a time."""
    import numpy as np

    from shepherd.arrays import choice as choose

    for first in range(0, len(source), STEP_ROWS):
        part = source[first : first + STEP_ROWS]
        if isinstance(part, range):
            columns = state.index.slice(part.start, part.stop, conditions.columns) if conditions.columns else {}
            yield np.flatnonzero(choose.mask(columns, len(part), conditions)) + part.start
        else:
            columns = state.index.take(part, conditions.columns) if conditions.columns else {}
            yield part[choose.mask(columns, len(part), conditions)]
