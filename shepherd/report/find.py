"""A URL as an operator writes it, found in a state: normalised, stripped as the filter says, looked up by its footprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shepherd import text as words
from shepherd.errors import BadUrl, UsageError
from shepherd.formats import kinds

if TYPE_CHECKING:
    from shepherd.filters import Filter
    from shepherd.formats.bucket import Bucket
    from shepherd.store.state.directory import State
    from shepherd.urls import Url


@dataclass(frozen=True)
class UrlPosition:
    """Where a URL stands. `rows` are those of the same document: on the URL's own site first, then gathered ones."""

    text: str
    parsed: Url
    stripped: Url  # what is left after the filter's strip lines: this is what gets a footprint
    norm: int
    path: int
    site: int
    rows: tuple[int, ...]


def seek(state: State, filter_: Filter, text: str) -> UrlPosition:
    """Look a URL up; UsageError if it is not a URL. A row from before a strip line came into the filter is found as well."""
    from shepherd import urls
    from shepherd.store.state import lookup

    try:
        parsed = words.parse_given(text)
    except BadUrl as error:
        raise UsageError(f"{words.redact(text)}: {error}") from None
    stripped = urls.parse(filter_.strip(parsed.href))
    for url in (stripped, parsed):
        norm, path, site = state.prints.of(url)
        rows = lookup.rows_of(state, norm, path)
        if rows:
            return UrlPosition(text, parsed, stripped, norm, path, site, _best_first(state, rows, site))
    return UrlPosition(text, parsed, stripped, *state.prints.of(stripped), ())


def _best_first(state: State, rows: range, site: int) -> tuple[int, ...]:
    from shepherd.formats import tables

    sites, types = state.index["site"], state.index["type"]
    return tuple(sorted(rows, key=lambda row: (sites.value(row) != site, types.value(row) != tables.RowType.GATHERED)))


def head_of(state: State, row: int) -> Bucket | None:
    """The bucket of a row, without its body; None where a forgotten row has none left."""
    from shepherd.formats import tables

    oid = state.index["oid"].value(row)
    return state.objects.head(oid) if oid < tables.CONTRIB_BIT else None


def url_of(state: State, row: int) -> str | None:
    head = head_of(state, row)
    return head.url if head is not None else None


def place_of(state: State, row: int) -> str:
    """The URL of a row, or what is still known of it where its bucket is gone."""
    from shepherd.store.state import lookup

    url = url_of(state, row)
    if url is not None:
        return url
    site = lookup.site_row(state, state.index["site"].value(row))
    name = state.site_name(site) if site is not None else "a site that is gone"
    return f"{name} (path {kinds.FOOTPRINT.text(state.index['path'].value(row))}: its text is gone)"


def norm_of_host(state: State, text: str) -> int:
    """The footprint of the normalised site of `host`, `host:port` or a URL; UsageError for any other text."""
    try:
        return state.prints.norm(words.parse_given(text if "://" in text else f"http://{text}/").site)
    except BadUrl as error:
        raise UsageError(f"{words.redact(text)}: not a host or URL: {error}") from None
