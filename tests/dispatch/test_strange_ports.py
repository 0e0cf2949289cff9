"""A page links to sixty closed ports of a server: its honest pages are gathered as if it did not; by the server's own log."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from shepherd.formats.tables import JournalFlag, Kind
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash.test_politeness import PAGE, Garden, garden
from tests.support.origin import Answer

pytestmark = pytest.mark.waits

HONEST, CLOSED = 30, 60
DELAY_S = 0.05


def closed_ports(address: str) -> list[int]:
    """Ports on which nobody listens."""
    with socket.create_server((address, 0)) as probe:
        first = probe.getsockname()[1]
    candidates = range(20_000, 32_000, 7) if first >= 32_000 else range(40_000, 60_000, 7)
    return [port for port in candidates if _is_closed(address, port)][:CLOSED]


def _is_closed(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) != 0


def honest_pages(one: Garden) -> int:
    """How many came in as many turns of the group as they take by themselves: connections that died in between are turns, too."""
    state = Database(one.home / "db").closed()
    journal = state.journal(state.numbered(names.JOURNAL)[-1])
    contacts = journal[np.isin(journal["kind"], (Kind.PAGE, Kind.ROBOTS)) & (journal["flags"] & JournalFlag.CONTACTED > 0)]
    honest = contacts["site"] == contacts["site"][contacts["status"] == 200][0]
    assert not honest.all(), "nobody attacked: nothing was tested"
    return int((contacts["status"][: np.count_nonzero(honest)] == 200).sum())


def test_closed_ports_of_a_server_do_not_starve_its_pages(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {f"/{n}": PAGE for n in range(HONEST + 1)}
    with garden(tmp_path, routes, DELAY_S) as one:
        (tmp_path / "cf" / "static").write_text("")
        host = f"http://127.0.4.1:{one.origin.port}"
        one.cycle_to_plan(f"{host}/{HONEST}")
        one.must("shep-reap", "--seconds", "30")
        one.must("shep-cork", "-q")
        ports = closed_ports("127.0.4.1")
        assert len(ports) == CLOSED
        one.must("shep", "insert", "--weight", "60000", *(f"http://127.0.4.1:{port}/" for port in ports))
        one.plan(*(f"{host}/{n}" for n in range(HONEST)))
        one.must("shep-reap", "--seconds", "60")
        one.must("shep-cork", "-q")
        assert honest_pages(one) >= 0.95 * HONEST
        state = Database(tmp_path / "db").closed()
        assert state.servers["backoff"].value(0) == 0
        assert len(set(one.origin.paths())) == HONEST + 2  # robots.txt and all pages
        assert one.run("shep", "audit", "politeness").returncode == 0
