"""The rows of a made index, some normalised sites at a time: which URLs there are, and what is known of each.

Of a hundred rows about 43 are gathered and 53 asleep, the heavier ones gathered; a few are new, a few are errors. Pages were
gathered in the last five weeks, so at any time some are due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import made_text
import numpy as np
import numpy.typing as npt
from made_web import KEY, Web

from shepherd.formats import tables
from shepherd.formats.tables import NO_OID, Flag, Reason, RowType
from shepherd.urls import Footprints

Array = npt.NDArray[Any]

NOW = 1_790_000_000
DAY = 86_400
STATE = 2  # the number of the state that is made
SEGMENT_BUCKETS = 160_000  # in 1 GiB
_PRINTS = Footprints(KEY)
ROBOTS, ROOT = _PRINTS.half("/robots.txt"), _PRINTS.half("/")
_PAGE, _ROBOTS, _ROOT = range(3)
_PATH_BITS = 44  # of a path's footprint that stand beside the norm in a sort key

# Up to these shares of errors: status, reason, retry
_ERRORS = ((0.6, 404, Reason.CLIENT_ERROR), (0.8, 500, Reason.SERVER_ERROR), (0.9, 0, Reason.CONNECTION), (1, 0, Reason.TOO_SLOW))


@dataclass(frozen=True)
class Urls:
    """The URLs of a part, in the order of the index."""

    norm: Array  # number of the normalised site
    site: Array  # number of the site
    path: Array  # footprint
    kind: Array
    text: list[bytes]  # the paths themselves; only where footprints are real


def make_urls(web: Web, first: int, last: int) -> Urls:
    """All URLs of the normalised sites from `first` to `last`."""
    rng = np.random.default_rng((web.seed, 1, first))
    sites = np.diff(web.first_site[first : last + 1].astype(np.int64))
    pages = np.diff(web.first_row[first : last + 1].astype(np.int64)) - 2 * sites
    norm = np.repeat(np.arange(last - first), pages)
    path, text = _real_paths(web, first, norm) if web.real else (_random_paths(rng, norm), [])
    return _with_special(web, first, last, norm, web.draw_sites(rng, first + norm), path, text)


def _random_paths(rng: np.random.Generator, norm: Array) -> Array:
    """Random footprints in order; that sort is quicker than one by two keys."""
    keys = np.sort(norm.astype(np.uint64) << np.uint64(_PATH_BITS) | rng.integers(0, 1 << _PATH_BITS, len(norm), np.uint64))
    mask = np.uint64((1 << _PATH_BITS) - 1)
    for special in (ROBOTS, ROOT):
        keys += (keys & mask) == np.uint64(special >> 64 - _PATH_BITS)
    while (same := keys[1:] == keys[:-1]).any():
        keys[1:] += same
    low = rng.integers(0, 1 << 64 - _PATH_BITS, len(norm), np.uint64)
    return np.asarray((keys & mask) << np.uint64(64 - _PATH_BITS) | low)


def _real_paths(web: Web, first: int, norm: Array) -> tuple[Array, list[bytes]]:
    """Footprints of real texts, in order; a row's number makes its text unlike any other."""
    text = made_text.paths(np.arange(len(norm)) + int(web.first_row[first])).split()
    path = np.fromiter((_PRINTS.half(t.decode()) for t in text), np.uint64, len(text))
    order = np.lexsort((path, norm))
    return path[order], [text[i] for i in order.tolist()]


def _with_special(web: Web, first: int, last: int, norm: Array, site: Array, path: Array, text: list[bytes]) -> Urls:
    """The pages with the robots.txt and the root page of each site put between them."""
    begin, end = int(web.first_site[first]), int(web.first_site[last])
    sites = np.arange(begin, end)
    norms = web.norm_of_site(sites) - first
    order = np.lexsort((web.site[begin:end], norms))
    special = sorted(((ROBOTS, _ROBOTS, b"/robots.txt"), (ROOT, _ROOT, b"/")))
    key_norm, key_site = np.tile(norms[order], 2), np.tile(sites[order], 2)
    key_path = np.repeat(np.array([s[0] for s in special], np.uint64), end - begin)
    key_kind = np.repeat(np.array([s[1] for s in special], np.uint8), end - begin)
    by_norm = np.argsort(key_norm, kind="stable")  # stable: within a normalised site the smaller path first, then by site
    key_norm, key_site, key_path, key_kind = (a[by_norm] for a in (key_norm, key_site, key_path, key_kind))

    shift = np.uint64(64 - _PATH_BITS)
    keys = norm.astype(np.uint64) << np.uint64(_PATH_BITS) | path >> shift
    at = np.searchsorted(keys, key_norm.astype(np.uint64) << np.uint64(_PATH_BITS) | key_path >> shift)
    whole = [np.insert(a, at, b) for a, b in ((norm, key_norm), (site, key_site), (path, key_path))]
    kind = np.insert(np.zeros(len(norm), np.uint8), at, key_kind)
    if text:
        spelled = {s[1]: s[2] for s in special}
        pages = iter(text)
        text = [spelled.get(k) or next(pages) for k in kind.tolist()]
    return Urls(whole[0] + first, whole[1], whole[2], kind, text)


def make_rows(web: Web, first: int, last: int, urls: Urls) -> dict[str, Array]:
    """All columns of these rows. Oids are of buckets that nobody made: whoever makes buckets replaces them."""
    rng = np.random.default_rng((web.seed, 2, first))
    rows = len(urls.norm)
    columns = tables.empty(tables.INDEX, rows)
    columns["norm"], columns["path"], columns["site"] = web.norm[urls.norm], urls.path, web.site[urls.site]
    special = urls.kind != _PAGE
    luck = 1 - rng.random(rows, np.float32)  # never 0
    columns["weight"] = np.clip(800 * luck**-1.2 + rng.integers(0, 400, rows), 1, 65_535)  # the best tenth above 12,000
    columns["weight"][special] = np.maximum(columns["weight"][special], 5_000)
    type_ = _types(rng, luck, special)
    columns["type"] = type_
    columns["flags"] = np.choose(urls.kind, (0, int(Flag.ROBOTS), int(Flag.EQUIV)))
    pinned = rng.integers(0, 1_000, rows, np.uint16) == 0
    columns["flags"][pinned & ~special & (type_ == RowType.GATHERED)] |= np.uint16(Flag.INITIAL)
    gathered, failed = type_ == RowType.GATHERED, type_ == RowType.ERROR
    _times(columns, rng, gathered, failed)
    _answers(columns, rng, gathered, failed)
    has_bucket = type_ != RowType.FORGOTTEN
    columns["oid"] = np.where(has_bucket, _oids(web, first, rows), np.uint64(NO_OID))
    columns["size"] = np.where(gathered, 2_000 + rng.integers(0, 20_000, rows, np.uint32), np.where(has_bucket, 130, 0))
    return {name: np.asarray(columns[name], dtype) for name, dtype in tables.INDEX.items()}


def _oids(web: Web, first: int, rows: int) -> Array:
    """A place of its own for each row, in no order that the index knows."""
    number = np.arange(rows, dtype=np.uint64) + np.uint64(web.first_row[first])
    place = number * np.uint64(0x9E3779B1) & np.uint64((1 << web.rows.bit_length()) - 1)
    segment, nth = np.divmod(place, np.uint64(SEGMENT_BUCKETS))
    return np.asarray(segment + np.uint64(1) << np.uint64(32) | nth * np.uint64((1 << 30) // SEGMENT_BUCKETS))


def last_segment(web: Web) -> int:
    return (1 << web.rows.bit_length()) // SEGMENT_BUCKETS + 1


def _types(rng: np.random.Generator, luck: Array, special: Array) -> Array:
    other = rng.random(len(luck), np.float32)
    awake = (luck < 0.43) | special
    awake ^= ~special & (other > 0.985)  # some have a weight that has changed since
    type_ = np.where(awake, np.uint8(RowType.GATHERED), np.uint8(RowType.SLEEPING))
    type_[awake & (other < 0.05)] = RowType.UNGATHERED
    type_[(other >= 0.05) & (other < 0.07)] = RowType.ERROR
    type_[~special & (other >= 0.07) & (other < 0.075)] = RowType.FORGOTTEN
    return type_


def _times(columns: dict[str, Array], rng: np.random.Generator, gathered: Array, failed: Array) -> None:
    """Fills the columns of times: of what was gathered or tried."""
    rows = len(gathered)
    checked = NOW - 3_600 - rng.integers(0, 35 * DAY, rows, np.uint32)
    since = rng.integers(0, 60 * DAY, rows, np.uint32) // 3  # some were fetched again and had not changed
    fetched = np.where(since < 8 * DAY, checked, checked - (since - 8 * DAY))
    columns["checked"] = np.where(gathered | failed, checked, 0)
    columns["gathered"] = np.where(gathered, fetched, 0)
    columns["changed"] = np.where(gathered, fetched - since % (3 * DAY), 0)
    columns["touched"][:] = STATE
    columns["frequency"] = np.where(gathered, np.array([1, 1, 1, 1, 1, 1, 2, 4], np.uint8)[rng.integers(0, 8, rows, np.uint8)], 1)


def _answers(columns: dict[str, Array], rng: np.random.Generator, gathered: Array, failed: Array) -> None:
    """Fills what a server's answer says: status, reason, digest and the like."""
    rows = len(gathered)
    columns["digest"] = np.where(gathered, rng.integers(1, 1 << 64, rows, np.uint64), np.uint64(0))
    columns["download_ms"] = np.where(gathered, 20 + rng.integers(0, 500, rows, np.uint32), 0)
    columns["section"] = np.where(rng.integers(0, 10, rows, np.uint8) == 0, 2, 1)
    reasons = np.zeros(6, np.uint8)
    for type_, reason in (
        (RowType.SLEEPING, Reason.BELOW_BAR),
        (RowType.UNGATHERED, Reason.LINK),
        (RowType.GATHERED, Reason.GATHERED),
        (RowType.FORGOTTEN, Reason.BELOW_SLEEP),
    ):
        reasons[type_] = reason
    columns["reason"] = reasons[columns["type"]]
    columns["status"] = np.where(gathered, 200, 0)
    bad = np.flatnonzero(failed)
    which = np.searchsorted([e[0] for e in _ERRORS], rng.random(len(bad)))
    columns["status"][bad] = np.array([e[1] for e in _ERRORS], np.uint16)[which]
    columns["reason"][bad] = np.array([e[2] for e in _ERRORS], np.uint8)[which]
    columns["retry"][bad] = rng.integers(1, 5, len(bad), np.uint8)
