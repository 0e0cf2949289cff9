"""The judge of every crash test: what must hold of a database after a fault and shep-recover, whatever the fault was.

I1 every closed state opens and checks, also before the recover · I2 the furthest directory is, byte for byte, the one before the
operation or the one it makes · I3 every row but forgotten ones points at its bucket, and no two at one · I4 what a checkpoint of
a harvest acknowledged is there, byte for byte · I5 older closed states are as they were · I6 recover leaves nothing lying about ·
I7 recover twice = once · I9 a mirror has noted every state that it has received. (I8, recover itself cut short, needs the
replayer: test_restart.py.)

Use: `observe` a database before an operation and after an undisturbed one; after a fault, `judge` what is left against both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from shepherd.errors import ShepherdError
from shepherd.store.check import check, recover
from shepherd.store.disk import names
from shepherd.store.mirror import directory as mirror
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import KINDS
from tests.crash.record import Recorder, recording

Digests: TypeAlias = Mapping[str, str]  # of files or of whole directories, by name


@dataclass(frozen=True)
class Facts:
    """What a database contains, as far as it was acknowledged."""

    states: Digests = field(default_factory=dict)  # every finished directory, without its harvests
    harvests: Mapping[str, Digests] = field(default_factory=dict)  # every harvest that has something in it, by its path
    leases: Digests = field(default_factory=dict)
    items: Digests = field(default_factory=dict)  # of the inbox, not taken yet
    doubtful: frozenset[str] = frozenset()  # leases that may be there or not

    def after(self, before: Facts, told: bool = True) -> Facts:
        """These facts, knowing what was acknowledged before. A lease that was given back may still be there after a power cut,
        because that is not synced; and one whose reader was killed before it was told that it has it, may not be."""
        back = set(before.leases) - set(self.leases)
        untold = set() if told else set(self.leases) - set(before.leases)
        return replace(self, doubtful=before.doubtful | back | untold)

    @property
    def furthest(self) -> str:
        parsed = [name for name in map(names.parse_state, self.states) if name is not None]
        return str(max(parsed, key=lambda name: name.order)) if parsed else ""


def observe(path: Path, to_checkpoint: bool = False) -> Facts:
    """The facts of the database at `path`, if there is one. Of its harvests all bytes, or only those that a checkpoint names."""
    if not (path / names.STATES).is_dir():
        return Facts()
    states = [entry for entry in sorted((path / names.STATES).iterdir()) if names.parse_state(entry.name)]
    directories = [one for state in states for one in sorted((state / names.HARVESTS).glob("*"))]
    harvests = {f"{one.parent.parent.name}/{one.name}": _harvest(one, to_checkpoint) for one in directories}
    facts = Facts(
        {state.name: state_digest(state) for state in states},
        {name: files for name, files in harvests.items() if files},
        {p.name: _digest(p) for p in sorted((path / names.LEASES).glob("*.lease"))},
        {p.name: _item(p) for p in sorted((path / names.INBOX).glob("[0-9]*"))},
    )
    return replace(facts, items={name: one for name, one in facts.items.items() if name not in _taken(path, facts.furthest)})


def _harvest(path: Path, to_checkpoint: bool) -> Digests:
    """Its files; none, if nothing is in any of them."""
    lengths = {p.name: p.stat().st_size for p in sorted(path.iterdir()) if p.name != names.LOCK}
    if to_checkpoint:
        found = harvest.inspect(path)
        point = found.checkpoint
        lengths = {names.CHECKPOINTS: found.log_bytes, names.JOURNAL: point.journal.length, names.CONTRIB: point.contrib.length}
        lengths |= {names.local_segment(number): mark.length for number, mark in enumerate(point.segments, 1)}
    return {name: _digest(path / name, length) for name, length in lengths.items()} if any(lengths.values()) else {}


def _taken(path: Path, furthest: str) -> set[str]:
    """The files of the items that the furthest directory says it has taken."""
    try:
        applied = State(path / names.STATES / furthest).control.applied
        return {f"{name}.{kind}" for name in applied for kind in KINDS}
    except (ShepherdError, OSError):
        return set()  # `check` has more to say about that


def _item(path: Path) -> str:
    """A file, or all files of a harvest."""
    return " ".join(f"{p.name}: {_digest(p)}" for p in sorted(path.iterdir())) if path.is_dir() else _digest(path)


def _digest(path: Path, length: int | None = None) -> str:
    data = path.read_bytes()[:length]
    return f"{len(data)} bytes {hashlib.blake2b(data, digest_size=8).hexdigest()}"


def state_digest(path: Path) -> str:
    """Names, bytes and seals of all files but those of harvests."""
    whole = hashlib.blake2b(digest_size=8)
    for directory, below, files in os.walk(path):
        below[:] = sorted(name for name in below if name != names.HARVESTS)
        for name in sorted(files):
            file = os.path.join(directory, name)
            with open(file, "rb") as opened:
                sealed = not os.fstat(opened.fileno()).st_mode & 0o222
                whole.update(f"{os.path.relpath(file, path)}\0{sealed}\0".encode() + opened.read())
    return whole.hexdigest()


# --- judging ----------------------------------------------------------------------------------------------------


def judge(path: Path, before: Facts, *after: Facts) -> list[str]:
    """Recover the database at `path`; every way in which what is left is neither as before nor as one of those after."""
    return list(violations(path, before, *after))


def violations(path: Path, before: Facts, *after: Facts) -> Iterator[str]:
    """The same one by one, the cheap ones first: a caller that only asks whether there is any need not wait for all."""
    if not (path / names.STATES).is_dir():
        if before.states:
            yield "I2: the database is gone"
        return
    yield from _sight(path)
    try:
        with recording(Recorder(path)) as recorder:
            steps = recover_once(path)
    except Exception as error:  # whatever it is, it is the finding
        yield f"recover: {type(error).__name__}: {error}"
        return
    yield from _leftovers(path)
    yield from _stuck(path)
    yield from _compare(observe(path), [before, *after])
    yield from _unnoted(path)
    yield from _faults(path)
    if steps or any(call.op != "sync" for call in recorder.log):  # else a second recover is the first once more
        yield from _again(path)


def recover_once(path: Path) -> list[recover.RecoveryStep]:
    with Database(path).writing("test", tidy=False) as writer:
        return recover.recover(writer)


def _compare(found: Facts, allowed: list[Facts]) -> Iterator[str]:
    """Where the operation moves the furthest directory on, all else must fit the one that is found: a request is not lost with
    the directory that had taken it, and not taken twice."""
    sides = [facts for facts in allowed if facts.furthest == found.furthest]
    if not sides:
        yield f"I2: {found.furthest or 'nothing'} is furthest, none of {', '.join(facts.furthest for facts in allowed)}"
    else:
        yield from _among("I1/I2/I5: state", found.states, [facts.states for facts in sides])
        yield from _among("I4: harvest", found.harvests, [facts.harvests for facts in sides])
        yield from _among("inbox item", found.items, [facts.items for facts in sides])
    yield from _among("lease", found.leases, [facts.leases for facts in allowed], allowed[-1].doubtful)


def _among(
    what: str, found: Mapping[str, object], allowed: list[Mapping[str, object]], doubtful: Collection[str] = ()
) -> Iterator[str]:
    """What is the same in all of them must be there; what is not, must be as in one of them."""
    for name in sorted({*found}.union(*allowed) - {*doubtful}):
        wanted = [one.get(name, "gone") for one in allowed]
        if found.get(name, "gone") not in wanted:
            yield f"{what} {name} is {found.get(name, 'gone')}, none of {wanted}"


def _sight(path: Path) -> Iterator[str]:
    """Readers do not wait for a recover: whatever has the name of a finished directory is whole, before as after."""
    try:
        faults = [str(fault) for fault in check.walk(Database(path), quick=True) if not fault.note]
    except Exception as error:
        faults = [f"check: {type(error).__name__}: {error}"]
    yield from (f"I1 before recover: {fault}" for fault in faults)


def _faults(path: Path) -> Iterator[str]:
    """I1 and I3. A harvest that has not ended is nothing to complain about; any other note is about something left behind."""
    try:
        faults = [fault for fault in check.walk(Database(path)) if "has not ended" not in fault.what]
    except Exception as error:
        yield f"I1: check: {type(error).__name__}: {error}"
        return
    yield from (f"{'I6' if fault.note else 'I1/I3'}: {fault}" for fault in faults)


def _leftovers(path: Path) -> Iterator[str]:
    yield from (f"I6: {entry} is left" for entry in sorted(os.listdir(path / names.STATES)) if names.is_leftover(entry))
    for name in Database(path).states()[:-1]:
        if not name.closed:
            yield f"I6: {name} is left beside what was made from it"
    for place in (path, path / names.INBOX, path / names.LEASES):
        if not place.is_dir():
            yield f"I1: {place.name} is gone"
            continue
        for entry in sorted(os.listdir(place)):
            if entry.startswith("."):
                yield f"I6: {place.name}/{entry} is left"


def _unnoted(path: Path) -> Iterator[str]:
    """I9: what is not noted counts as made here, and then nothing is received any more."""
    if (path / names.MIRROR).exists():
        yield from (f"I9: {name} was received, and is not noted" for name in mirror.unknown(Database(path)))


def _stuck(path: Path) -> Iterator[str]:
    """A reap that has not ended can go on: nobody has sealed its files."""
    for state in sorted((path / names.STATES).iterdir()):
        for directory in sorted((state / names.HARVESTS).glob("*")):
            if not harvest.inspect(directory).ended:
                for file in sorted(directory.iterdir()):
                    if not file.stat().st_mode & 0o200 or file.stat().st_nlink != 1:
                        yield f"I4: {state.name}/{directory.name} has not ended, but {file.name} is sealed or linked"


def _again(path: Path) -> Iterator[str]:
    """I7: a second recover finds nothing to do, and changes nothing."""
    with recording(Recorder(path)) as recorder:
        try:
            steps = [f"finds something to do: {step.what}" for step in recover_once(path)]
        except Exception as error:
            steps = [f"fails: {type(error).__name__}: {error}"]
    for what in (*steps, *(f"changes the disk: {call}" for call in recorder.log if call.op != "sync")):
        yield f"I7: a second recover {what}"
