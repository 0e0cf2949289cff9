"""A footprint that two names claim is refused, wherever the two meet: a site is never merged with a stranger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shepherd.arrays.column_spill import ColumnSpill
from shepherd.cycle.common.norms import norm_map
from shepherd.cycle.merge import contributions
from shepherd.cycle.merge.contributions import CONTRIBUTED, NAMED, ContributionSpill
from shepherd.equiv import parse_equiv
from shepherd.formats.contribkeys import BlockKeys
from shepherd.formats.tables import U64
from shepherd.formats.texts import Texts
from tests import worlds
from tests.worlds import NOW, PRINTS

KNOWN, STRANGER, OTHER = "http://known.example", "http://stranger.example", "http://other.example"
CLAIMED = PRINTS.half(KNOWN)


def block(names: Sequence[str], sites: Sequence[int]) -> BlockKeys:
    """A URL of each site, with these footprints."""
    site, zeros = np.array(sites, np.uint64), np.zeros(len(sites), np.uint64)
    narrow = zeros.astype(np.uint16)
    texts = Texts.of([name.encode() for name in names])
    return BlockKeys(zeros, zeros, site, narrow, narrow, zeros.astype(np.uint8), zeros.astype(np.uint32), site, zeros, texts)


def refused(home: Path, known: Sequence[str], *blocks: BlockKeys) -> list[int]:
    db = worlds.create(home)
    with worlds.next_state(db) as builder:
        worlds.write_world(builder, [], {name: {} for name in known})
    no_borders: U64 = np.zeros(0, np.uint64)
    norms = norm_map(parse_equiv(""), PRINTS)
    with ColumnSpill(home, CONTRIBUTED, "norm", no_borders) as urls, ColumnSpill(home, NAMED, "site", no_borders, True) as named:
        spill = ContributionSpill(db.furthest(), norms, 0, urls, named, NOW)
        for ordinal, one in enumerate(blocks):
            spill.add(1, ordinal, one)
        spill.end()
        return [int(site) for site in spill.refused]


def test_stranger_to_a_known_site_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, [KNOWN], block([STRANGER, OTHER], [CLAIMED, PRINTS.half(OTHER)])) == [CLAIMED]


def test_two_new_names_in_one_sitting_are_refused(tmp_path: Path) -> None:
    both = block([KNOWN], [CLAIMED]), block([STRANGER, OTHER], [CLAIMED, PRINTS.half(OTHER)])
    assert refused(tmp_path, [], *both) == [CLAIMED]


def test_two_new_names_in_different_sittings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contributions, "SITTING_ROWS", 1)
    both = block([KNOWN], [CLAIMED]), block([STRANGER, OTHER], [CLAIMED, PRINTS.half(OTHER)])
    assert refused(tmp_path, [], *both) == [CLAIMED]


def test_same_name_again_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contributions, "SITTING_ROWS", 2)
    one = block([KNOWN], [CLAIMED])
    assert refused(tmp_path / "known", [KNOWN], one, one, one) == []
    assert refused(tmp_path / "new", [], one, one, one) == []
