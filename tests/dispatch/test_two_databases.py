"""Two databases of one machine and one server, as its own log has it: real reaps and real fetches by hand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.store.state import contact_notes as contactnotes
from shepherd.store.state.database import Database
from tests.support.origin import Answer, Origin, hang, ok
from tests.support.reaping import Home, planned
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.waits
DELAY_S = 0.3
PAGES = 5
ROUTES: dict[str, Answer] = {f"a.example/{n}": ok(b"<html>", "Content-Type: text/html") for n in range(PAGES)}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Home, Home, Origin]]:
    """Two databases with the same plan, for the same server, and a directory that both name."""
    routes = ROUTES | {"a.example/silent": hang}
    with planned(tmp_path, routes, [f"http://{route}" for route in ROUTES], [], timeout_s=4) as first:
        toml = first.path / "cf" / "shepherd.toml"
        shared = f'delay_s = {DELAY_S}\nshared = "{tmp_path}/shared"'
        toml.write_text(toml.read_text().replace("delay_s = 0.01", shared))
        yield first, first.copy(tmp_path / "second"), first.origins[0]


def end(reap: subprocess.Popen[str]) -> None:
    _, log = reap.communicate(timeout=PATIENCE_S)
    assert reap.returncode == 0, log


def test_reaps_of_two_databases_never_ask_a_server_at_once_or_too_soon(two: tuple[Home, Home, Origin]) -> None:
    first, second, origin = two
    for reap in [home.start("shep-reap", "-q") for home in (first, second)]:
        end(reap)
    assert sorted(origin.paths()) == sorted(2 * ["/robots.txt", *(f"/{n}" for n in range(PAGES))])
    assert min(origin.gaps_s()) >= DELAY_S


def test_fetch_by_hand_waits_for_the_reap_of_another_database(two: tuple[Home, Home, Origin]) -> None:
    first, second, origin = two
    reap = first.start("shep-reap", "-q")
    wait_until(lambda: origin.seen)
    fetch = second.run("shep", "fetch", "http://a.example/0")
    assert fetch.returncode == 4 and "may be asked from" in fetch.stderr
    second.must("shep", "fetch", "--wait", "http://a.example/0")
    end(reap)
    assert min(origin.gaps_s()) >= DELAY_S


def test_reap_waits_for_the_fetch_by_hand_of_another_database_also_where_that_is_killed(two: tuple[Home, Home, Origin]) -> None:
    first, second, origin = two
    fetch = second.start("shep", "fetch", "--wait", "http://a.example/silent")
    wait_until(lambda: "/silent" in origin.paths())
    fetch.kill()
    fetch.communicate()
    end(first.start("shep-reap", "-q"))
    database = Database(second.db)
    note = contactnotes.waiting(database.inbox, database.furthest().control.applied).records[-1]
    deadline_s = int(note["end_ms"]) / 1000 - (time.time() - time.monotonic())  # by the clock of the log
    silent = next(number for number, span in enumerate(origin.spans) if span[0] == "a.example/silent")
    assert len(origin.spans[silent + 1 :]) == PAGES + 1
    assert min(span[1] for span in origin.spans[silent + 1 :]) >= deadline_s + DELAY_S - 0.01
