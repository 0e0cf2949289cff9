"""The ranking of a database: what counts as a link, and the same ranks as networkx has for the same graph."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np
import pytest

from shepherd.config import Config, Store
from shepherd.cycle.rank import drive as rank
from shepherd.cycle.rank import graph as rank_graph
from shepherd.cycle.rank.drive import RankOptions, RankResult
from shepherd.cycle.rank.rules import WHOLE
from shepherd.errors import Corruption, NothingToDo
from shepherd.formats import feedback
from shepherd.formats.frame import frames as frames_of
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import Footprints, parse
from tests.support.page_states import Herd, Page, make_herd
from tests.worlds import KEY

EXACT = RankOptions(tolerance=1e-12, iterations=1_000, top=1_000)
PRINTS = Footprints(KEY)


def links(*urls: str) -> bytes:
    """Attribute L of a page that links to these."""
    return np.array([PRINTS.of(parse(url))[:2] for url in urls], "<u8").tobytes()


def page(url: str, *to: str, flags: int = 0, weight: int = 1, **attributes: bytes) -> Page:
    found = {"S": b"HTTP/1.1 200 OK", "L": links(*to), **attributes}
    return Page(url, RowType.GATHERED, Reason.GATHERED, b"<p>", found, {"flags": flags, "weight": weight, "gathered": 9})


def known(url: str, kind: RowType = RowType.SLEEPING, flags: int = 0) -> Page:
    return Page(url, kind, columns={"flags": flags, "weight": 1})


def herd_of(directory: Path, pages: Iterable[Page]) -> Herd:
    return make_herd(directory, tuple(pages), sites=(), links=())


def ranked(
    herd: Herd, config: Config | None = None, how: RankOptions = EXACT
) -> tuple[dict[str, float], RankResult, list[bytes]]:
    """Ranks by URL, in parts of all; what was found, and the frames of feedback."""
    frames: list[bytes] = []
    state = herd.store.closed()
    config = replace(config or Config(), directory=herd.cf)
    with tempfile.TemporaryDirectory() as scratch:
        found = rank.run(state, config, how, Path(scratch), frames.append)
    shares = {row: value / WHOLE for row, value in zip(found.best.rows.tolist(), found.best.values.tolist(), strict=True)}
    return {state.objects.head(state.index["oid"].value(row)).url: share for row, share in shares.items()}, found, frames


def weights_by_url(herd: Herd, frames: list[bytes]) -> dict[str, int]:
    """Weights by URL."""
    return dict(_weights_by_url(herd.store.closed(), frames))


def _weights_by_url(state: State, frames: list[bytes]) -> Iterator[tuple[str, int]]:
    for record in (one for data in frames for part in frames_of(data) for one in feedback.unpack(part)):
        site = lookup.site_row(state, int(record["site"]))
        assert site is not None
        row = lookup.row_of(state, state.sites["norm"].value(site), int(record["path"]), int(record["site"]))
        assert row is not None and record["flags"] == 1
        yield state.objects.head(state.index["oid"].value(row)).url, int(record["weight"])


def by_networkx(graph: dict[str, list[str]], damping: float = 0.85) -> dict[str, float]:
    edges = networkx.DiGraph(graph)
    edges.remove_edges_from([(page, page) for page in graph])
    return dict(networkx.pagerank(edges, alpha=damping, max_iter=1_000, tol=1e-13))


def test_ranks_of_a_database_are_those_of_networkx(tmp_path: Path) -> None:
    """Pages of several sites with many links, also double ones, to themselves and to unknown URLs."""
    draw = random.Random(7)
    urls = [f"http://{site}.example/{n}" for site in "abcdefg" for n in range(30)]
    pages = {url: draw.choices(urls[: 1 + len(urls) // draw.randint(1, 9)], k=draw.randint(0, 12)) for url in urls[:150]}
    strangers = [f"http://a.example/unknown{n}" for n in range(3)]
    stored = [page(url, *to, url, *strangers) for url, to in pages.items()] + [known(url) for url in urls[150:]]
    ranks, found, _frames = ranked(herd_of(tmp_path, stored))
    assert ranks == pytest.approx(by_networkx({url: pages.get(url, []) for url in urls}), rel=1e-7)
    assert (found.documents, found.buckets, found.unknown) == (210, 150, 450)
    assert found.links == sum(len({*to} - {url}) for url, to in pages.items())
    assert found.dangling == 60 + sum(not {*to} - {url} for url, to in pages.items())


def test_partitions_do_not_change_the_feedback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    urls = [f"http://{site}.example/{n}" for site in "abc" for n in range(20)]
    herd = herd_of(tmp_path, [page(url, *draw.choices(urls, k=5)) for url in urls])
    whole = b"".join(ranked(herd)[2])
    monkeypatch.setattr(rank_graph, "MOST_LINKS", 7)
    monkeypatch.setattr(rank_graph, "SOME_LINKS", 1)
    parts = ranked(herd, Config(store=Store(partition_rows=9)))[2]
    assert len(parts) == 3
    records = [np.concatenate([feedback.unpack(part) for part in frames_of(data)]).tolist() for data in (whole, b"".join(parts))]
    assert records[0] == records[1]
    assert whole == b"".join(ranked(herd)[2])


A, B, C, D = (f"http://a.example/{n}" for n in "abcd")


def test_redirect_passes_its_rank_on(tmp_path: Path) -> None:
    """Its target is where its parameters are stripped, as that of a link would be."""
    moved = page(B, flags=Flag.REDIRECT, E=f"{C}?utm_x=1".encode(), weight=1)
    lost = page(D, flags=Flag.REDIRECT, E=b"http://b.example/\x1b]0;")
    ranks, _found, _frames = ranked(herd_of(tmp_path, [page(A, B), moved, page(C, A), lost]))
    assert ranks == pytest.approx(by_networkx({A: [B], B: [C], C: [A], D: []}), rel=1e-7)


def test_page_that_names_another_url_passes_its_rank_on(tmp_path: Path) -> None:
    """If what it calls its own URL is known: else its links count."""
    copy = page(B, D, flags=Flag.ELSEWHERE, K=C.encode())
    stray = page(D, A, flags=Flag.ELSEWHERE, K=b"http://a.example/unknown")
    own = page(C, A, flags=0, K=D.encode())  # no flag: it is its own
    ranks, _found, _frames = ranked(herd_of(tmp_path, [page(A, B), copy, own, stray]))
    assert ranks == pytest.approx(by_networkx({A: [B], B: [C], C: [A], D: [A]}), rel=1e-7)


def test_root_pages_of_one_document_share_its_rank(tmp_path: Path) -> None:
    """A link to one of them is a link to all; a page stands before a redirect to it."""
    plain, secure, www = "http://b.example/", "https://b.example/", "https://www.b.example/"
    roots = [
        page(plain, flags=Flag.REDIRECT | Flag.EQUIV, E=www.encode()),
        known(secure, RowType.UNGATHERED, Flag.EQUIV),
        page(www, A, flags=Flag.EQUIV),
    ]
    herd = herd_of(tmp_path, [page(A, plain, secure, www), page(B, plain), *roots])
    ranks, found, frames = ranked(herd)
    assert ranks == pytest.approx(by_networkx({A: [www], B: [www], www: [A]}), rel=1e-7)
    assert found.links == 3
    weights = weights_by_url(herd, frames)
    assert weights[plain] == weights[secure] == weights[www] > weights[B]


def test_robots_files_errors_and_forgotten_rows_are_not_ranked(tmp_path: Path) -> None:
    robots, gone, lost = "http://a.example/robots.txt", C, D
    pages = [
        page(A, robots, gone, lost, B),
        page(B, A),
        page(robots, A, flags=Flag.ROBOTS),
        replace(page(gone, A), type=RowType.ERROR),
        replace(page(lost, A), type=RowType.FORGOTTEN),
    ]
    herd = herd_of(tmp_path, pages)
    ranks, found, frames = ranked(herd)
    assert ranks == pytest.approx({A: 0.5, B: 0.5})
    assert found.unknown == 3
    assert set(weights_by_url(herd, frames)) == {A, B}


def test_only_rows_whose_weight_changes_are_in_the_feedback(tmp_path: Path) -> None:
    herd = herd_of(
        tmp_path, [page(A, B, weight=40_000 - 4 * 2_048), page(B, A, weight=5), page(C, weight=60_000, flags=Flag.PINNED)]
    )
    ranks, found, frames = ranked(herd)
    weights = weights_by_url(herd, frames)
    assert ranks[A] == ranks[B] > 1 / 3 > ranks[C]
    assert weights[A] == weights[B] > 40_000 - 4 * 2_048
    assert C not in weights  # pinned: what it has is more
    assert found.changed == len(weights) == 2
    herd = herd_of(tmp_path / "again", [page(A, B, weight=weights[A]), page(B, A, weight=weights[B]), page(C, weight=9)])
    assert set(weights_by_url(herd, ranked(herd)[2])) == {C}


def test_links_of_a_sleeping_page_count(tmp_path: Path) -> None:
    """What sleeps keeps its bucket until a cleanup, and with it its links; what was never gathered has none."""
    asleep = replace(page(B, A), type=RowType.SLEEPING)
    ranks, found, _frames = ranked(herd_of(tmp_path, [page(A), asleep, known(C, RowType.UNGATHERED)]))
    assert ranks == pytest.approx(by_networkx({A: [], B: [A], C: []}), rel=1e-7)
    assert found.buckets == 2


def test_torn_or_overlong_attribute_of_links_does_not_stop_the_ranking(tmp_path: Path) -> None:
    """Nor do more links than a page can have count."""
    many = page(B, *[C] * 255, A, D)
    torn = page(A, B)
    torn.attributes["L"] += b"\x00\x01"
    ranks, found, _frames = ranked(herd_of(tmp_path, [torn, many, known(C), known(D)]))
    assert ranks == pytest.approx(by_networkx({A: [B], B: [C, A], C: [], D: []}), rel=1e-7)
    assert found.links == 3


def test_damaged_bucket_stops_the_ranking(tmp_path: Path) -> None:
    herd = herd_of(tmp_path, [page(A, B), page(B, A)])
    (segment,) = (herd.store.closed().path / "objects").iterdir()
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.chmod(0o644)
    segment.write_bytes(data)
    with pytest.raises(Corruption, match="damaged"):
        ranked(herd)


def test_nothing_to_rank_is_nothing_to_do(tmp_path: Path) -> None:
    herd = herd_of(tmp_path, [page("http://a.example/robots.txt", flags=Flag.ROBOTS)])
    with pytest.raises(NothingToDo):
        ranked(herd)
    with pytest.raises(NothingToDo):
        rank.run(herd.store.closed(1), Config(), EXACT, herd.db)


def test_turns_end_at_their_number_or_tolerance(tmp_path: Path) -> None:
    herd = herd_of(tmp_path, [page(A, B), page(B, C), page(C, A), page(D, A)])
    assert ranked(herd, how=replace(EXACT, iterations=3))[1].turns == 3
    loose, strict = (ranked(herd, how=replace(EXACT, tolerance=tolerance))[1] for tolerance in (1e-2, 1e-9))
    assert loose.turns < strict.turns < 200
    assert strict.change <= 1e-9
