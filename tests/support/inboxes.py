"""What waits in an inbox, read as a merge reads it, and as a person would tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shepherd.arrays.distinct_urls import Paths
from shepherd.config import Config
from shepherd.cycle.common.norms import norm_map
from shepherd.cycle.merge.waiting import Waiting, survey
from shepherd.equiv import parse_equiv
from shepherd.filters import Filter
from shepherd.formats import contrib
from shepherd.formats.contrib import Block
from shepherd.formats.tables import ContribFlag, Records
from shepherd.store.state import inserts
from shepherd.store.state.database import Database
from shepherd.store.state.inbox import CONTRIB, InboxItem
from shepherd.urls import Footprints

KEY = bytes(range(16))


@dataclass(frozen=True)
class Taken:
    """What a merge takes of some items: URLs that are inserted (and those that are purged), edits, and what it reports."""

    urls: list[str]
    purged: list[str]
    edits: Records
    bad: list[str]
    weights: list[int]
    sections: list[int]
    requests: int


def take(items: Sequence[InboxItem], filters: Filter, config: Config | None = None, equiv: str = "") -> Taken:
    prints = Footprints(KEY)
    found = survey(items, KEY)
    paths = Paths.of(prints)
    waiting = Waiting(found, filters, config or Config(), prints, norm_map(parse_equiv(equiv), prints), paths)
    waiting.read_edits()
    rows = [row for one in waiting.contributed() for row in told(contrib.decode(one.frame.payload), one.rows.tolist())]
    new, gone = [row for row in rows if row["op"] == "insert"], [row["url"] for row in rows if row["op"] != "insert"]
    edits = waiting.edits
    bad = [*found.refused, *waiting.faults.words(), *waiting.in_vain.words()]
    assert len(new) == waiting.inserted
    return Taken(
        [row["url"] for row in new],
        gone,
        edits,
        bad,
        [row["weight"] for row in new],
        [row["section"] for row in new],
        len(new) + len(edits),
    )


def told(block: Block, rows: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """Records of a block."""
    for row in range(len(block)) if rows is None else rows:
        flags = int(block.flags[row])
        name = block.names[int(np.flatnonzero(block.sites == block.site[row])[0])]
        yield {
            "op": "insert" if flags & ContribFlag.INSERTED else "contrib",
            "url": (name + block.texts[row]).decode(),
            "weight": int(block.parent_weight[row]),
            "pinned": bool(flags & ContribFlag.PINNED),
            "section": int(block.section[row]),
            "own section": bool(flags & ContribFlag.OWN_SECTION),
        }


def inserted(database: Database) -> list[dict[str, Any]]:
    """The URLs that wait as contributions in an inbox, in order, and who left them."""
    found: list[dict[str, Any]] = []
    for item in database.inbox.items(CONTRIB):
        by = inserts.inspect(item.path, database.key()).by
        for frame in inserts.frames(item.path):
            found += [row | {"by": by} for row in told(contrib.decode(frame.payload))]
    return found
