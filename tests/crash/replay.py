"""From a recorded run to every disk that a power cut during it could have left.

A cut falls between two calls. At each place: all unsynced things kept (that is a killed process), all lost, and every variant of
each uncertain file or directory (model.py), once with all others kept and once with all others lost. Losses of several at once
beyond that are not combined, but for places with so few variants that all combinations are tried.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import TypeAlias

from shepherd.store.disk import names
from shepherd.store.state.inbox import HARVEST
from tests.crash.model import Content, Disk, Entries, Tree, digest, read_tree
from tests.crash.oracle import Facts, observe
from tests.crash.record import Call, Recorder, recording

COMBINATIONS = 24  # of the variants at one place, up to which all are tried

Chosen: TypeAlias = dict[int, Content | Entries]


# --- a run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What was done to a directory, and what was acknowledged when: each of the facts from some place in the log on."""

    base: Tree
    log: tuple[Call, ...]
    settled: tuple[tuple[int, Facts], ...]
    killed: tuple[int, Facts] | None = None  # in which era, and what the operation that was killed would have made

    def era(self, position: int) -> int:
        """How often something had been acknowledged at a place in the log."""
        return max(i for i, (place, _facts) in enumerate(self.settled) if place <= position)

    def around(self, era: int) -> tuple[Facts, ...]:
        """What had been acknowledged, and what the operation then under way (and one killed before it) would make."""
        also = [self.killed[1]] if self.killed and self.killed[0] == era else []
        return self.settled[era][1], *also, self.settled[min(era + 1, len(self.settled) - 1)][1]

    @cached_property
    def promises(self) -> tuple[str, ...]:
        """The same for each era, as one word."""
        return tuple(repr(self.around(era)) for era in range(len(self.settled)))

    def is_news(self, position: int) -> bool:
        """Whether more is durable, or acknowledged, at this place than at the one before."""
        return not position or self.log[position - 1].op == "sync" or any(place == position for place, _facts in self.settled)

    def syncs(self) -> list[int]:
        """Where in the log the syncs are."""
        return [place for place, call in enumerate(self.log) if call.op == "sync"]

    def forgetting(self, places: Collection[int]) -> Run:
        """The same run without some calls."""
        log = tuple(call for place, call in enumerate(self.log) if place not in places)
        settled = tuple((at - sum(place < at for place in places), facts) for at, facts in self.settled)
        return replace(self, log=log, settled=settled)

    def disks(self, start: int = 0) -> Iterator[tuple[int, Disk]]:
        """The disk at each place in the log from `start` on; always the same object."""
        disk = Disk(self.base)
        for call in self.log[:start]:
            disk.apply(call)
        yield start, disk
        for position, call in enumerate(self.log[start:], start + 1):
            disk.apply(call)
            yield position, disk

    def killed_at(self, position: int) -> Tree:
        """The directory as a program finds it that comes after one killed there."""
        _, disk = next(self.disks(position))
        return disk.tree(True)

    def then(self, position: int, second: Run) -> Run:
        """This run killed at a place in its log, and another one after it, without a power cut between them."""
        sooner = [(place, facts) for place, facts in self.settled if place <= position]
        later = [(position + place, facts) for place, facts in second.settled[1:]]
        under_way = self.around(len(sooner) - 1)[-1]
        return Run(self.base, self.log[:position] + second.log, (*sooner, *later), (len(sooner) - 1, under_way))


class Stage:
    """A directory whose changes are recorded; the database is `db` in it."""

    def __init__(self, path: Path, known: Facts | None = None, recorder: Recorder | None = None) -> None:
        """`known` is what had been acknowledged before; without it, all that is there."""
        self.path = path
        self.recorder = recorder or Recorder(path)
        self._base = read_tree(path)
        self._settled = [(0, observe(path / "db", to_checkpoint=True) if known is None else known)]

    def settle(self, told: bool = True) -> None:
        """Everything so far has been acknowledged, so from here on it must survive. (By default all but leases that are new.)"""
        facts = observe(self.path / "db", to_checkpoint=True).after(self._settled[-1][1], told)
        self._settled.append((len(self.recorder.log), facts))

    def run(self) -> Run:
        return Run(self._base, tuple(self.recorder.log), tuple(self._settled))

    def play(self, workload: Callable[[Stage], None]) -> Run:
        with recording(self.recorder):
            workload(self)
        return self.run()


# --- cuts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """One disk that a power cut could have left."""

    position: int  # calls made before it
    era: int
    promise: str
    what: str
    tree: Tree

    def __str__(self) -> str:
        return f"power cut after call {self.position}, {self.what}"


def cuts(run: Run, start: int = 0, step: int = 1, hidden_every: int = 0) -> Iterator[Cut]:
    """Disks from a place in the log on; of partial losses every step-th. Losses inside what is out of sight count only as a
    whole, but for every hidden_every-th place, where they are gone through one by one."""
    ticks = itertools.count()
    for position, disk in run.disks(start):
        yield _cut(run, position, "all kept", disk.tree(True))
        if run.is_news(position):
            yield _cut(run, position, "all lost", disk.tree(False))
        visible = disk.visible(out_of_sight)
        for what, everything_kept, chosen in partial_losses(disk, [number for number in disk.uncertain() if number in visible]):
            if next(ticks) % step == 0:
                yield _cut(run, position, what, disk.tree(everything_kept, chosen))
        if hidden_every and position % hidden_every == 0:
            hidden = [number for number in disk.uncertain() if number not in visible]
            for what, everything_kept, chosen in partial_losses(disk, hidden):
                yield _cut(run, position, what, disk.tree(everything_kept, chosen))


def cuts_of(run: Run, start: int, path: str) -> Iterator[Cut]:
    """Only disks in which something of one file or directory is lost, from a place in the log on (where it has that path) until
    nothing of it is uncertain any more: the last place first, then all those where it is not out of sight."""
    places, number = [], -1
    for position, disk in run.disks(start):
        number = disk.number_of(path) if position == start else number
        if number not in disk.uncertain():
            break
        places.append((position, number in disk.visible(out_of_sight)))
    for last, _is_visible in places[-1:]:
        _, disk = next(run.disks(last))
        yield from _losses(run, last, disk, number)
    wanted = {position for position, is_visible in places if is_visible}
    for position, disk in run.disks(start) if wanted else ():
        if position in wanted:
            yield from _losses(run, position, disk, number)


def cuts_after_kill(run: Run, kill: int) -> Iterator[Cut]:
    """Only disks of what comes after a kill: all lost, or one of the things lost that were uncertain then and still are."""
    doubtful: list[int] = []
    for position, disk in run.disks(kill):
        among = disk.visible(out_of_sight) if position == kill else set(doubtful)
        doubtful = [number for number in disk.uncertain() if number in among]
        if run.is_news(position):
            yield _cut(run, position, "all lost", disk.tree(False))
        for number in doubtful:
            for what, variant in disk.variants(number)[1:2]:
                yield _cut(run, position, f"{what}, the others kept", disk.tree(True, {number: variant}))


def partial_losses(disk: Disk, numbers: list[int]) -> Iterator[tuple[str, bool, Chosen]]:
    """Losses among some files and directories: what, everything else kept or lost, and the variants chosen."""
    variants = {number: disk.variants(number) for number in numbers}
    if variants and prod(map(len, variants.values())) <= COMBINATIONS:
        for some in itertools.product(*variants.values()):
            what = "; ".join(what for what, _variant in some)
            chosen = {number: variant for number, (_what, variant) in zip(variants, some, strict=True)}
            yield f"{what}, the others kept", True, chosen
            yield f"{what}, the others lost", False, chosen
        return
    for number, several in variants.items():
        for what, variant in several[1:]:
            yield f"{what}, the others kept", True, {number: variant}
        for what, variant in (several[0], *several[2:]):
            yield f"{what}, the others lost", False, {number: variant}


def _losses(run: Run, position: int, disk: Disk, number: int) -> Iterator[Cut]:
    yield _cut(run, position, "all lost", disk.tree(False))
    for what, variant in disk.variants(number)[1:]:
        yield _cut(run, position, f"{what}, the others kept", disk.tree(True, {number: variant}))
        yield _cut(run, position, f"{what}, the others lost", disk.tree(False, {number: variant}))


def _cut(run: Run, position: int, what: str, tree: Tree) -> Cut:
    era = run.era(position)
    return Cut(position, era, run.promises[era], what, tree)


# --- telling disks apart ----------------------------------------------------------------------------------------


@cache
def out_of_sight(path: str) -> bool:
    """A directory being built or deleted: whatever is in it, it goes as a whole."""
    name = path.rpartition("/")[2]
    dropped = name.startswith(".") and name.endswith(f".{HARVEST}.tmp")
    return names.is_leftover(name) or dropped or name.startswith((".probe-", f".{names.STATES}.tmp"))


class Distinct:
    """Lets each disk through once under each promise, and of disks that differ only out of sight at most so many."""

    def __init__(self, alike: int) -> None:
        self._alike = alike
        self._seen: set[tuple[str, bytes]] = set()
        self._groups: Counter[tuple[str, bytes]] = Counter()
        self.possible = 0

    def __call__(self, found: Iterable[Cut]) -> Iterator[Cut]:
        for cut in found:
            self.possible += 1
            group = cut.promise, digest(cut.tree, out_of_sight)
            if self._alike == 1 and self._groups[group]:
                continue  # the same or alike, it is not let through: that is all to know, and cheaper than how it differs
            key = cut.promise, digest(cut.tree)
            if key in self._seen:
                continue
            self._seen.add(key)
            self._groups[group] += 1
            if self._groups[group] <= self._alike:
                yield cut

    @property
    def distinct(self) -> int:
        """How many different ones there were; where one stands for all alike, how many of these."""
        return len(self._seen)
