"""The same three harvests, corked and merged in all ways that a cycle may cut them, give the same index (select off).

What holds whatever the cut, and what the newest record alone cannot tell, stands in docs/cycle.md.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.formats.tables import INDEX, NO_OID, Result, RowType
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from tests.crash.disks import workplace
from tests.support import sampling
from tests.support.harvests import NOW, Page, begin, harvest, run
from tests.support.random_rows import rows_of

KNOWN = ("http://a.example/", "http://a.example/one", "http://b.example/two", "http://b.example/six")
ROBOTS = tuple(f"http://{host}.example/robots.txt" for host in "ab")
# Not of a page that is gathered here: a link raises the weight of a page before that, and not after it.
LINKS = tuple(f"http://{host}.example/{path}" for host in "acd" for path in "xyz")
GROUPS = (((0,), (1,), (2,)), ((0, 1), (2,)), ((0,), (1, 2)), ((0, 1, 2),))
# Columns that say where and when something was written, or what a plan thought of it, are no part of the law.
COMPARED = tuple(set(INDEX) - {"oid", "size", "touched", "deferred"})
# Of a document that more than one harvest speaks of: what its newest record alone decides, where that has stored a body.
OF_THE_NEWEST = (
    *("norm", "path", "site", "digest", "type", "flags", "status", "weight", "section", "retry", "checked"),
    *("download_ms", "url", "body"),
)
OF_ANY = ("norm", "path", "weight", "checked", "download_ms", "status")
Told = tuple[list[Page], dict[str, int]]


@dataclass(frozen=True)
class Cut:
    """Which harvests each cork applies, after which of them a merge follows, and whether the first come from our own reap."""

    groups: tuple[tuple[int, ...], ...]
    merges: tuple[bool, ...]
    own: bool


AFTER_EACH = Cut(GROUPS[0], (True, True, True), own=False)


@st.composite
def cuts(draw: st.DrawFn, groups: Sequence[tuple[tuple[int, ...], ...]] = GROUPS) -> Cut:
    chosen = draw(st.sampled_from(groups))
    return Cut(chosen, (*(draw(st.booleans()) for _ in chosen[1:]), True), draw(st.booleans()))


@st.composite
def page(draw: st.DrawFn, url: str, number: int) -> Page:
    """Stored, moved or failed; each harvest after the one before it."""
    at = NOW + 10 * number + draw(st.integers(1, 9))
    if draw(st.integers(0, 3)) == 0:
        return Page(url, result=Result.SOFT, status=503, at=at)
    moved = url.replace("http://", "https://www.") if url == KNOWN[1] and draw(st.booleans()) else ""
    return Page(url, draw(st.sampled_from("xy")), at, moved)


@st.composite
def harvests(draw: st.DrawFn, once: bool) -> list[Told]:
    """Three harvests of known pages and robots files, with links; `once`: no two of them speak of one document."""
    found, left = [], list(KNOWN + ROBOTS)
    for number in range(3):
        urls = draw(st.lists(st.sampled_from(left), unique=True, max_size=2 if once else 6)) if left else []
        left = [url for url in left if url not in urls] if once else left
        links = draw(st.dictionaries(st.sampled_from(LINKS), st.integers(1, 60_000), min_size=1, max_size=4))
        found.append(([draw(page(url, number)) for url in urls], links))
    return found


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    with workplace() as home:
        begin(home / "db", KNOWN)
        yield home


def play(pristine: Path, told: Sequence[Told], cut: Cut) -> dict[str, dict[str, object]]:
    """The rows by document, with their bodies, once all is merged in this way."""
    with workplace() as home:
        shutil.copytree(pristine, home / "it")
        db = home / "it" / "db"
        for place, (group, merged) in enumerate(zip(cut.groups, cut.merges, strict=True)):
            own = cut.own and place == 0
            reaped = run(db, "plan").path / names.HARVESTS if own else None
            for number in group:
                where = (reaped or home) / f"h{number}"
                harvest(where, *told[number], end=NOW + 100 + number)
                if not own:
                    Database(db).inbox.drop_harvest(f"1790000000000-elsewhere-7-{number}", where)
            state = run(db, "cork")
            if merged:
                state = run(db, "merge", "select", "record")
        assert [str(fault) for fault in check.walk(Database(db)) if not fault.note] == []
        return documents(state)


def documents(state: State) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    sites = {site["site"]: site for site in rows_of(state.sites.slice(0, state.sites.rows))}
    for row in range(state.index.rows):
        columns: dict[str, object] = {name: state.index[name].value(row) for name in COMPARED}
        site, bucket = state.index["site"].value(row), state.objects.get(state.index["oid"].value(row))
        columns |= {"url": bucket.url, "body": bucket.body() if bucket.stored else b""}
        if bucket.url.endswith("/robots.txt"):
            columns |= {name: sites[site][name] for name in ("robots_status", "robots_checked", "robots_next")}
            oid = sites[site]["robots_oid"]
            columns["robots"] = state.objects.get(oid).body() if oid != NO_OID else b""
        found[key_of(bucket.url)] = columns
    state.objects.close()
    return found


def key_of(url: str) -> str:
    """The document that a URL is of: all known sites have one name with and without `www.`, but each has its own robots file."""
    return url if url.endswith(("/robots.txt", ".example/")) else url.replace("https://www.", "http://")


@settings(max_examples=sampling.EXAMPLES // 8)
@given(told=harvests(once=True), cut=cuts())
def test_harvests_of_different_documents_give_the_same_index_however_they_are_cut(
    pristine: Path, told: list[Told], cut: Cut
) -> None:
    assert play(pristine, told, cut) == play(pristine, told, AFTER_EACH)


@settings(max_examples=sampling.EXAMPLES // 10)
@given(told=harvests(once=False), cut=cuts(GROUPS[:1]))
def test_harvests_that_are_corked_one_by_one_give_the_same_index_whenever_they_are_merged(
    pristine: Path, told: list[Told], cut: Cut
) -> None:
    assert play(pristine, told, cut) == play(pristine, told, AFTER_EACH)


@settings(max_examples=sampling.EXAMPLES // 8)
@given(told=harvests(once=False), cut=cuts(GROUPS[1:]))
def test_harvests_of_the_same_documents_corked_together_keep_what_the_newest_says(
    pristine: Path, told: list[Told], cut: Cut
) -> None:
    together, each = play(pristine, told, cut), play(pristine, told, AFTER_EACH)
    assert together.keys() == each.keys()
    newest = {key_of(one.url): one for pages, _links in told for one in pages}
    times = Counter(key_of(one.url) for pages, _links in told for one in pages)
    for key, row in each.items():
        same = set(row)
        if times[key] > 1:
            same = set(OF_THE_NEWEST) if newest[key].result == Result.STORED else set(OF_ANY)
        assert {name: together[key][name] for name in same} == {name: row[name] for name in same}, key


def test_failure_that_is_the_newest_in_a_cork_hides_the_body_before_it(pristine: Path) -> None:
    """As docs/cycle.md has it; after corks one by one the body is there, and the failure counts."""
    url = KNOWN[2]
    told: list[Told] = [([Page(url, "x", NOW + 1)], {}), ([Page(url, result=Result.SOFT, status=503, at=NOW + 11)], {})]
    told.append(([], {LINKS[0]: 7}))
    together = play(pristine, told, Cut(GROUPS[3], (True,), own=False))[url]
    each = play(pristine, told, Cut(GROUPS[0], (False, False, True), own=False))[url]
    assert (each["body"], each["type"], each["retry"]) == (b"x", RowType.GATHERED, 1)
    assert (together["body"], together["type"], together["retry"]) == (b"", RowType.ERROR, 1)
    assert together["checked"] == each["checked"] == NOW + 11
