"""Three cycles over a toy web of 200 sites that changes between them, judged by a simulation of that web and by its access log.

After the first cycle some pages have moved and others have changed, after the second one is gone. While the second reap runs an
operator inserts a page that no link may be followed to, and deletes one that many lead to. One site has no end, and one has a
limit of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shepherd.store.state.database import Database
from tests.cycle.simulation import AGENT, Fate, Simulation
from tests.support import programs
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S
from tests.worlds import write_open_filter
from toyweb import log, run
from toyweb.model import Model, canonical_url
from toyweb.plan import PageKind, Ref, Secure, Validators, site_name
from toyweb.residents import COPY, ORIGINAL
from toyweb.robots import PATH as ROBOTS

pytestmark = pytest.mark.waits

ROOT = Path(__file__).resolve().parents[2]
SITES, LARGEST = 200, 12
DELAY_S = 0.02
SOFT, HARD = 60, 80  # rows of any site
OWN_SOFT, OWN_HARD = 5, 8  # of the one that the filter names
CF = f"""
[politeness]
delay_s = {DELAY_S}
[plan]
reap_s = 600
refresh_s = 0  # everything is asked for in every cycle
max_retries = 1  # and what fails is forgotten at once
optimism = 0
[select]
site_soft = {SOFT}
site_hard = {HARD}
server_share = 0
optimism = 0
most_lost = 100
[store]
partition_rows = 700
[fetch]
ca_file = "../web/ca.pem"
[network]
allow = ["127.0.0.0/8"]
static = "../web/static"
"""


@dataclass(frozen=True)
class Cast:
    """The pages and sites with a part of their own."""

    model: Model
    limited: str  # the host that the filter limits
    inserted: str  # in the middle of a reap
    deleted: str  # then, too

    @property
    def seeds(self) -> list[str]:
        """The root of every site, so that three cycles reach all pages, by each of its names: else chance would decide which of
        them is met last. And pages that are to move or to be deleted, so that they are there first."""
        roots = [
            f"{scheme}://{site.host(www)}/"
            for site in self.model.sites
            for scheme in (["http"] if site.secure is Secure.SAME else ["http", "https"])
            for www in (False, True)
        ]
        return [*roots, *self.of_kind(PageKind.MOVING), self.deleted]

    @property
    def calendar(self) -> str:
        return f"http://{self.model.trap_host()}/calendar/2024/01"

    def of_kind(self, kind: PageKind) -> list[str]:
        return [page.url for page in self.model.pages() if page.kind is kind]


@dataclass(frozen=True)
class Gathered:
    """What came of it, and what it is judged by."""

    home: Path
    cast: Cast
    simulation: Simulation
    rows: list[dict[str, Any]]  # of the index, without robots files
    cycles: list[list[log.AccessEntry]]  # what the web was asked in each

    def host(self, row: dict[str, Any]) -> str:
        return urlsplit(self.simulation.canonical(row["url"])).netloc

    def fates(self) -> dict[str, list[str]]:
        """Document -> the types of its rows; limits strike where they like, so what is under one is left out."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if self.host(row) != self.cast.limited and not self.cast.model.is_trap(row["url"]):
                found.setdefault(self.simulation.name(row["url"]), []).append(row["type"])
        return found


def shepherd(home: Path, *words: str) -> str:
    done = call(*words, SHEPHERD_DB=str(home / "db"), SHEPHERD_CF=str(home / "cf"))
    assert done.returncode == 0, f"{words}: {done.returncode} {done.stdout}{done.stderr}"
    return done.stdout


def choose(model: Model) -> Cast:
    ordinary = model.sites[ORIGINAL + 1 :]
    inserted = next(page.url for page in model.pages() if page.path == "/advertisement.html")
    largest = max(ordinary, key=lambda site: len(site.popular))
    popular = next(site for site in model.by_popularity if site.number > ORIGINAL and site is not largest)
    return Cast(model, largest.name, inserted, canonical_url(Ref(popular.number, popular.sections[0])))


def configure(home: Path, cast: Cast) -> None:
    (home / "cf").mkdir()
    (home / "cf" / "shepherd.toml").write_text(CF)
    (home / "cf" / "url-equiv").write_text(f"{site_name(ORIGINAL)} {site_name(COPY)}\n")
    limits = f"set soft_limit {OWN_SOFT} host {cast.limited}\nset hard_limit {OWN_HARD} host {cast.limited}\n"
    write_open_filter(home / "cf", limits)


def cycle_with_requests(home: Path, web: run.Running, *requests: tuple[str, ...]) -> None:
    """A cycle in whose reap somebody asks for something: the web stands still meanwhile, so the reap cannot come to its end."""
    before = web.log_path.stat().st_size
    environment = {**os.environ, "SHEPHERD_DB": str(home / "db"), "SHEPHERD_CF": str(home / "cf")}
    command = [sys.executable, "-m", "shepherd.cli", "shepherd", "cycle", "-q"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as cycle:
        until_s = time.monotonic() + PATIENCE_S
        while web.log_path.stat().st_size <= before:
            assert cycle.poll() is None and time.monotonic() < until_s, "nothing is asked for"
            time.sleep(0.02)
        os.kill(web.pid, signal.SIGSTOP)
        try:
            for words in requests:
                shepherd(home, *words)
            told = json.loads(shepherd(home, "shepherd", "status", "--json"))
        finally:
            os.kill(web.pid, signal.SIGCONT)
        _, complaints = cycle.communicate(timeout=PATIENCE_S)
    assert cycle.returncode == 0, complaints
    assert told["now"]["program"] == "shep-reap" and told["inbox"] == {"contrib": 1, "req": 1}


def gather(home: Path, cast: Cast, web: run.Running) -> list[int]:
    """Three cycles; how many requests the web had seen after each."""
    ends = []

    def end() -> None:
        ends.append(len(log.read_log(web.log_path)))

    shepherd(home, "shep-init", "-q")
    shepherd(home, "shep", "insert", *cast.seeds)
    shepherd(home, "shep", "insert", "--weight", "20000", cast.calendar)
    programs.cycle(home / "db", home / "cf")
    end()
    web.advance()
    cycle_with_requests(home, web, ("shep", "insert", cast.inserted), ("shep", "delete", cast.deleted))
    end()
    web.advance()
    programs.cycle(home / "db", home / "cf")
    end()
    return ends


def simulate(cast: Cast) -> Simulation:
    simulation = Simulation(cast.model, {site_name(COPY): site_name(ORIGINAL)})
    simulation.insert(cast.seeds)
    simulation.cycle()
    simulation.advance()
    simulation.cycle([cast.inserted], [cast.deleted])
    simulation.advance()
    simulation.cycle()
    return simulation


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    home, cast = tmp_path_factory.mktemp("cycles"), choose(Model(1, SITES, largest=LARGEST))
    configure(home, cast)
    with run.start(cast.model, home / "web") as web:
        ends = gather(home, cast, web)
    entries = log.read_log(web.log_path)
    rows = [json.loads(line) for line in shepherd(home, "shep", "list", "--json").splitlines()]
    pages = [row for row in rows if "robots" not in row["flags"] and row["url"]]  # what a limit struck at once has no bucket
    cycles = [entries[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return Gathered(home, cast, simulation=simulate(cast), rows=pages, cycles=cycles)


def test_index_is_what_a_simulation_of_the_web_knows(gathered: Gathered) -> None:
    known, limited = gathered.simulation.known, gathered.cast.limited
    expected = {name: [str(one.fate)] for name, one in known.items() if limited not in urlsplit(name).netloc}
    found = gathered.fates()
    assert len(expected) > 1500 and {fate for [fate] in expected.values()} == set(Fate)
    assert sorted(found.keys() - expected.keys()) == []
    assert sorted(expected.keys() - found.keys()) == []
    assert {name: types for name, types in found.items() if types != expected[name]} == {}


def test_stored_body_is_what_the_web_served_last(gathered: Gathered) -> None:
    known = gathered.simulation.known
    compared = 0
    for document in Database(gathered.home / "db").closed().documents():
        name = gathered.simulation.name(document.url)
        if name in known and gathered.cast.limited not in urlsplit(name).netloc:
            assert document.body() == known[name].body, document.url
            compared += 1
    assert compared > 1500


def test_document_is_known_once_under_the_names_of_its_site(gathered: Gathered) -> None:
    assert {name: types for name, types in gathered.fates().items() if len(types) > 1} == {}
    names = {urlsplit(row["url"]).netloc for row in gathered.rows}
    assert site_name(COPY) in names, "the second name of a class was never met"
    assert any(name.startswith("www.") for name in names)


def test_site_has_as_many_rows_as_its_limits(gathered: Gathered) -> None:
    for host, soft, hard in ((gathered.cast.model.trap_host(), SOFT, HARD), (gathered.cast.limited, OWN_SOFT, OWN_HARD)):
        types = [row["type"] for row in gathered.rows if gathered.host(row) == host and row["type"] != Fate.FORGOTTEN]
        awake = [kind for kind in types if kind != "sleeping"]
        assert len(types) == hard and len(awake) == soft, f"{host}: {len(awake)} of {len(types)}"


def test_page_that_has_moved_is_followed(gathered: Gathered) -> None:
    places, fates = gathered.cast.of_kind(PageKind.MOVING), gathered.fates()
    moved = [row for row in gathered.rows if row["url"] in places]
    assert len(moved) == 3 and all("redirect" in row["flags"] for row in moved)
    assert [fates[url] for url in gathered.cast.of_kind(PageKind.ARRIVED)] == 3 * [[Fate.GATHERED]]


def test_page_that_is_gone_is_forgotten(gathered: Gathered) -> None:
    [gone] = gathered.cast.of_kind(PageKind.CLOSING)
    name = gathered.simulation.name
    asked = [[entry.status for entry in cycle if name(f"{entry.site}{entry.path}") == gone] for cycle in gathered.cycles]
    assert asked == [[], [200], [410]]
    assert gone not in gathered.fates()


def test_page_that_was_deleted_stays_deleted(gathered: Gathered) -> None:
    [row] = [row for row in gathered.rows if gathered.simulation.name(row["url"]) == gathered.cast.deleted]
    assert (row["type"], row["reason"]) == ("forgotten", "deleted")


def test_page_that_was_inserted_during_a_reap_is_gathered(gathered: Gathered) -> None:
    assert gathered.fates()[gathered.cast.inserted] == [Fate.GATHERED]


def test_page_is_fetched_again_conditionally(gathered: Gathered) -> None:
    stored: set[tuple[str, str, str]] = set()  # places that served a body last
    again = blind = unchanged = 0
    for cycle in gathered.cycles:
        had = frozenset(stored)
        for entry in cycle:
            site, place = gathered.cast.model.site_of(entry.host), (entry.scheme, entry.host, entry.path)
            if site is None or site.validators is Validators.NONE or entry.path in (ROBOTS, site.robots.moved_to):
                continue
            stored = stored | {place} if entry.status in (200, 304) else stored - {place}
            again += place in had
            blind += place in had and not entry.conditional
            unchanged += entry.status == 304
    assert again > 1000 and unchanged > 800
    assert blind == 0


def test_page_that_robots_denies_is_not_fetched(gathered: Gathered) -> None:
    denied = {(page.host, page.path) for page in gathered.cast.model.pages(AGENT) if not page.allowed}
    asked = {(entry.host.removeprefix("www."), entry.path) for cycle in gathered.cycles for entry in cycle}
    assert len(denied) > 50
    assert sorted(denied & asked) == []


def test_no_server_is_asked_sooner_than_its_delay(gathered: Gathered) -> None:
    entries = [entry for cycle in gathered.cycles for entry in cycle]
    assert len(entries) > 4000
    assert log.audit(entries, gathered.cast.model.delays_s(DELAY_S)) == []


def test_database_has_no_fault(gathered: Gathered) -> None:
    shepherd(gathered.home, "shep-check", "-q")
