"""One database, gathered of one site, and every program that may be called for it afterwards, in any order and from anywhere: no
server outside the scope is ever contacted or looked up. Judged by a name server and by the servers themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from shepherd.config import load
from shepherd.errors import NothingToDo
from shepherd.master.cycle_table import look, next_step
from shepherd.store.state.database import Database
from tests.support import sampling
from tests.support.dns import A, Dns, Record, dns_beside
from tests.support.origin import Origin, ok, serve
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits

ROOT = Path(__file__).resolve().parents[2]
HTML = "Content-Type: text/html"
OWN, FOREIGN = "own.example", ("foreign.example", "sub.own.example", "own.example.evil.example", "xown.example")
SETTINGS = """
[identity]
contact = "me@example.org"
[politeness]
delay_s = 0.01
[network]
allow = ["127.0.0.0/8"]
nameservers = ["{dns}"]
[reap]
checkpoint_s = 0.1
"""


@dataclass(frozen=True)
class World:
    """A home with a cf/ that says where names are asked, a gathered database in it, and what was asked."""

    home: Path
    dns: Dns
    own: Origin
    foreign: Origin

    @property
    def url(self) -> str:
        return f"http://{OWN}:{self.own.port}/"

    def run(self, *words: str, cwd: str = ".", statuses: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        done = call(*words, cwd=self.home / cwd, SHEPHERD_CF="", SHEPHERD_DB="")
        assert done.returncode in statuses, f"{words}: {done.returncode} {done.stderr}"
        return done

    def looked_up(self) -> set[str]:
        return {name for name, _kind in self.dns.asked}


def pages(port: int) -> bytes:
    links = "".join(f'<a href="http://{name}:{port}/">x</a>' for name in FOREIGN)
    return ok(f'<p>hello <a href="/two">two</a>{links}'.encode(), HTML)


@contextlib.contextmanager
def worlds(home: Path) -> Iterator[World]:
    """Foreign names lead to a server of their own, on the port that their links name: it would be reached."""
    with serve({}, address="127.0.6.2") as foreign, serve({}, address="127.0.6.1") as own:
        own.routes |= {"/": pages(foreign.port), "/two": pages(foreign.port), "/three": pages(foreign.port)}
        foreign.routes["/"] = ok(b"<p>foreign", HTML)
        zone: dict[str, list[Record]] = {name: [(A, "127.0.6.2", 60)] for name in FOREIGN}
        zone[OWN] = [(A, "127.0.6.1", 60)]
        with dns_beside(zone) as (dns, address):
            for cf in (home / "cf", home / "elsewhere" / "cf"):
                cf.mkdir(parents=True)
                (cf / "shepherd.toml").write_text(SETTINGS.format(dns=address))
            (home / "elsewhere" / "cf" / "filter").write_text("default accept\n")  # the whole web, for another database
            yield World(home, dns, own, foreign)


# --- what may be called


def cycle(world: World, cwd: str = ".", db: str = "db") -> None:
    """The programs that `shepherd cycle` would run, each as somebody runs it by hand: without --cf."""
    done: list[str] = []
    database, own_cf = Database(world.home / "db"), load(world.home / "db" / "cf")
    while step := next_step(look(database, own_cf), done):
        done.append(step)
        world.run(step, "--db", db, "-q", cwd=cwd, statuses=(0, NothingToDo.exit_status))


def cycle_from_elsewhere(world: World) -> None:
    cycle(world, "elsewhere", "../db")


def master_from_elsewhere(world: World) -> None:
    """Without a configuration of its own, and with one that nobody has named beside it, the database is not gathered."""
    (world.home / "db" / "cf").rename(world.home / "kept")
    done = world.run("shepherd", "cycle", "--db", "../db", cwd="elsewhere", statuses=(2,))
    assert "was last run with the configuration in" in done.stderr
    (world.home / "kept").rename(world.home / "db" / "cf")


def explain(world: World) -> None:
    told = world.run("shep", "explain", "--db", "../db", f"http://{FOREIGN[0]}:{world.foreign.port}/", cwd="elsewhere").stdout
    assert "no `only` line has it" in told


def insert(world: World) -> None:
    world.run("shep", "insert", "--db", "db", f"{world.url}three")
    world.run("shep", "insert", "--db", "../db", f"http://{FOREIGN[0]}:{world.foreign.port}/", cwd="elsewhere", statuses=(2,))


def refresh(world: World) -> None:
    world.run("shep", "refresh", "--db", "../db", "--site", f"{OWN}:{world.own.port}", cwd="elsewhere")


def gather(world: World) -> None:
    world.run("gather", "--db", "db", "--minutes", "0.001", "-q", statuses=(0, NothingToDo.exit_status))


def serve_readers(world: World) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SHEPHERD_CF": "", "SHEPHERD_DB": "../db"}
    command = [sys.executable, "-m", "shepherd.cli", "shep-serve", "--listen", "127.0.0.1:0", "-q"]
    with subprocess.Popen(command, cwd=world.home / "elsewhere", env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            place = re.fullmatch(r"(http://.*/)#token=(.*)\n", process.stdout.readline())
            assert place
            ask = {"headers": {"Authorization": f"Bearer {place[2]}"}, "timeout": PATIENCE_S}
            configuration = requests.get(f"{place[1]}v1/status", **ask).json()["configuration"]  # type: ignore[arg-type]
            assert configuration["place"] == "cf of the database"
        finally:
            process.terminate()


CALLS: tuple[Callable[[World], None], ...] = (
    cycle, cycle_from_elsewhere, master_from_elsewhere, explain, insert, refresh, gather, serve_readers,
)  # fmt: skip
ORDERS = [(*some, cycle_from_elsewhere, cycle) for some in itertools.permutations(CALLS, 3)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """After `gather URL` and a first cycle, which has met links to all of the foreign names."""
    with worlds(tmp_path_factory.mktemp("scope")) as made:
        made.run("gather", "--db", "db", "--minutes", "0.001", "-q", made.url, statuses=(4,))
        cycle(made)
        assert "/" in made.own.paths()
        shutil.copytree(made.home / "db", made.home / "pristine")
        yield made


@pytest.mark.parametrize(
    "order", sampling.sample(ORDERS, 2, "scope", 12), ids=lambda order: "-".join(one.__name__ for one in order)
)
def test_no_server_outside_the_scope_is_asked_in_whatever_order_programs_are_called(
    world: World, order: tuple[Callable[[World], None], ...]
) -> None:
    shutil.rmtree(world.home / "db")
    shutil.copytree(world.home / "pristine", world.home / "db")
    for one in order:
        one(world)
    assert "/two" in world.own.paths()
    assert {url.partition("/")[0] for url in world.own.urls()} == {f"{OWN}:{world.own.port}"}
    assert world.foreign.connections == 0
    assert world.looked_up() <= {OWN, f"www.{OWN}"}


def test_the_same_calls_reach_them_where_everything_is_in_scope(tmp_path: Path) -> None:
    """So the judges above would have seen it."""
    with worlds(tmp_path) as world:
        world.run("gather", "--db", "db", "--scope", "any", "--minutes", "0.001", "-q", world.url, statuses=(4,))
        cycle(world)
        cycle(world)
        assert world.foreign.connections > 0 and set(FOREIGN) <= world.looked_up()
