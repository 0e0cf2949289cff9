"""URLs of footprints, for `shep-dump -u`: from the bucket of the row, or from its contribution where it has no bucket yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shepherd.formats.contrib import Block
    from shepherd.store.state import State

REMEMBERED = 10_000  # URLs of footprints: the links of a page have one parent


class Urls:
    """Footprints and oids of one state, turned into URLs; None where the text is gone or was never here.

    `of(norm, path, site)` is the URL of a document, on that site if it is there; `of_page(site, path)` the same where the
    normalised site is not known.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._segments = set(state.segments())
        self.of = lru_cache(REMEMBERED)(self._of)
        self.of_page = lru_cache(REMEMBERED)(self._of_page)

    def of_oids(self, oids: Sequence[int]) -> list[str | None]:
        """Contributions are read in their own order, each block once: so ask for many at a time."""
        from shepherd.formats import tables

        wanted = sorted({oid for oid in oids if tables.CONTRIB_BIT <= oid < tables.NO_OID})
        contributed = dict(self._contributed(wanted))
        return [self._stored(oid) if oid < tables.CONTRIB_BIT else contributed.get(oid) for oid in oids]

    def is_stored(self, oid: int) -> bool:
        """Whether it is an oid in a segment of this state."""
        return oid >> 32 in self._segments

    def of_site(self, site: int) -> str | None:
        """The name of a site."""
        from shepherd.store import lookup

        row = lookup.site_row(self._state, site)
        return self._state.site_name(row) if row is not None else None

    def _of(self, norm: int, path: int, site: int) -> str | None:
        from shepherd.store import lookup

        index = self._state.index
        rows = lookup.rows_of(self._state, norm, path)
        row = next((row for row in rows if index["site"].at(row) == site), rows.start)
        return self.of_oids([index["oid"].at(row)])[0] if rows else None

    def _of_page(self, site: int, path: int) -> str | None:
        from shepherd.store import lookup

        row = lookup.site_row(self._state, site)
        return self.of(self._state.sites["norm"].at(row), path, site) if row is not None else None

    def _stored(self, oid: int) -> str | None:
        url = self._state.objects.head(oid).attributes.get("U")
        return url.decode("utf-8", "backslashreplace") if url is not None else None

    def _contributed(self, wanted: list[int]) -> Iterator[tuple[int, str]]:
        """The URLs of places in contrib, given in order. Only blocks that have one of them are expanded."""
        from shepherd.formats import contrib, tables
        from shepherd.store import logs, names

        for number in self._state.numbered(names.CONTRIB) if wanted else ():
            first = tables.contrib_oid(number, 0)
            for one in logs.read_frames(self._state.path / names.contrib(number)):
                here = wanted[bisect_left(wanted, first) : bisect_left(wanted, first + one.records)]
                if here:
                    found = urls_of(contrib.decode(one.payload), (oid - first for oid in here))
                    yield from zip(here, found, strict=True)
                first += one.records


def urls_of(block: Block, places: Iterable[int]) -> Iterator[str]:
    """The URLs of some records of a contrib block."""
    names = dict(zip(block.sites.tolist(), block.names, strict=True))
    for place in places:
        yield (names[int(block.site[place])] + block.texts[place]).decode("utf-8", "backslashreplace")
