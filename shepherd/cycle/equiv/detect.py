"""Looks for sites that serve the same documents, and proposes classes for cf/url-equiv, each with its evidence.

Reads one closed state and changes nothing. Candidates come from root pages: equal ones, and redirects from one to another. Then
the pages that two candidates have under the same path are compared, by digest and, for some that differ, by simhash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shepherd.arrays.keys import with_flag
from shepherd.arrays.partitions import Tick, partitions
from shepherd.cycle.equiv import rules
from shepherd.cycle.equiv.rules import Agreement
from shepherd.errors import BadUrl
from shepherd.formats.tables import U64, Columns, Flag, RowType, in_bucket
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import ROOT_PATH, norm_of, parse

READ: Final = ("norm", "path", "site", "type", "flags", "digest", "oid")
MOST_SAMPLED: Final = 20  # pages of two sites whose simhashes are compared
STEP: Final = 500_000


@dataclass(frozen=True)
class Evidence:
    """Why two sites may be one."""

    roots_equal: bool
    redirect: bool
    agreement: Agreement
    near: int  # pages that differ, but hardly

    def convinces(self, least_common: int, share_percent: int) -> bool:
        """A redirect between roots says it all; else enough pages must be there on both, and most of them equal."""
        same = self.agreement.equal + self.near
        return self.redirect or (self.agreement.common >= least_common and 100 * same >= share_percent * self.agreement.common)

    def __str__(self) -> str:
        phrases = [f"{self.agreement.equal} of {self.agreement.common} common pages equal"]
        phrases += [f"{self.near} nearly"] if self.near else []
        phrases += ["roots equal"] if self.roots_equal else []
        phrases += ["its root redirects there"] if self.redirect else []
        return ", ".join(phrases)


@dataclass(frozen=True)
class Proposal:
    """A class: the representative first, and for each other name why."""

    names: tuple[str, ...]
    evidence: tuple[Evidence, ...]


@dataclass
class _Roots:
    norm: list[U64] = field(default_factory=lambda: [np.zeros(0, np.uint64)])
    digest: list[U64] = field(default_factory=lambda: [np.zeros(0, np.uint64)])
    redirects: list[tuple[int, str]] = field(default_factory=list)  # norm, and where its root leads to


def propose(state: State, least_common: int, share_percent: int, tick: Tick) -> Iterator[Proposal]:
    """Proposals, the largest site of each class as its representative; one that a redirect leads to is that in any case."""
    roots = _roots(state, tick)
    pairs: dict[tuple[int, int], tuple[bool, bool]] = {}  # representative, other: roots equal, redirect
    for group in rules.alike(np.concatenate(roots.norm), np.concatenate(roots.digest)):
        first = max(group.tolist(), key=lambda norm: (len(lookup.rows_of_norm(state, norm)), -norm))
        pairs |= {(first, norm): (True, False) for norm in group.tolist() if norm != first}
    for norm, target in roots.redirects:
        there = _root_of(state, target)
        if there is not None and there != norm:
            pairs[there, norm] = (pairs.get((there, norm), (False, False))[0], True)
    classes: dict[int, list[tuple[int, Evidence]]] = {}
    for (first, norm), (equal, redirect) in sorted(pairs.items()):
        some, others = _rows(state, first), _rows(state, norm)
        evidence = Evidence(equal, redirect, rules.agreement(some, others), _nearly(state, some, others))
        if evidence.convinces(least_common, share_percent):
            classes.setdefault(first, []).append((norm, evidence))
    for first, members in sorted(classes.items()):
        names = (_name(state, first), *(_name(state, norm) for norm, _evidence in members))
        yield Proposal(names, tuple(evidence for _norm, evidence in members))


def _roots(state: State, tick: Tick) -> _Roots:
    root, roots = np.uint64(state.prints.root), _Roots()
    for start, stop in partitions(state.index.rows, STEP):
        part = state.index.slice(start, stop, READ)
        mine = {name: column[part["path"] == root] for name, column in part.items()}
        page = rules.has_page(mine)
        roots.norm.append(mine["norm"][page])
        roots.digest.append(mine["digest"][page])
        leads = (mine["type"] == RowType.GATHERED) & with_flag(mine["flags"], Flag.REDIRECT) & in_bucket(mine["oid"])
        for norm, oid in zip(mine["norm"][leads].tolist(), mine["oid"][leads].tolist(), strict=True):
            roots.redirects.append((norm, state.objects.head(oid).attributes.get("E", b"").decode("ascii", "replace")))
        tick(stop - start)
    return roots


def _root_of(state: State, target: str) -> int | None:
    """The norm of a site that is known, by the URL of its root page; None for any other URL."""
    try:
        url = parse(target)
    except BadUrl:
        return None
    norm = state.prints.norm(url.site)
    return norm if url.path == ROOT_PATH and lookup.rows_of_norm(state, norm) else None


def _rows(state: State, norm: int) -> Columns:
    rows = lookup.rows_of_norm(state, norm)
    return state.index.slice(rows.start, rows.stop, READ)


def _nearly(state: State, some: Columns, others: Columns) -> int:
    """How many of the first pages that differ have nearly the same text."""
    mine, theirs = ({int(c["path"][n]): n for n in np.flatnonzero(rules.has_page(c)).tolist()} for c in (some, others))
    pairs = [(row, theirs[path]) for path, row in mine.items() if path in theirs]
    differ = [(a, b) for a, b in pairs if some["digest"][a] != others["digest"][b]]
    near = 0
    for a, b in differ[:MOST_SAMPLED]:
        simhash, other = (state.objects.head(int(c["oid"][n])).attributes.get("h") for c, n in ((some, a), (others, b)))
        if simhash is not None and other is not None:
            near += rules.near(int.from_bytes(simhash, "little"), int.from_bytes(other, "little"))
    return near


def _name(state: State, norm: int) -> str:
    """What url-equiv calls a normalised site: by the name of any site that has this norm."""
    rows = lookup.rows_of_norm(state, norm)
    row = lookup.site_row(state, state.index["site"].value(rows.start))
    return norm_of(state.site_name(row)) if row is not None else f"{norm:016x}"
