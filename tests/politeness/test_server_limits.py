"""Delays and back-offs of groups: what the last state knows and what an interrupted run has journalled count together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shepherd.config import Politeness
from shepherd.formats.tables import JOURNAL, SERVERS, JournalFlag, Result, empty
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.politeness.server_limits import ServerLimits
from shepherd.politeness.site_pauses import SitePause
from shepherd.store.state.columns import Table, TableWriter
from shepherd.urls import qkey_of_address
from tests.support.groups import OneByOne, at_once

QKEY, SITE = qkey_of_address("192.0.2.1"), 7
START_MS, DELAY_MS = 1_700_000_000_000, 1_000
NAMES = {SITE: "http://a.example", 8: "http://www.a.example", 9: "http://b.example"}


def one_server(directory: Path, backoff: int) -> Table:
    columns = empty(SERVERS, 1)
    columns["qkey"][0], columns["delay_ms"][0], columns["slots"][0], columns["backoff"][0] = QKEY, DELAY_MS, 1, backoff
    directory.mkdir()
    writer = TableWriter(directory, SERVERS)
    writer.append(columns)
    return Table(directory, SERVERS, writer.finish())


def limits_of(servers: Table, pauses: Sequence[SitePause] = (), unsure_ms: int = 0) -> ServerLimits:
    return ServerLimits(servers, pauses, unsure_ms, START_MS, Politeness(), NAMES.__getitem__)


@pytest.mark.parametrize(("statuses", "steps"), [((503,), 3), ((503, 429), 4), ((), 2), ((503,) * 9, 6)])
def test_failures_of_an_interrupted_run_add_to_the_stored_back_off(tmp_path: Path, statuses: tuple[int, ...], steps: int) -> None:
    """As cork would count them: else a crash would let the server be asked sooner."""
    groups = OneByOne(MemoryGroups(lease_ms=1_000, delay_ms=DELAY_MS))
    limits = limits_of(one_server(tmp_path / "servers", backoff=2))
    journal = np.zeros(len(statuses), JOURNAL)
    journal["qkey"], journal["status"], journal["result"] = QKEY, statuses, Result.SOFT
    journal["flags"], journal["end_ms"] = JournalFlag.CONTACTED, START_MS - 1
    limits.replay(journal)
    limits.attach_site(SITE, QKEY, 0, DELAY_MS, 0)
    at_once(groups.engine.change(limits.take_changes()))
    groups.add(1, QKEY, SITE, 0)
    assert groups.next(START_MS) is None
    assert groups.next_time() == START_MS + (DELAY_MS << steps)
