"""URLs of footprints, for `shep-dump -u`: from the bucket of the row, or from its contribution where it has no bucket yet.

Rows and contributions stand in different orders. Few rows are looked for in contrib; for many, one pass over it puts aside the
URL of each in a file without a name, in the order of oids.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shepherd.formats.contrib import Block
    from shepherd.formats.tables import U64
    from shepherd.store.state.directory import State

REMEMBERED = 10_000  # URLs of footprints: the links of a page have one parent


class Urls:
    """Footprints and oids of one state, turned into URLs; None where the text is gone or was never here.

    `of(norm, path, site)` is the URL of a document, on that site if it is there; `of_page(site, path)` the same where the
    normalised site is not known.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._segments = set(state.segments())
        self._aside: _Aside | None = None
        self.of = lru_cache(REMEMBERED)(self._of)
        self.of_page = lru_cache(REMEMBERED)(self._of_page)

    def of_oids(self, oids: Sequence[int]) -> list[str | None]:
        """Contributions are read in their own order, each block once: so ask for many at a time, or put them aside first."""
        import numpy as np

        from shepherd.formats import tables

        contrib_oids = sorted({oid for oid in oids if tables.CONTRIB_BIT <= oid < tables.NO_OID})
        if self._aside is not None:
            contributed = self._aside.urls(contrib_oids)
        else:
            contributed = {
                contrib_oids[position]: url for position, url in _contributed(self._state, np.array(contrib_oids, np.uint64))
            }
        return [self._stored(oid) if oid < tables.CONTRIB_BIT else contributed.get(oid) for oid in oids]

    def put_aside(self, oids: Iterable[U64]) -> None:
        """From now on nothing is asked for but these oids, and contrib is read no more; once is enough."""
        if self._aside is None:
            self._aside = _Aside(self._state, oids)

    def is_stored(self, oid: int) -> bool:
        """Whether it is an oid in a segment of this state."""
        return oid >> 32 in self._segments

    def of_site(self, site: int) -> str | None:
        """The name of a site."""
        from shepherd.store.state import lookup

        row = lookup.site_row(self._state, site)
        return self._state.site_name(row) if row is not None else None

    def _of(self, norm: int, path: int, site: int) -> str | None:
        from shepherd.store.state import lookup

        index = self._state.index
        rows = lookup.rows_of(self._state, norm, path)
        row = next((row for row in rows if index["site"].value(row) == site), rows.start)
        return self.of_oids([index["oid"].value(row)])[0] if rows else None

    def _of_page(self, site: int, path: int) -> str | None:
        from shepherd.store.state import lookup

        row = lookup.site_row(self._state, site)
        return self.of(self._state.sites["norm"].value(row), path, site) if row is not None else None

    def _stored(self, oid: int) -> str | None:
        url = self._state.objects.head(oid).attributes.get("U")
        return url.decode("utf-8", "backslashreplace") if url is not None else None


class _Aside:
    """URLs of places in contrib, by oid: 16 bytes each in memory, their texts in a file."""

    def __init__(self, state: State, oids: Iterable[U64]) -> None:
        import numpy as np

        from shepherd.formats import tables

        waiting = [part[tables.in_contrib(part)] for part in oids]
        self._oids = np.unique(np.concatenate([np.zeros(0, np.uint64), *waiting]))
        self._ends = np.zeros(len(self._oids), np.int64)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed with us
        weakref.finalize(self, self._file.close)
        for position, url in _contributed(state, self._oids):
            self._ends[position] = self._file.write(url.encode())
        np.cumsum(self._ends, out=self._ends)
        self._file.flush()

    def urls(self, oids: list[int]) -> dict[int, str]:
        """Of those of the oids that are there, their URLs."""
        import numpy as np

        texts = {}
        for position in np.flatnonzero(np.isin(self._oids, np.array(oids, np.uint64), assume_unique=True)).tolist():
            start, end = int(self._ends[position - 1]) if position else 0, int(self._ends[position])
            if end > start:
                texts[int(self._oids[position])] = os.pread(self._file.fileno(), end - start, start).decode()
        return texts


def _contributed(state: State, oids: U64) -> Iterator[tuple[int, str]]:
    """Which of some places in contrib, given in order, and its URL. Only blocks that have one of them are expanded."""
    import numpy as np

    from shepherd.formats import contrib, tables
    from shepherd.store.disk import names
    from shepherd.store.state import logs

    for number in state.numbered(names.CONTRIB) if len(oids) else ():
        first = tables.contrib_oid(number, 0)
        for frame in logs.read_frames(state.path / names.contrib(number)):
            begin, end = np.searchsorted(oids, np.array([first, first + frame.records], np.uint64)).tolist()
            if begin < end:
                places = (oid - first for oid in oids[begin:end].tolist())
                yield from zip(range(begin, end), urls_of(contrib.decode(frame.payload), places), strict=True)
            first += frame.records


def urls_of(block: Block, places: Iterable[int]) -> Iterator[str]:
    """The URLs of some records of a contrib block."""
    names = dict(zip(block.sites.tolist(), block.names, strict=True))
    for place in places:
        yield (names[int(block.site[place])] + block.texts[place]).decode("utf-8", "backslashreplace")
