"""Normalised sites beyond the implicit rule, as footprints: what cf/url-equiv makes of the norms that reapers compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.formats.tables import U64
from shepherd.phases.keys import find_sites


@dataclass(frozen=True)
class NormMap:
    """Norms that become another one, sorted; and sites, sorted, that have a norm of their own whatever the implicit rule says."""

    norm: U64
    norm_to: U64
    site: U64
    site_to: U64

    def apply(self, norm: U64, site: U64) -> U64:
        """The norms of some rows, given by the implicit rule, as the classes have them."""
        return _mapped(self.site, self.site_to, site, _mapped(self.norm, self.norm_to, norm, norm))


def _mapped(keys: U64, values: U64, queries: U64, default: U64) -> U64:
    if not len(keys):
        return default
    at = find_sites(keys, queries)
    return np.where(at >= 0, values[np.maximum(at, 0)], default)
