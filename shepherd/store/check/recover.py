"""What is wrong with a database after a crash, and the part of mending it that needs no rebuilding (docs/recovery.md).

Nothing needs a person to decide. Leftovers of killed phases go; a killed reap is rolled back to its newest checkpoint that
checks; an unfinished directory that is damaged goes if its phase can run again. A damaged closed state, and a reap that stands on
one, are rebuilt by cycle/rebuild/recover. Closed states are never written. Safe to kill anywhere; a second run finds nothing to
do.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shepherd.errors import Corruption, RecoveryNeeded
from shepherd.store.check import check, salvage
from shepherd.store.check.faults import Fault
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest
from shepherd.store.state.database import Database, Writer

REBUILT: Final = "recover"  # the phase in the report of a state that was made again


@dataclass(frozen=True)
class RecoveryStep:
    """One thing that was done, or would be."""

    what: str
    loss: str = ""  # what the step gives up, in words
    details: tuple[str, ...] = ()  # of a rebuild: what could not be taken over as it was


@dataclass(frozen=True)
class Findings:
    """What stands in db/state that should not be there, or not so."""

    leftovers: list[str]
    superseded: list[tuple[StateName, StateName]]  # an unfinished directory, and the one that was made from it
    spoilt: list[tuple[StateName, Fault]]  # unfinished directories that their phases can make again
    wreck: tuple[StateName, Fault] | None  # the newest closed state, damaged
    stray: StateName | None  # a .reap whose harvest must be carried over to the state that is made of the wreck
    snapshots: list[tuple[StateName, Fault]]  # damaged closed states that are not the newest
    harvests: list[tuple[Path, harvest.HarvestStatus]] = field(default_factory=list)  # to be rolled back
    deep: bool = False

    @property
    def needs_rebuild(self) -> bool:
        return self.wreck is not None or self.stray is not None

    def steps(self) -> list[RecoveryStep]:
        """Everything but the rebuilding, in words."""
        steps = [RecoveryStep(f"remove {name}, left by a killed program") for name in self.leftovers]
        steps += [RecoveryStep(f"remove {name}: {heir} was made from it") for name, heir in self.superseded]
        steps += [RecoveryStep(f"remove {name}: {fault}", "nothing: its phase runs again") for name, fault in self.spoilt]
        steps += [
            RecoveryStep(f"remove {name}: {fault}", "that snapshot; a newer one is whole") for name, fault in self.snapshots
        ]
        for path, status in self.harvests:
            excess = _bytes(path) - _checkpointed_bytes(status)
            if status.damage or excess > 0:
                why = f" ({status.damage})" if status.damage else ""
                what = f"roll {path.parent.parent.name}/{path.name} back to checkpoint {status.checkpoint.sequence}{why}"
                steps.append(RecoveryStep(what, f"{max(excess, 0)} bytes written since"))
        return steps


def survey(database: Database, deep: bool = False, rebuilt: StateName | None = None) -> Findings:
    """Look, and change nothing. `deep` reads every byte; else only names, lengths, controls and block tables.

    `rebuilt` is a state that has just been made again and checked: it is not read once more.
    """
    states = database.states()
    if not states:
        raise RecoveryNeeded(f"{database.states_path}: no state is there; copy one back from a mirror")
    parents = _parents(database, states)
    superseded = [(name, parents[str(name)]) for name in states[:-1] if not name.closed and str(name) in parents]
    remaining = [name for name in states if name not in [name_gone for name_gone, _heir in superseded]]
    spoilt: list[tuple[StateName, Fault]] = []
    wreck: tuple[StateName, Fault] | None = None
    stray: StateName | None = None
    for name in reversed(remaining):
        fault = _fault(database, name, deep and name != rebuilt)
        if name.closed:
            wreck = (name, fault) if fault else None
            break
        if not fault:
            break  # whole, and further than any closed state
        if _has_harvest(database, name):
            stray = stray or name
        else:
            spoilt.append((name, fault))
    standing = [name for name in remaining if name not in [name_gone for name_gone, _fault in spoilt]]
    stray = stray or (_stray_reap(database, standing) if wreck is None else None)
    newest = max((name for name in remaining if name.closed), key=lambda name: name.number, default=None)
    snapshots = [] if not deep else _damaged_snapshots(database, [n for n in remaining if n.closed and n is not newest])
    harvests = _harvests(database, standing[-1], deep) if standing and wreck is None and stray is None else []
    leftovers = [entry for entry in sorted(os.listdir(database.states_path)) if names.is_leftover(entry)]
    leftovers += [f"{path.parent.name}/{path.name}" for path in database.half_dropped()]
    return Findings(leftovers, superseded, spoilt, wreck, stray, snapshots, harvests, deep)


def mend(writer: Writer, findings: Findings) -> list[RecoveryStep]:
    """All that needs no rebuilding; what was done."""
    steps = findings.steps()  # while it can still be seen how much a rollback gives up
    writer.remove_leftovers()
    for name, _fault in findings.spoilt:
        writer.delete(name)
    if findings.needs_rebuild:
        return dataclasses.replace(findings, superseded=[], snapshots=[], harvests=[]).steps()
    writer.tidy()
    for path, status in findings.harvests:
        harvest.rollback(path, accept_loss=findings.deep or bool(status.damage))
    for path in writer.furthest().harvests():
        if path not in [damaged for damaged, _status in findings.harvests]:
            harvest.confirm_end(path)
    writer.drop_snapshots([name for name, _fault in findings.snapshots])
    return steps


def recover(writer: Writer) -> list[RecoveryStep]:
    """All that can be mended without rebuilding anything: what a crash alone can leave, and a damaged harvest."""
    for deep in (False, True):
        findings = survey(writer.database, deep)
        if findings.needs_rebuild:
            name = findings.wreck[0] if findings.wreck else findings.stray
            raise Corruption("damaged", str(name), advice="run shep-recover, which makes it again from what is left")
        steps = mend(writer, findings)
        if steps:
            return steps
    return []


def _parents(database: Database, states: list[StateName]) -> dict[str, StateName]:
    """Which directory was made from which, as far as their controls can be read."""
    controls = {name: salvage.any_control([database.states_path / str(name)]) for name in states}
    return {control.parent: name for name, control in controls.items() if control is not None}


def _fault(database: Database, name: StateName, deep: bool) -> Fault | None:
    """The first fault of a directory, its harvests apart."""
    path = database.states_path / str(name)
    inside = path / names.HARVESTS
    faults = check.walk_state(path, quick=not deep)
    return next((fault for fault in faults if not fault.note and not fault.path.is_relative_to(inside)), None)


def _stray_reap(database: Database, states: list[StateName]) -> StateName | None:
    """A .reap whose damaged state has been made again by a recovery that was then killed."""
    furthest = database.open(states[-1])
    for name in states[:-1]:
        if not name.closed and furthest.name.closed and _has_harvest(database, name):
            control = salvage.any_control([database.states_path / str(name)])
            rebuilt = furthest.report().get("phase") == REBUILT
            if rebuilt and (control is None or control.parent == furthest.control.parent):
                return name
    return None


def _has_harvest(database: Database, name: StateName) -> bool:
    directory = database.states_path / str(name) / names.HARVESTS
    return directory.is_dir() and any(names.is_harvest(path.name) for path in directory.iterdir())


def _damaged_snapshots(database: Database, older: list[StateName]) -> list[tuple[StateName, Fault]]:
    faults = [(name, _fault(database, name, deep=True)) for name in older]
    return [(name, fault) for name, fault in faults if fault is not None]


def _harvests(database: Database, name: StateName, deep: bool) -> list[tuple[Path, harvest.HarvestStatus]]:
    """The harvests that are to be rolled back: those that have not ended, and those with damage."""
    statuses = [(path, harvest.inspect(path, deep)) for path in database.open(name).harvests()]
    return [(path, status) for path, status in statuses if status.damage or not status.ended]


def _checkpointed_bytes(status: harvest.HarvestStatus) -> int:
    point = status.checkpoint
    return status.log_bytes + point.journal.length + point.contrib.length + sum(s.length for s in point.segments)


def _bytes(path: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.name != names.LOCK)
