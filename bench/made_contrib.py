"""Contributions for a made database: blocks of links as a reap writes them.

A block is the links of a few hundred pages. Half lead to the page's own site, the others anywhere, to large sites more often.
A share is known, some are of sites that nobody knew, and about a tenth was contributed before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import made_text
import numpy as np
import numpy.typing as npt
from made_rows import ROBOTS, ROOT
from made_text import mix
from made_web import KEY, Web

from shepherd.formats.contrib import Block
from shepherd.formats.tables import ContribFlag, in_bucket
from shepherd.store.state.directory import State
from shepherd.urls import Footprints, parse

Array = npt.NDArray[Any]

BLOCK_RECORDS = 20_000
LINKS_PER_PAGE = 50
OWN_SITE = 0.5
NEW_SITE = 0.03
DUPLICATE = 0.05
NOBODY = -1  # in place of a site's number: not a site of the database
_PRINTS = Footprints(KEY)


def contributions(web: Web, state: State, count: int, known: float, seed: int) -> Iterator[Block]:
    """Blocks with `count` records altogether, of which a share `known` leads to rows of the state."""
    for number, start in enumerate(range(0, count, BLOCK_RECORDS)):
        rng = np.random.default_rng((seed, 3, number))
        yield _block(web, state, rng, start, min(BLOCK_RECORDS, count - start), known)


def _block(web: Web, state: State, rng: np.random.Generator, start: int, records: int, known: float) -> Block:
    pages = np.sort(rng.integers(0, web.rows, max(1, records // LINKS_PER_PAGE)))
    parents = state.index.take(pages, ("site", "path", "weight"))
    parent = rng.integers(0, len(pages), records)
    row = np.where(rng.random(records) < OWN_SITE, pages[parent], rng.integers(0, web.rows, records))
    links = _Links(web, state, rng, web.norm_of_row(row), start, known)
    order = np.arange(records)
    again = rng.random(records) < DUPLICATE
    order[again] = rng.integers(0, records, int(again.sum()))
    order = rng.permutation(order)

    site = links.site[order]
    distinct, first = np.unique(site, return_index=True)
    https = np.where(links.https[order], int(ContribFlag.HTTPS), 0)
    return Block(
        norm=links.norm[order],
        path=links.path[order],
        site=site,
        lastmod=np.zeros(records, np.uint32),
        parent=parent.astype(np.uint32),
        parent_weight=parents["weight"][parent],
        flags=https.astype(np.uint16),
        section=np.ones(records, np.uint8),
        texts=[links.text[i] for i in order.tolist()],
        sites=distinct,
        norms=links.norm[order][first],
        names=links.names(order[first]),
        parents_site=parents["site"],
        parents_path=parents["path"],
        filter_version=state.control.filter,
    )


class _Links:
    """Links to given normalised sites: of each the footprints, the text, and the site."""

    def __init__(self, web: Web, state: State, rng: np.random.Generator, norm: Array, start: int, known: float) -> None:
        self._web = web
        records = len(norm)
        number = (np.arange(records) + web.rows + start).astype(np.uint64)
        self._number = web.draw_sites(rng, norm)
        self.norm, self.site = web.norm[norm], web.site[self._number]
        spelled = made_text.paths(number).split()
        luck = rng.random(records)
        self._add_new_sites(np.flatnonzero(luck > 1 - NEW_SITE), number)
        if web.real:
            self.path = np.fromiter((_PRINTS.half(t.decode()) for t in spelled), np.uint64, records)
        else:
            self.path = mix(number, 40)
        self.text = spelled
        self._add_known(state, norm, rng, np.flatnonzero(luck < known))
        there = np.maximum(self._number, 0)
        self.https = np.where(self._number == NOBODY, number & np.uint64(1), web.variant[there] & np.uint8(1)).astype(bool)

    def _add_new_sites(self, at: Array, number: Array) -> None:
        """Some links lead to sites that nobody knew, several to the same."""
        norm, site, names = self._web.new_sites(number[at] & ~np.uint64(6))
        self.norm[at], self.site[at], self._number[at] = norm, site, NOBODY
        self._new = dict(zip(at.tolist(), names, strict=True))

    def _add_known(self, state: State, norm: Array, rng: np.random.Generator, at: Array) -> None:
        """These links lead to rows that the state has."""
        web = self._web
        low, high = web.first_row[norm[at]].astype(np.int64), web.first_row[norm[at] + 1].astype(np.int64)
        rows = low + (rng.random(len(at)) * (high - low)).astype(np.int64)
        found = state.index.take(rows, ("path", "site", "oid"))
        if web.real:  # a forgotten row has no bucket, and its text stands nowhere else
            have = in_bucket(found["oid"])
            at, found = at[have], {name: values[have] for name, values in found.items()}
        self.path[at], self.site[at] = found["path"], found["site"]
        self._number[at] = web.find_sites(norm[at], found["site"])
        if web.real:
            texts = [parse(state.objects.head(oid).url).path.encode() for oid in found["oid"].tolist()]
        else:
            texts = made_text.paths(found["path"]).split()
            for i in np.flatnonzero((found["path"] == np.uint64(ROOT)) | (found["path"] == np.uint64(ROBOTS))).tolist():
                texts[i] = b"/" if found["path"][i] == ROOT else b"/robots.txt"
        for i, text in zip(at.tolist(), texts, strict=True):
            self.text[i] = text

    def names(self, at: Array) -> list[bytes]:
        """The names of the sites of some links."""
        mine = self._number[at]
        known = iter(self._web.site_names(mine[mine != NOBODY]))
        return [self._new[i] if number == NOBODY else next(known) for i, number in zip(at.tolist(), mine.tolist(), strict=True)]
