"""The hot cache drops what cannot change anything, and only that."""

from __future__ import annotations

import dataclasses

import numpy as np

from shepherd.dispatch.contribute import FLUSH_RECORDS, Contributions, HotCache
from shepherd.formats import contrib
from tests.dispatch.results import FILTER_VERSION, HREFS, a_block


def take(contributions: Contributions, block: contrib.Block) -> int:
    rows = contributions.fresh(block)
    contributions.add(block, rows, [block.texts[row] for row in rows.tolist()])
    return len(rows)


def collector() -> tuple[Contributions, list[contrib.Block]]:
    written: list[contrib.Block] = []
    return Contributions(lambda _count, data: written.append(contrib.decode(data)), FILTER_VERSION), written


def weighing(weight: int) -> contrib.Block:
    block = a_block()
    return dataclasses.replace(block, parent_weight=np.full(len(block), weight, "<u2"))


def test_link_is_contributed_again_only_with_more_weight() -> None:
    contributions, written = collector()
    assert [take(contributions, weighing(w)) for w in (5, 5, 4, 6, 6, 0, 65_535, 65_535)] == [4, 0, 0, 4, 0, 0, 4, 0]
    assert (contributions.link_count, contributions.new_link_count) == (32, 12)
    contributions.flush()
    contributions.flush()
    assert [len(block) for block in written] == [12]
    assert written[0].parent_weight.tolist() == [5] * 4 + [6] * 4 + [65_535] * 4


def test_block_names_only_sites_of_its_links() -> None:
    contributions, written = collector()
    take(contributions, a_block(HREFS[:2]))
    take(contributions, a_block(HREFS))
    contributions.flush()
    (block,) = written
    assert block.names == [name for _site, name in sorted(zip(a_block().sites.tolist(), a_block().names, strict=True))]
    contributions, written = collector()
    take(contributions, a_block(HREFS[:2]))
    contributions.flush()
    take(contributions, a_block())
    contributions.flush()
    assert set(written[1].site.tolist()) == set(written[1].sites.tolist())
    assert written[1].texts == a_block().texts[2:]


def test_blocks_of_several_pages_keep_their_parents() -> None:
    contributions, written = collector()
    other = dataclasses.replace(weighing(900), parents_site=np.array([1], "<u8"), parents_path=np.array([2], "<u8"))
    take(contributions, a_block())
    take(contributions, other)
    contributions.flush()
    assert written[0].parent.tolist() == [0] * 4 + [1] * 4
    assert written[0].parents_path.tolist()[1] == 2


def test_many_links_are_written_before_the_checkpoint() -> None:
    contributions, written = collector()
    for weight in range(FLUSH_RECORDS // 4):
        take(contributions, weighing(weight))
    assert [len(block) for block in written] == [FLUSH_RECORDS]


def test_cache_that_is_full_forgets_and_never_mistakes() -> None:
    cache, rng = HotCache(bits=4), np.random.default_rng(1)
    site, path = rng.integers(0, 1 << 63, (2, 500)).astype(np.uint64)
    weight = np.ones(500, np.uint16)
    cache.put(site, path, weight)
    known = cache.covers(site, path, weight)
    assert 0 < known.sum() <= 16
    assert not cache.covers(path, site, weight).any()
    assert not cache.covers(site, path, weight + np.uint16(1)).any()
    assert not HotCache(bits=4).covers(np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.uint16)).any()
