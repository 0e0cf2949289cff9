"""The tables of sites and servers made again: from what still checks, from an older state, and from the URLs in the buckets.

A site's name is the only thing that must not be lost; all else can be looked up or asked for again. A server whose next contact
is not known waits its full delay from now.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from shepherd.arrays.keys import find_sites
from shepherd.config import Config
from shepherd.cycle.common.site_table import FILTERED, Sites, add_sites, read_sites, settings_of, site_rows
from shepherd.errors import BadUrl, Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import JOURNAL, SERVERS, SITES, U64, Array, Columns, empty
from shepherd.politeness import delays
from shepherd.politeness.contacts import apply_servers
from shepherd.store.check.copies import has_bytes
from shepherd.store.check.salvage import LooseColumn, Wreck
from shepherd.store.state.directory import Builder, State
from shepherd.urls import Footprints, norm_of, parse


def restore_sites(wreck: Wreck, older: State | None, filters: Filter, counts: Counter[str]) -> Sites:
    """What is known of the sites before the buckets are read."""
    before = read_sites(older) if older is not None else Sites(empty(SITES), [])
    loose = {name: wreck.column("sites", name) for name in SITES}
    text = wreck.names_text()
    if text is None or not all(loose[name].is_whole() for name in ("site", "norm", "name")):
        counts["sites: from the older state"] = len(before)
        return before
    rows = wreck.rows("sites")
    keys = {name: loose[name].slice(0, rows)[0] for name in ("site", "norm", "name")}
    cuts = [0, *keys["name"].astype(np.int64).tolist()]
    names = [text[a:b] for a, b in pairwise(cuts)]
    columns = site_rows(keys["site"], keys["norm"]) | {"name": keys["name"]}
    place = find_sites(before.columns["site"], keys["site"])
    for name in SITES:
        if name not in keys:
            columns[name] = _filled(f"sites/{name}", columns[name], loose[name], before.columns[name], place, counts)
    if not all(loose[name].is_whole() for name in FILTERED):
        columns |= settings_of(names, filters, columns["qkey"])
    return Sites(columns, names)


def _filled(what: str, default: Array, loose: LooseColumn, older: Array, place: Array, counts: Counter[str]) -> Array:
    values, valid = loose.slice(0, len(default))
    there = place >= 0
    counts[f"{what}: from the older state"] = int(np.count_nonzero(~valid & there))
    counts[f"{what}: not known"] = int(np.count_nonzero(~valid & ~there))
    from_older = np.where(there, older[np.maximum(place, 0)], default) if len(older) else default
    return np.where(valid, values, from_older).astype(default.dtype)


class Census:
    """The norms of sites, and the names of those that no table knows, learnt from the URLs of their documents."""

    def __init__(self, sites: Sites, prints: Footprints) -> None:
        self._sites, self._prints = sites, prints
        self.half = prints.half
        self._new_sites: dict[int, tuple[int, bytes]] = {}

    def norms(self, sites: U64, urls: list[bytes]) -> U64:
        row = find_sites(self._sites.columns["site"], sites)
        site_norms = self._sites.columns["norm"]
        norms = (
            np.where(row >= 0, site_norms[np.maximum(row, 0)], np.uint64(0))
            if len(site_norms)
            else np.zeros(len(sites), np.uint64)
        )
        for n in np.flatnonzero(row < 0).tolist():
            norms[n] = self._learn(int(sites[n]), urls[n])
        return norms

    def _learn(self, site: int, url: bytes) -> int:
        if site not in self._new_sites:
            try:
                name = parse(url.decode("ascii")).site
            except (BadUrl, UnicodeDecodeError) as error:
                raise Corruption(f"a bucket of site {site:016x} checks, but its URL cannot be read: {error}") from error
            self._new_sites[site] = self._prints.half(norm_of(name)), name.encode("ascii")
        return self._new_sites[site][0]

    def table(self, filters: Filter) -> Sites:
        """The site table with what was found."""
        site = np.array(list(self._new_sites), np.uint64)
        norm = np.array([norm for norm, _name in self._new_sites.values()], np.uint64)
        return add_sites(self._sites, site, norm, [name for _norm, name in self._new_sites.values()], filters)


def restore_servers(
    builder: Builder, wreck: Wreck, older: State | None, sites: Sites, config: Config, now: int, counts: Counter[str]
) -> None:
    loose = {name: wreck.column("servers", name) for name in SERVERS}
    entries = {path: entry for path, entry in wreck.control.files.items() if path.startswith("servers/")}
    if len(entries) == len(SERVERS) and all(has_bytes(wreck.path, path, entry) for path, entry in entries.items()):
        builder.keep_table("servers")
        return
    servers: Columns = older.servers.slice(0, older.servers.rows) if older is not None else empty(SERVERS)
    sure = np.zeros(len(servers["qkey"]), np.bool_)
    if loose["qkey"].is_whole():
        qkey = loose["qkey"].values()
        place, sure = find_sites(servers["qkey"], qkey), loose["next_ms"].slice(0, len(qkey))[1]
        default = empty(SERVERS, len(qkey))
        servers = {n: _filled(f"servers/{n}", default[n], loose[n], servers[n], place, counts) for n in SERVERS}
    else:
        counts["servers: from the older state"] = len(sure)
    nothing = np.zeros(0, JOURNAL)
    columns = apply_servers(servers, sites.columns, nothing, config.politeness)
    row = find_sites(servers["qkey"], columns["qkey"])
    knows_when = (row >= 0) & sure[np.maximum(row, 0)] if len(sure) else np.zeros(len(row), np.bool_)
    waits_ms = delays.waits_ms(columns["delay_ms"], columns["backoff"])
    next_ms = np.where(knows_when, columns["next_ms"], np.maximum(columns["next_ms"], now * 1000 + waits_ms))
    counts["servers: that wait their full delay"] = int(np.count_nonzero(~knows_when))
    builder.write_table("servers", columns | {"next_ms": next_ms})
