"""The normalised sites of a state: its url-equiv table under its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.keys import find_sites
from shepherd.equiv import Equiv
from shepherd.formats.tables import U64
from shepherd.urls import Footprints

SPELLINGS: Final = tuple((scheme, prefix) for scheme in ("http", "https") for prefix in ("", "www."))


@dataclass(frozen=True)
class NormMap:
    """Norms that become another one, sorted; and sites, sorted, that have a norm of their own whatever the implicit rule says."""

    norm: U64
    norm_to: U64
    site: U64
    site_to: U64
    firsts: U64  # sites, sorted, of the names that stand for their class

    def apply(self, norm: U64, site: U64) -> U64:
        """The norms of some rows, given by the implicit rule, as the classes have them."""
        return _mapped(self.site, self.site_to, site, self.of_norms(norm))

    def of_norms(self, norm: U64) -> U64:
        """The same where sites are not known: one that is kept apart is then taken for the one that it is kept apart from."""
        return _mapped(self.norm, self.norm_to, norm, norm)


def _mapped(keys: U64, values: U64, queries: U64, default: U64) -> U64:
    if not len(keys):
        return default
    place = find_sites(keys, queries)
    return np.where(place >= 0, values[np.maximum(place, 0)], default)


def norm_map(equiv: Equiv, prints: Footprints) -> NormMap:
    """The table as footprints. Names in it stand for http and https, with and without www., as the implicit rule has it."""
    norms = {prints.half(name): prints.half(first) for name, first in equiv.members().items() if name != first}
    sites = {prints.half(f"{scheme}://{name}"): prints.half(name) for name in equiv.kept_apart() for scheme in ("http", "https")}
    return NormMap(*_sorted(norms), *_sorted(sites), first_sites(equiv, prints))


def first_sites(equiv: Equiv, prints: Footprints) -> U64:
    """The sites whose documents are to stand for those of their class, sorted: those of the first name of each line."""
    names = set(equiv.members().values())
    return np.array(
        sorted(prints.half(f"{scheme}://{prefix}{name}") for name in names for scheme, prefix in SPELLINGS), np.uint64
    )


def version_of(equiv: Equiv) -> int:
    """What control says of a table: 0 where it says nothing beyond the implicit rule."""
    return equiv.version if equiv.members() or equiv.kept_apart() else 0


def sites_named(equiv: Equiv) -> set[str]:
    """Every site that a table may say something of."""
    names = {*equiv.members(), *equiv.kept_apart(), *(name.removeprefix("www.") for name in equiv.kept_apart())}
    return {f"{scheme}://{prefix}{name}" for name in names for scheme, prefix in SPELLINGS}


def _sorted(mapping: Mapping[int, int]) -> tuple[U64, U64]:
    keys = sorted(mapping)
    return np.array(keys, np.uint64), np.array([mapping[key] for key in keys], np.uint64)
