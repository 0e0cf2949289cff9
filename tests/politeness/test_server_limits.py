"""Delays and back-offs of groups: what the last state knows and what an interrupted run has journalled count together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shepherd.config import Politeness
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JOURNAL, SERVERS, JournalFlag, Result, empty
from shepherd.politeness.groups.engine import Change, Setting
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.politeness.server_limits import ServerLimits
from shepherd.politeness.site_pauses import SitePause
from shepherd.politeness.strange_ports import has_unusual_port
from shepherd.politeness.tenants import owner_of
from shepherd.store.state.columns import Table, TableWriter
from shepherd.urls import qkey_of_address
from tests.support.groups import OneByOne, at_once

QKEY, SITE = qkey_of_address("192.0.2.1"), 7
START_MS, DELAY_MS = 1_700_000_000_000, 1_000
NAMES = {SITE: "http://a.example", 8: "http://www.a.example", 9: "http://b.example", 10: "http://a.example:81"}


def one_server(directory: Path, backoff: int) -> Table:
    columns = empty(SERVERS, 1)
    columns["qkey"][0], columns["delay_ms"][0], columns["slots"][0], columns["backoff"][0] = QKEY, DELAY_MS, 1, backoff
    directory.mkdir()
    writer = TableWriter(directory, SERVERS)
    writer.append(columns)
    return Table(directory, SERVERS, writer.finish())


class Names:
    def name_of(self, site: int) -> str:
        return NAMES[site]

    def is_strange(self, site: int) -> bool:
        return has_unusual_port(NAMES[site])


def limits_of(servers: Table, pauses: Sequence[SitePause] = (), unsure_ms: int = 0) -> ServerLimits:
    return ServerLimits(servers, pauses, unsure_ms, START_MS, Politeness(), Names())


@pytest.mark.parametrize(("statuses", "steps"), [((503,), 3), ((503, 429), 4), ((), 2), ((503,) * 9, 6)])
def test_failures_of_an_interrupted_run_add_to_the_stored_back_off(tmp_path: Path, statuses: tuple[int, ...], steps: int) -> None:
    """As cork would count them: else a crash would let the server be asked sooner."""
    groups = OneByOne(MemoryGroups(lease_ms=1_000, delay_ms=DELAY_MS))
    limits = limits_of(one_server(tmp_path / "servers", backoff=2))
    journal = np.zeros(len(statuses), JOURNAL)
    journal["qkey"], journal["status"], journal["result"] = QKEY, statuses, Result.SOFT
    journal["flags"], journal["end_ms"], journal["answered"] = JournalFlag.CONTACTED, START_MS - 1, SITE
    limits.replay(journal)
    limits.attach_site(SITE, QKEY, 0, DELAY_MS, 0)
    at_once(groups.engine.change(limits.take_changes()))
    groups.add(1, QKEY, SITE, 0)
    assert groups.next(START_MS) is None
    assert groups.next_time() == START_MS + (DELAY_MS << steps)


def test_closed_port_that_never_answered_does_not_slow_its_server(tmp_path: Path) -> None:
    limits = limits_of(one_server(tmp_path / "servers", backoff=2))
    group = limits.attach_site(10, QKEY, 0, DELAY_MS, 0)
    closed = Entry(result=Result.CONNECTION, flags=JournalFlag.CONTACTED, end_ms=START_MS)
    for site, result, level in ((10, Result.CONNECTION, 2), (SITE, Result.CONNECTION, 3), (10, Result.STORED, 0)):
        limits.take_changes()
        limits.after_answer(group, site, closed._replace(result=result))
        changes = [change.value for change in limits.take_changes() if change.setting == Setting.BACK_OFF]
        assert changes == ([level] if level != 2 else [])
    limits.after_answer(group, 10, closed)  # it has answered: now it counts
    assert [change.value for change in limits.take_changes() if change.setting == Setting.BACK_OFF] == [1]


def test_pause_holds_its_site_in_full_and_its_server_up_to_the_bound_or_with_another_owner(tmp_path: Path) -> None:
    table, far_ms = one_server(tmp_path / "servers", backoff=0), START_MS + 3_600_000
    pauses = [SitePause(site, QKEY, 0, owner_of(NAMES[site]), far_ms + site, START_MS + 60_000) for site in (SITE, 8, 9)]
    for some, until_ms in ((pauses[:2], START_MS + 60_000), (pauses, far_ms + 8)):
        limits = limits_of(table, some)
        group = limits.attach_site(SITE, QKEY, 0, DELAY_MS, 0)
        changes = limits.take_changes()
        assert max(change.value for change in changes if (change.setting, change.key) == (Setting.HOLD, group)) == until_ms
        assert Change(Setting.HOLD_OF_SITE, SITE, far_ms + SITE) in changes


def test_crawl_delay_binds_the_server_up_to_the_bound_or_with_another_owner(tmp_path: Path) -> None:
    limits = limits_of(one_server(tmp_path / "servers", backoff=0))
    for site, delay_ms in ((SITE, 60_000), (8, 60_000), (9, 600_000)):
        group = limits.attach_site(site, QKEY, 0, DELAY_MS, 600_000 + site - SITE)
        delays = [change.value for change in limits.take_changes() if (change.setting, change.key) == (Setting.DELAY, group)]
        assert max([60_000, *delays]) // 1_000 == delay_ms // 1_000
