"""What was acknowledged while a farm was soaked, and must still be true: requests that were accepted, documents that a checkpoint
has, states that were leased. `complaints` are what is not."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shepherd.errors import ShepherdError
from shepherd.formats import frame
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import JOURNAL, Kind, Records, Result, RowType
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest, lookup
from shepherd.store.state.directory import State
from shepherd.store.state.lease import Lease
from shepherd.urls import parse
from tests.crash import oracle
from tests.soak.stage import Stage
from toyweb.plan import PageKind as Page

OK, USAGE, NO_SPACE = 0, 2, 12
AGENT = "shepherd"
Key = tuple[int, int]  # norm and path of a document


@dataclass
class Held:
    """A reader's lease, and what its state was when it was taken."""

    lease: Lease
    digest: str
    until_s: float


@dataclass
class Ledger:
    inserted: dict[str, float] = field(default_factory=dict)  # URL -> when, where it was acknowledged
    deleted: set[str] = field(default_factory=set)
    refreshed: dict[str, int] = field(default_factory=dict)  # URL -> when, in whole seconds
    gathered: dict[Key, int] = field(default_factory=dict)  # what a checkpoint has -> when it was gathered
    held: list[Held] = field(default_factory=list)
    seals: dict[str, str] = field(default_factory=dict)  # of closed states, by name
    refused: int = 0
    reads: int = 0
    complaints: list[str] = field(default_factory=list)

    # --- requests

    def ask(self, stage: Stage, word: str, url: str, full: bool) -> bool:
        """Whether the request was acknowledged; only a full disk is a reason to refuse it."""
        done = stage.run("shep", word, url, "--quiet")
        if done.returncode == NO_SPACE and full:
            self.refused += 1
        elif done.returncode != OK:
            self.complaints.append(f"shep {word} {url}: status {done.returncode} {done.stderr.strip()}")
        return done.returncode == OK

    def insert(self, stage: Stage, number: int, full: bool) -> None:
        """A page without links to it, and that does not exist: it stays known as an error."""
        site = stage.model.by_popularity[number % 20]
        url = f"http://{site.name}/soaked/{len(self.inserted) + self.refused}-{number}.html"
        if self.ask(stage, "insert", url, full):
            self.inserted[url] = time.time()

    def delete(self, stage: Stage, number: int, full: bool) -> None:
        """Of what is known; what still waits in the inbox is not."""
        left = known(stage, set(self.inserted) - self.deleted)
        if left and self.ask(stage, "delete", left[number % len(left)], full):
            self.deleted.add(left[number % len(left)])

    def refresh(self, stage: Stage, number: int, full: bool) -> None:
        """Of a root page that may be asked for: who has no robots.txt to be had is left alone, whatever somebody wants."""
        open_sites = [site for site in stage.model.by_popularity[:20] if site.robots.allows(AGENT, "/")]
        url, now = f"http://{open_sites[number % len(open_sites)].name}/", int(time.time())
        if known(stage, {url}) and self.ask(stage, "refresh", url, full):
            self.refreshed[url] = now

    # --- readers

    def read(self, stage: Stage, lasts_s: float, full: bool) -> None:
        """Take a lease of the newest state."""
        try:
            lease = stage.database.lease(None, "soak", "test", int(time.time() * 1000), 3600)
        except ShepherdError as error:
            if not full:
                self.complaints.append(f"a lease was refused: {error}")
            return
        self.held.append(Held(lease, seal(stage, lease), time.monotonic() + lasts_s))

    def give_back(self, stage: Stage, all_of_them: bool = False) -> None:
        """What was leased is as it was, to the byte (I1, I5)."""
        for one in [one for one in self.held if all_of_them or one.until_s <= time.monotonic()]:
            now = seal(stage, one.lease)
            if now != one.digest:
                self.complaints.append(f"I5: state {one.lease.state} was leased, and has changed: {one.digest} {now}")
            stage.database.leases.remove(one.lease)
            self.held.remove(one)
            self.reads += 1

    def compare_states(self, stage: Stage) -> None:
        """Every closed state is as it was when it was first seen (I5). For quiet points."""
        for name in stage.database.states():
            if name.closed:
                now = oracle.state_digest(stage.database.states_path / str(name))
                if self.seals.setdefault(str(name), now) != now:
                    self.complaints.append(f"I5: closed state {name} has changed")

    # --- documents

    def watch(self, stage: Stage) -> None:
        """Write down what the reap that runs has acknowledged by a checkpoint. It may go on, or end, while we look."""
        try:
            state = stage.database.furthest()
            for path in state.harvests():
                for record in _pages(acknowledged(path)):
                    self.gathered[int(record["norm"]), int(record["path"])] = int(record["end_ms"]) // 1000
        except (ShepherdError, OSError):
            return

    def compare_documents(self, stage: Stage) -> None:
        """All of it is in the index, or still in the harvest (I4). For quiet points."""
        state = stage.database.furthest()
        waiting = {(int(r["norm"]), int(r["path"])) for path in state.harvests() for r in _pages(acknowledged(path))}
        traps = state.prints.of(parse(f"http://{stage.model.trap_host()}/"))[0]
        closing = {state.prints.of(parse(one.url))[:2] for one in stage.model.pages() if one.kind is Page.CLOSING}
        for key, when in self.gathered.items():
            if key in closing:  # its server says that it is gone for good, some day: then so is its row
                continue
            checked = max((state.index["checked"].value(row) for row in lookup.rows_of(state, *key)), default=-1)
            if key not in waiting and key[0] != traps and checked < when:
                self.complaints.append(f"I4: {key} was gathered at {when}, and the index of {state.name} has {checked}")

    # --- at the end

    def compare_requests(self, stage: Stage) -> Iterator[str]:
        """Once all that waited is applied: what was inserted is known, what was deleted is not, what was to be refreshed is."""
        state = stage.database.closed()
        for url in self.inserted:
            kind = row_type(state, url)
            if url in self.deleted and kind not in (None, RowType.FORGOTTEN):
                yield f"{url} was deleted, and is {kind}"
            if url not in self.deleted and kind in (None, RowType.FORGOTTEN):
                yield f"{url} was inserted, and is {kind}"
        for url, when in self.refreshed.items():
            row = lookup_row(state, url)
            if row is None or state.index["checked"].value(row) < when:
                yield f"{url} was to be refreshed at {when}, and was checked at {row and state.index['checked'].value(row)}"


def seal(stage: Stage, lease: Lease) -> str:
    path = stage.database.states_path / str(StateName(lease.state, CLOSED))
    return oracle.state_digest(path) if path.is_dir() else "gone"


def acknowledged(path: Path) -> Records:
    """The journal of a harvest up to its last checkpoint."""
    data = (path / names.JOURNAL).read_bytes()[: harvest.inspect(path).checkpoint.journal.length]
    parts = [np.frombuffer(one.payload, JOURNAL) for one in frame.frames(data)]
    return np.concatenate(parts) if parts else np.zeros(0, JOURNAL)


def _pages(records: Records) -> Records:
    pages: Records = records[(records["kind"] == Kind.PAGE) & (records["result"] == Result.STORED)]
    return pages


def known(stage: Stage, urls: Collection[str]) -> list[str]:
    """Those that the newest state has; none if it is deleted while we look."""
    try:
        state = stage.database.closed()
        return sorted(url for url in urls if lookup_row(state, url) is not None)
    except (ShepherdError, OSError):
        return []


def lookup_row(state: State, url: str) -> int | None:
    return lookup.row_of(state, *state.prints.of(parse(url)))


def row_type(state: State, url: str) -> RowType | None:
    row = lookup_row(state, url)
    return None if row is None else RowType(state.index["type"].value(row))
