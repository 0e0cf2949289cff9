"""Random damage of a gathered database: it is noticed, mended without a person, and costs no document that still stands anywhere.

A few each day; some hundreds with `bin/test --crash`. The score of each promise has its own line.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.errors import NothingToDo, ShepherdError
from shepherd.formats import bucket
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state import seals
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest, read_journal
from tests.crash import cycle_steps, disks, mending
from tests.crash.tally import Tally
from tests.support import sampling
from tests.support.damages import strike
from tests.support.harvests import Page, begin, reap, run
from tests.support.waiting import PATIENCE_S

POINTS, SAMPLE = 150, 4  # of each world
SITES = ("http://a.example", "http://b.example", "https://c.example")
FIRST = [f"{site}/{n}" for site in SITES for n in range(5)]
SECOND = [f"{site}/later/{n}" for site in SITES for n in range(3)]
DAY = 86_400


@dataclass(frozen=True)
class World:
    """A database; the documents of its newest closed state, bucket and body by URL; those of its harvest, body by URL; and the
    files of that."""

    db: Path
    documents: dict[str, tuple[bytes, bytes]]
    harvested: dict[str, bytes]
    harvest_files: list[bytes]


def body(url: str, age: int) -> str:
    return f"<title>{url} {age}</title>" + "text " * (5 + len(url) % 40)


def pages(urls: list[str], age: int) -> list[Page]:
    return [Page(url, body(url, age), cycle_steps.NOW + age * DAY + n) for n, url in enumerate(urls)]


def grow(db: Path, until: str) -> World:
    """Three closed states of which the last two have documents, and what `until` says on them."""
    begin(db, [*FIRST, *SECOND])
    links = {"http://d.example/": 30_000}
    reap(db, ("reap", pages(FIRST, 1), links), now=cycle_steps.NOW)
    run(db, "cork", "merge", "select", "record", now=cycle_steps.NOW + DAY)
    reap(db, ("reap", pages([*SECOND, *FIRST[:4]], 9), links), now=cycle_steps.NOW + 9 * DAY)
    run(db, "cork", now=cycle_steps.NOW + 9 * DAY)
    with Database(db).writing("a test") as writer:
        writer.prune(3, cycle_steps.NOW)
    if until == "reap":
        reap(db, ("reap", pages(FIRST[5:9], 20), links), now=cycle_steps.NOW + 20 * DAY)
    elif until == "merged":
        run(db, "merge", now=cycle_steps.NOW + 10 * DAY)
    assert sum(file.stat().st_size for file in (db / "state" / str(Database(db).furthest().name)).rglob("*")) < 60_000
    inside = [path for one in Database(db).furthest().harvests() for path in sorted(one.iterdir())]
    return World(db, documents(db), harvested(db), [path.read_bytes() for path in inside if path.name != names.LOCK])


def documents(db: Path) -> dict[str, tuple[bytes, bytes]]:
    """Every gathered document of the newest closed state: its bucket as it is stored, and its body."""
    found = {}
    for one in Database(db).closed().documents():
        found[one.url] = one.bucket.data, one.body()
    return found


def harvested(db: Path) -> dict[str, bytes]:
    found = {}
    for path in Database(db).furthest().harvests():
        for record in read_journal(path):
            one = bucket.parse(cycle_steps._bucket(path, int(record["oid"])))
            found[one.url] = one.body()
    return found


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[str, World]]:
    with disks.workplace() as home:
        yield {until: grow(home / until / "db", until) for until in ("closed", "reap", "merged")}


@contextmanager
def patience() -> Iterator[None]:
    """A call that waits for what never comes is a hang: it ends with TimeoutError."""

    def end(_signal: int, _frame: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(int(PATIENCE_S))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def is_noticed(db: Path) -> bool:
    notes = ("has not ended", seals.UNSEALED)
    return any(not fault.note or any(note in fault.what for note in notes) for fault in check.walk(Database(db)))


def cycle(db: Path) -> None:
    """What a master would run, without a network: what was begun is ended, and a further URL comes in."""
    now = cycle_steps.NOW + 30 * DAY
    state = Database(db).furthest()
    for path in state.harvests():
        one = None
        try:
            one = Harvest(path, cycle_steps.SEGMENT_BYTES)
        except ValueError:
            continue  # it has ended
        one.end(now * 1000)
    phases = {"reap": ("cork", "merge", "select", "record"), "merged": ("select", "record"), "selected": ("record",)}
    if state.name.phase == "reap" and not state.harvests():
        phases["reap"] = ()
    if state.name.phase in phases:
        run(db, *phases[state.name.phase], now=now)
    if Database(db).furthest().name.closed:
        cycle_steps.dropping(8, ("http://z.example/",))(db, lambda _line: None)
        run(db, "merge", "select", "record", now=now)
        with suppress(NothingToDo):
            run(db, "plan", now=now)


def stands_somewhere(db: Path, data: bytes) -> bool:
    return any(data in path.read_bytes() for path in sorted(db.rglob("*")) if path.is_file() and not path.is_symlink())


def complaints(db: Path, world: World, tallies: dict[str, Tally], what: str) -> None:
    """One point: is it noticed, mended, at what cost, and does the cycle go on?"""
    told: dict[str, list[str]] = {name: [] for name in tallies}
    try:
        with patience():
            told["noticed"] += [] if is_noticed(db) else ["nobody says so"]
            wanted = {url: stored for url, stored in world.documents.items() if stands_somewhere(db, stored[0])}
            # Of a damaged harvest counts what a checkpoint before the damage has; tests/crash/test_torn.py judges that.
            from_harvest = world.harvested if all(stands_somewhere(db, data) for data in world.harvest_files) else {}
            mending.mend(db, deep=False)
            mending.mend(db, deep=True)
            told["recovered"] += [str(fault) for fault in check.walk(Database(db)) if not fault.note]
            now = documents(db)
            told["documents lost"] += [url for url, (_data, text) in wanted.items() if now.get(url, (b"", b""))[1] != text]
            cycle(db)
            told["recovered"] += [f"after a cycle: {fault}" for fault in check.walk(Database(db)) if not fault.note]
            now = documents(db)
            lost = [url for url in wanted if url not in now]
            lost += [url for url, text in from_harvest.items() if now.get(url, (b"", b""))[1] != text]
            told["documents lost"] += [f"after a cycle: {url}" for url in lost]
    except TimeoutError:
        told["hangs"].append("it hangs")
    except ShepherdError as error:
        told["recovered"].append(f"status {error.exit_status}: {error}")
    except Exception as error:
        told["tracebacks"].append(f"{type(error).__name__}: {error}")
    for name, tally in tallies.items():
        tally.point(what, told[name])


@pytest.mark.parametrize("until", ["closed", "reap", "merged"])
def test_random_damage_is_noticed_and_mended(
    until: str, worlds: dict[str, World], memory: Path, record_property: Callable[[str, object], None]
) -> None:
    promises = ("noticed", "recovered", "documents lost", "hangs", "tracebacks")
    tallies = {name: Tally(record_property, f"damage, {name}[{until}]") for name in promises}
    world = worlds[until]
    for number in sampling.sample(range(POINTS), SAMPLE, f"damages of {until}"):
        dice = sampling.dice(f"damage {until} {number}")
        db = memory / "db"
        shutil.copytree(world.db.parent / "cf", memory / "cf", dirs_exist_ok=True)
        if dice.randrange(2):
            mending.copy(world.db, db)
        else:
            shutil.copytree(world.db, db)
        struck = strike(db, dice)
        complaints(db, world, tallies, f"{number}: {struck}")
        shutil.rmtree(db)
    with ExitStack() as verdicts:  # every score is recorded, whatever the others are
        for tally in tallies.values():
            verdicts.callback(tally.close)
