"""Mirrors for bench/against: pairs of sites that cf/url-equiv makes one, with links to pages of the first one on the second.

Without them no two sites of a made database have a page in common, and equiv would have nothing to join. The links come as a
harvest from elsewhere, which cork takes in.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from against_engine import Array, Case, columns, names_of

from shepherd.formats import contrib
from shepherd.formats.contrib import Block
from shepherd.formats.tables import ContribFlag
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from shepherd.urls import parse

SHARED = 8  # pages of a pair
LEAST = 6  # rows of a site that is worth it
STEP = 50_000


def host_of(name: str) -> str:
    """The normalised site of `scheme://host[:port]`, by the implicit rule."""
    host = name.partition("://")[2]
    return host[4:] if host.startswith("www.") and "." in host[4:] else host


def add_mirrors(home: Path, pairs: int, now: int) -> None:
    db = Database(home / "db")
    state = db.closed()
    index, sites = columns(state, "index", ("norm", "path", "site", "oid")), columns(state, "sites", ("site", "norm"))
    start = np.flatnonzero(np.diff(index["norm"], prepend=np.uint64(0)))
    large = start[np.diff(start, append=len(index["norm"])) >= LEAST]
    chosen = large[: len(large) // 2 * 2][:: max(1, len(large) // (2 * pairs))]
    chosen = chosen[: len(chosen) // 2 * 2]
    by_norm = np.argsort(sites["norm"], kind="stable")
    norms, special = sites["norm"][by_norm], Case.paths(state)
    names = names_of(state)
    lines, links = [], []
    for first, second in chosen.reshape(-1, 2).tolist():
        one, other = (int(by_norm[np.searchsorted(norms, index["norm"][row])]) for row in (first, second))
        lines.append(f"{host_of(names[one])} {host_of(names[other])}\n")
        for row in _pages(index, first, special):
            text = parse(state.objects.head(int(index["oid"][row])).url).path.encode()
            links.append((int(sites["norm"][other]), int(index["path"][row]), other, text, row))
    (home / "cf" / "url-equiv").write_text("".join(lines))
    harvest = Harvest(home / "mirrors", 1 << 30)
    for at in range(0, len(links), STEP):
        block = _block(state, sites["site"], names, links[at : at + STEP], index)
        harvest.contribute(len(block), contrib.encode(block))
    harvest.end(now * 1000)
    db.inbox.drop_harvest(db.new_item_name(now * 1000), home / "mirrors")


def _pages(index: dict[str, Array], first: int, special: tuple[int, int]) -> list[int]:
    """Some rows of a normalised site that have a bucket, but its robots files and root pages."""
    rows = range(first, min(first + 4 * SHARED, len(index["norm"])))
    mine = (row for row in rows if index["norm"][row] == index["norm"][first] and int(index["path"][row]) not in special)
    return [row for row in mine if int(index["oid"][row]) < 1 << 63][:SHARED]


def _block(
    state: State, site: Array, names: list[str], links: list[tuple[int, int, int, bytes, int]], index: dict[str, Array]
) -> Block:
    norm, path, target, texts, parent = (list(part) for part in zip(*links, strict=True))
    distinct = sorted(set(target))
    https = [int(ContribFlag.HTTPS) if names[one].startswith("https") else 0 for one in target]
    norm_of = dict(zip(target, norm, strict=True))
    return Block(
        norm=np.array(norm, np.uint64),
        path=np.array(path, np.uint64),
        site=site[target],
        lastmod=np.zeros(len(links), np.uint32),
        parent=np.arange(len(links), dtype=np.uint32),
        parent_weight=(np.array(path, np.uint64) % np.uint64(60_000)).astype(np.uint16),
        flags=np.array(https, np.uint16),
        section=np.ones(len(links), np.uint8),
        texts=texts,
        sites=site[distinct],
        norms=np.array([norm_of[one] for one in distinct], np.uint64),
        names=[names[one].encode() for one in distinct],
        parents_site=index["site"][parent],
        parents_path=index["path"][parent],
        filter_version=state.control.filter,
    )
