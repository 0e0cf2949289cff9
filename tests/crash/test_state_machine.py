"""The store against a dict: documents go in, states come and go, and now and then the power is cut in the midst of it.

After a cut the oracle judges the disk as everywhere else; then every document that the dict has must be read through the store,
from every closed state and from the harvest, and nothing that it does not have.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from shepherd.formats.tables import in_bucket
from shepherd.store.disk import fsio, names
from shepherd.store.disk.ops import Ops
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from shepherd.store.state.lease import Lease
from shepherd.store.state.objects import Objects
from tests.crash import disks, oracle, store_steps
from tests.crash.model import write_tree
from tests.crash.oracle import Facts
from tests.crash.record import recording
from tests.crash.replay import Stage, out_of_sight, partial_losses
from tests.crash.store_steps import SEGMENT_BYTES
from tests.worlds import NOW

DOCUMENTS = st.lists(st.integers(0, 30), min_size=1, max_size=5, unique=True)


@dataclass(frozen=True)
class Dict:
    """What was acknowledged."""

    closed: Mapping[int, Mapping[str, bytes]]  # by number: the documents of each closed state
    reap: Mapping[str, bytes] | None = None  # the documents that the checkpoints of the reap have acknowledged
    ended: bool = False
    leases: Mapping[str, int] = field(default_factory=dict)  # the state that each holds
    items: frozenset[str] = frozenset()  # dropped and not taken

    @property
    def newest(self) -> int:
        return max(self.closed)

    def published(self, documents: Mapping[str, bytes], number: int | None = None) -> Dict:
        return replace(
            self, closed={**self.closed, self.newest + 1 if number is None else number: documents}, reap=None, ended=False
        )


def read(db: Database) -> Dict:
    """The same through the store."""
    closed = {name.number: store_steps.documents(db.open(name)) for name in db.states() if name.closed}
    furthest = db.furthest()
    reap, ended = None, False
    if furthest.name.phase == "reap":
        paths = furthest.harvests()
        reap = {url: body for path in paths for url, body in _harvested(path).items()}
        ended = any(harvest.inspect(path).ended for path in paths)
    leases = {lease.name: lease.state for lease in db.leases.all()}
    return Dict(closed, reap, ended, leases, frozenset(item.name for item in db.inbox.waiting(furthest.control.applied)))


def _harvested(path: Path) -> dict[str, bytes]:
    objects, journal = Objects(path, names.local_segment), harvest.read_journal(path)
    buckets = [objects.get(int(oid)) for oid in journal["oid"][in_bucket(journal["oid"])]]
    return {one.url: one.body() for one in buckets}


class StoreAgainstDict(RuleBasedStateMachine):
    crashes = 0  # of all examples

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        self.memory = self.exits.enter_context(disks.workplace())
        self.places = (self.memory / str(number) for number in itertools.count())
        self.ordinals = itertools.count(1)
        self.harvest: Harvest | None = None
        self.unsaid: dict[str, bytes] = {}  # gathered, and in no checkpoint yet
        path = next(self.places)
        path.mkdir()
        store_steps.create(path / "db")
        self.begin(path, oracle.observe(path / "db"))
        self.sooner = self.now = Dict({1: {}})
        self.returned: set[str] = set()

    def begin(self, path: Path, known: Facts) -> None:
        self.stage, self.db = Stage(path, known), Database(path / "db")
        fsio.use(self.stage.recorder)
        self.started = self.ended = 0

    def teardown(self) -> None:
        fsio.use(Ops())
        self.let_go()
        self.exits.close()

    def let_go(self) -> None:
        if self.harvest:
            self.harvest.close()
        self.harvest = None
        self.unsaid = {}

    def did(self, started: int, now: Dict) -> None:
        """An operation has returned."""
        self.started, self.ended, self.sooner, self.now = started, self.calls, self.now, now
        self.stage.settle()

    @property
    def calls(self) -> int:
        return len(self.stage.recorder.log)

    # --- states

    @precondition(lambda self: self.now.reap is None)
    @rule(weight=st.integers(0, 9))
    def publish(self, weight: int) -> None:
        started = self.calls
        with self.db.writing("test") as writer:
            store_steps.publish_changed(writer, weight)
        self.did(started, self.now.published(self.now.closed[self.now.newest]))

    @precondition(lambda self: self.now.reap is None)
    @rule(numbers=DOCUMENTS)
    def publish_documents(self, numbers: list[int]) -> None:
        started = self.calls
        with self.db.writing("test") as writer:
            store_steps.publish_with(writer, numbers)
        new = {store_steps.url_of(number): store_steps.body_of(number) for number in numbers}
        self.did(started, self.now.published({**self.now.closed[self.now.newest], **new}))

    @precondition(lambda self: len(self.now.closed) > 2)
    @rule(keep=st.integers(1, 2))
    def prune(self, keep: int) -> None:
        started = self.calls
        with self.db.writing("test") as writer:
            writer.prune(keep, NOW)
        held = {*self.now.leases.values(), *sorted(self.now.closed)[-keep:]}
        self.did(started, replace(self.now, closed={n: docs for n, docs in self.now.closed.items() if n in held}))

    # --- the reap

    def plan(self) -> None:
        started = self.calls
        with self.db.writing("test") as writer:
            store_steps.publish_plan(writer)
        self.did(started, replace(self.now, reap={}))

    @precondition(lambda self: not self.now.ended)
    @rule(numbers=DOCUMENTS, version=st.integers(1, 9), flush=st.booleans())
    def gather(self, numbers: list[int], version: int, flush: bool) -> None:
        """These are acknowledged only by a checkpoint."""
        if self.now.reap is None:
            self.plan()
        if self.harvest is None:
            self.harvest = Harvest(self.db.furthest().path / names.HARVESTS / "reap", SEGMENT_BYTES)
        store_steps.gather(self.harvest, numbers, self.db.furthest().number, version)
        self.unsaid |= {store_steps.url_of(number): store_steps.body_of(number, version) for number in numbers}
        if flush:
            self.harvest._segments.flush()
            self.harvest._flush_journal()

    @precondition(lambda self: self.harvest is not None)
    @rule(end=st.booleans())
    def checkpoint(self, end: bool) -> None:
        assert self.harvest is not None and self.now.reap is not None
        started, time_ms = self.calls, NOW * 1000 + next(self.ordinals)
        (self.harvest.end if end else self.harvest.checkpoint)(time_ms)
        self.did(started, replace(self.now, reap={**self.now.reap, **self.unsaid}, ended=end))
        self.unsaid = {}
        if end:
            self.let_go()

    @precondition(lambda self: self.now.ended)
    @rule()
    def cork(self) -> None:
        assert self.now.reap is not None
        started = self.calls
        with self.db.writing("test") as writer:
            store_steps.cork(writer)
        self.did(started, self.now.published({**self.now.closed[self.now.newest], **self.now.reap}))

    # --- leases and the inbox

    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        started, name = self.calls, store_steps.item_name(next(self.ordinals))
        number = data.draw(st.sampled_from(sorted(self.now.closed)))
        with self.db.leases.locked():
            self.db.leases.write(Lease(name, number, "me", "test", store_steps.DEAD_PID, NOW + 10))
        self.did(started, replace(self.now, leases={**self.now.leases, name: number}))

    @precondition(lambda self: self.now.leases)
    @rule()
    def give_back(self) -> None:
        started, name = self.calls, min(self.now.leases)
        self.db.leases.remove(next(lease for lease in self.db.leases.all() if lease.name == name))
        self.returned.add(name)
        self.did(started, replace(self.now, leases={k: v for k, v in self.now.leases.items() if k != name}))

    @rule()
    def drop(self) -> None:
        started, name = self.calls, store_steps.item_name(next(self.ordinals))
        self.db.inbox.drop(name, [{"op": "insert", "url": store_steps.url_of(1)}])
        self.did(started, replace(self.now, items=self.now.items | {name}))

    @rule()
    def insert(self) -> None:
        started, name = self.calls, store_steps.item_name(next(self.ordinals))
        store_steps.insert(self.db, name, (1, 2))
        self.did(started, replace(self.now, items=self.now.items | {name}))

    @precondition(lambda self: self.now.items and self.now.reap is None)
    @rule()
    def take(self) -> None:
        started = self.calls
        with self.db.writing("test") as writer:
            store_steps.publish_changed(writer, 1, applied=tuple(sorted(self.now.items)))
        taken = self.now.published(self.now.closed[self.now.newest])
        self.did(started, replace(taken, items=frozenset()))

    # --- the power

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """At any call of the last operation, or after it; with any of the disks that this may leave."""
        type(self).crashes += 1
        run = self.stage.run()
        position = data.draw(st.integers(min(self.started, len(run.log)), len(run.log)))
        _, disk = next(run.disks(position))
        visible = disk.visible(out_of_sight)
        losses = list(partial_losses(disk, [number for number in disk.uncertain() if number in visible]))
        choice = data.draw(st.integers(-2, len(losses) - 1))
        tree = disk.tree(choice == -2) if choice < 0 else disk.tree(*losses[choice][1:])
        path, old = next(self.places), self.stage.path
        self.let_go()
        write_tree(tree, path)
        with recording(Ops()):
            assert oracle.judge(path / "db", *run.around(run.era(position))) == []
            found = read(Database(path / "db"))
        self.compare(found, self.sooner if position < self.ended else self.now)
        self.now = self.sooner = found
        self.begin(path, oracle.observe(path / "db"))
        shutil.rmtree(old)

    def compare(self, found: Dict, sooner: Dict) -> None:
        sides = (sooner, self.now)
        assert {*sooner.closed} & {*self.now.closed} <= {*found.closed} <= {*sooner.closed} | {*self.now.closed}
        for number, documents in found.closed.items():
            assert documents in [side.closed.get(number) for side in sides]
        assert (found.reap, found.ended) in [(side.reap, side.ended) for side in sides]
        assert found.items in [side.items for side in sides]
        certain = {*sooner.leases} & {*self.now.leases}
        assert certain <= {*found.leases} <= {*sooner.leases} | {*self.now.leases} | self.returned


def test_store_behaves_as_a_dict(crash_sweep: bool) -> None:
    StoreAgainstDict.crashes = 0
    run_state_machine_as_test(
        StoreAgainstDict,
        settings=settings(max_examples=150 if crash_sweep else 12, stateful_step_count=40 if crash_sweep else 20),
    )
    print(f"{StoreAgainstDict.crashes} crashes")
    assert StoreAgainstDict.crashes >= (500 if crash_sweep else 10)
