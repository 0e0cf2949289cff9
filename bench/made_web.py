"""The web that a made database knows: normalised sites, their sites, their servers, and how many rows each has.

Everything follows from the seed and the number of rows, so that inputs can be made for a database long after it. Sizes of sites
and of servers follow Zipf's law; there is a site for ten rows. About 50 bytes of memory for each site.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import made_text
import numpy as np
import numpy.typing as npt
from made_text import mix, uniform

from shepherd.formats.tables import QKEY_IPV4, QKEY_NONE
from shepherd.urls import Footprints

Array = npt.NDArray[Any]

KEY = bytes(range(16))
ROWS_PER_SITE = 10
SITES_PER_NORM = 1.31  # 75 % of the normalised sites are one site, 20 % two, 4 % three, 1 % four
ZIPF = 0.9
MOST_ROWS = 1_000_000  # of one normalised site
STEP = 1_000_000  # rows that are made at a time
_SIZES, _COUNTS, _VARIANTS, _SERVERS, _UNRESOLVED, _FOOTPRINT = range(10, 16)  # salts


@dataclass(frozen=True)
class Web:
    """Normalised sites in the order of their footprints; the sites of each stand together."""

    rows: int
    seed: int
    real: bool  # whether footprints are those of the names
    norm: Array
    label: Array | None  # the number of each name, where that is not the place
    first_site: Array  # of each normalised site, and the end
    first_row: Array  # the same
    variant: Array  # of each site: 1 https, 2 www.
    site: Array  # its footprint

    @property
    def norms(self) -> int:
        return len(self.norm)

    def parts(self) -> Iterator[tuple[int, int]]:
        """Ranges of normalised sites that have about STEP rows."""
        first = 0
        while first < self.norms:
            full = int(self.first_row[first]) + STEP
            last = max(int(np.searchsorted(self.first_row, full, side="right")) - 1, first + 1)
            yield first, last
            first = last

    def norm_of_row(self, row: Array) -> Array:
        return np.searchsorted(self.first_row, row.astype(self.first_row.dtype), side="right") - 1

    def norm_of_site(self, site: Array) -> Array:
        return np.searchsorted(self.first_site, site.astype(self.first_site.dtype), side="right") - 1

    def find_sites(self, norm: Array, site: Array) -> Array:
        """Which site of its normalised site each footprint is."""
        found = self.first_site[norm].astype(np.int64)
        for _ in range(3):
            found += self.site[found] != site
        return found

    def draw_sites(self, rng: np.random.Generator, norm: Array) -> Array:
        """For each normalised site one of its sites: mostly the first."""
        first = self.first_site[norm].astype(np.int64)
        more = self.first_site[norm + 1].astype(np.int64) - first - 1
        other = (more > 0) & (rng.random(len(norm), np.float32) < 0.2)
        return first + np.where(other, 1 + rng.integers(0, 6, len(norm)) % np.maximum(more, 1), 0)

    def labels(self, norm: Array) -> Array:
        return norm if self.label is None else self.label[norm]

    def site_names(self, site: Array) -> list[bytes]:
        return made_text.site_names(self.labels(self.norm_of_site(site)), self.variant[site]).split()

    def qkeys(self, site: Array) -> Array:
        """Queue keys: the sites of a normalised site share an address; some addresses carry very many, a few sites have none."""
        norm = self.norm[self.norm_of_site(site)]
        addresses = max(2, round(0.4 * len(self.site)))
        number = np.floor(float(addresses) ** uniform(norm, _SERVERS)).astype(np.uint64)
        address = number * np.uint64(2_654_435_761) + np.uint64(0x10000000) & np.uint64(0xFFFFFFFF)
        nowhere = np.uint64(QKEY_NONE << 56) | self.site[site] & np.uint64(0xFFFFFF)
        return np.where(uniform(norm, _UNRESOLVED) < 0.03, nowhere, np.uint64(QKEY_IPV4 << 56) | address)

    def new_sites(self, numbers: Array) -> tuple[Array, Array, list[bytes]]:
        """Footprints of norm and site, and names, of sites that the database does not know."""
        label = numbers.astype(np.uint64) % np.uint64(1 << 28) + np.uint64(self.norms)
        variant = (numbers & np.uint64(1)).astype(np.uint8)
        names = made_text.site_names(label, variant).split()
        if self.real:
            norm, site = _real_footprints(label, variant, names)
        else:
            norm = mix(label, _FOOTPRINT + self.seed * 64)
            site = _site_footprints(norm, variant)
        return norm, site, names


def make_web(rows: int, seed: int, real: bool) -> Web:
    """`real` costs a hash for each site and is needed where buckets are to be."""
    norms = max(1, round(rows / ROWS_PER_SITE / SITES_PER_NORM))
    if real:
        halves = _halves([name.decode() for name in made_text.Texts(made_text.hosts(np.arange(norms))).split()])
        order = np.argsort(halves)
        norm, label = halves[order], order.astype(np.uint32)
    else:
        norm, label = np.sort(np.random.default_rng((seed, 0)).integers(1, (1 << 64) - 1, norms, np.uint64)), None
        if (norm[1:] == norm[:-1]).any():
            raise SystemExit(f"makedb: two sites got the same footprint; use another seed than {seed}")
    count = 1 + np.searchsorted([0.75, 0.95, 0.99], uniform(norm, _COUNTS + seed * 64)).astype(np.uint8)
    first_site = np.concatenate([[0], np.cumsum(count, dtype=np.uint32)]).astype(np.uint32)
    web_norm = np.repeat(np.arange(norms, dtype=np.uint32), count)
    nth = np.arange(int(first_site[-1]), dtype=np.uint32) - first_site[web_norm]
    main = (mix(norm, _VARIANTS + seed * 64) >> np.uint64(62)).astype(np.uint8)
    variant = (main[web_norm] + nth.astype(np.uint8)) % np.uint8(4)
    if real:
        labels = (np.arange(norms) if label is None else label)[web_norm]
        site = _real_footprints(labels, variant, made_text.site_names(labels, variant).split())[1]
    else:
        site = _site_footprints(norm[web_norm], variant)
    return Web(rows, seed, real, norm, label, first_site, _first_rows(norm, count, rows, seed), variant, site)


def _first_rows(norm: Array, count: Array, rows: int, seed: int) -> Array:
    """A robots.txt and a root page for each site; the rest is shared out by Zipf's law."""
    pages = rows - 2 * int(count.sum())
    if pages < 0:
        raise SystemExit(f"makedb: {rows} rows are too few")
    weight = uniform(norm, _SIZES + seed * 64) ** -ZIPF
    limit = min(MOST_ROWS, max(rows // 20, 1))
    for _ in range(3):  # what the largest do not get makes the others larger
        weight = np.minimum(weight, weight.sum() * limit / max(pages, 1))
    shared = np.cumsum(weight)
    shared = np.floor(shared * (pages / shared[-1]) + 1e-9).astype(np.uint32)
    shared[-1] = pages
    return np.concatenate([[0], shared + np.cumsum(2 * count.astype(np.uint32), dtype=np.uint32)]).astype(np.uint32)


def _site_footprints(norm: Array, variant: Array) -> Array:
    return mix(norm ^ variant.astype(np.uint64) << np.uint64(7), _FOOTPRINT)


def _real_footprints(label: Array, variant: Array, names: list[bytes]) -> tuple[Array, Array]:
    hosts = made_text.Texts(made_text.hosts(label)).split()
    return _halves([host.decode() for host in hosts]), _halves([name.decode() for name in names])


def _halves(texts: list[str]) -> Array:
    half = Footprints(KEY).half
    return np.fromiter((half(text) for text in texts), np.uint64, len(texts))
