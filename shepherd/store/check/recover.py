"""What is wrong with a database after a crash or after damage, and the part of mending it that needs no rebuilding
(docs/recovery.md).

Nothing needs a person to decide. Every directory is looked at, because somebody may read each: the cycle, readers, leases,
cursors. Leftovers of killed phases go; a killed reap is rolled back to its newest checkpoint that checks; a damaged file whose
bytes stand elsewhere is put back (repair.py); an unfinished directory that is damaged beyond that goes if its phase can run
again. A closed state with damage that nothing else makes up for, and what stands on it, are rebuilt by cycle/rebuild/recover.
What a closed state says is never changed. Safe to kill anywhere; a second run finds nothing to do.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shepherd.errors import Corruption, RecoveryNeeded
from shepherd.store.check import check, repair, salvage
from shepherd.store.check.faults import Fault
from shepherd.store.check.repair import Replacement
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
    replacements: list[Replacement]  # damaged files whose bytes stand elsewhere
    staged: list[Path]  # copies that a killed repair has left
    spoilt: list[tuple[StateName, str]]  # directories that their phases can make again, and why they must
    wreck: tuple[StateName, Fault] | None  # the newest closed state, damaged
    stray: StateName | None  # a .reap whose harvest must be carried over to the state that is made of the wreck
    snapshots: list[tuple[StateName, Fault]]  # damaged closed states that are not the newest, and that nobody leases
    harvests: list[tuple[Path, harvest.HarvestStatus]] = field(default_factory=list)  # to be rolled back
    deep: bool = False

    @property
    def needs_rebuild(self) -> bool:
        return self.wreck is not None or self.stray is not None

    def steps(self) -> list[RecoveryStep]:
        """Everything but the rebuilding, in words."""
        steps = self.repairs()
        steps += [RecoveryStep(f"remove {name}, left by a killed program") for name in self.leftovers]
        steps += [RecoveryStep(f"remove {name}: {heir} was made from it") for name, heir in self.superseded]
        steps += [RecoveryStep(f"remove {name}: {why}", "nothing: its phase runs again") for name, why in self.spoilt]
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

    def repairs(self) -> list[RecoveryStep]:
        """What is put back, in words; that costs nothing."""
        steps = [RecoveryStep(f"put {file.path} back, as it still stands in {file.source}") for file in self.replacements]
        if self.staged and not self.replacements:
            steps.append(RecoveryStep("remove the copies that a killed repair has left: every file they were for is whole"))
        return steps


def survey(database: Database, deep: bool = False, proved: StateName | None = None, mirrors: Sequence[Database] = ()) -> Findings:
    """Look, and change nothing. `deep` reads every byte; else only names, lengths, controls and block tables, as long as these
    are as they must be.

    `proved` is a state that was read whole before it was published just now: it is not read once more. In `mirrors` lost files
    are looked for, too.
    """
    states = database.states()
    if not states:
        raise RecoveryNeeded(f"{database.states_path}: no state is there; copy one back from a mirror")
    copies_left = repair.staged(database)
    deep = deep or bool(copies_left)  # one of them may be the only copy of a file that a quick look takes for whole
    faults = _faults(database, states, deep, proved)
    copies = repair.copies_for(database, mirrors)
    is_damaged = any(faults.values()) or repair.has_lost_log(faults, copies)
    if not deep and is_damaged:
        deep, faults = True, _faults(database, states, True, proved)
    replacements = []
    if is_damaged:
        replacements = repair.plan(faults, copies) + repair.plan_harvests(faults, copies)
    broken = {}
    for path, of_directory in faults.items():
        of_tables = [fault for fault in of_directory if not fault.path.is_relative_to(path / names.HARVESTS)]
        if rest := repair.remaining(of_tables, replacements):
            broken[path.name] = rest[0]
    findings = _verdict(database, states, broken)
    leftovers = [entry for entry in sorted(os.listdir(database.states_path)) if names.is_leftover(entry)]
    leftovers += [f"{path.parent.name}/{path.name}" for path in database.half_dropped()]
    return dataclasses.replace(
        findings,
        leftovers=leftovers,
        replacements=replacements,
        staged=copies_left,
        harvests=[] if findings.needs_rebuild else _harvests(database, findings, states, deep),
        deep=deep,
    )


def _faults(database: Database, states: list[StateName], deep: bool, proved: StateName | None) -> dict[Path, list[Fault]]:
    """The faults of every directory and of its harvests."""
    paths = [database.states_path / str(name) for name in states if name != proved]
    quick = [] if proved is None or proved not in states else [database.states_path / str(proved)]
    return check.faults_of(quick, quick=True) | check.faults_of(paths, quick=not deep)


def _verdict(database: Database, states: list[StateName], broken: dict[str, Fault]) -> Findings:
    """What is to become of each directory."""
    heirs = _heirs(database, states)
    closed = [name for name in states if name.closed]
    newest = closed[-1] if closed else None
    leased = {lease.state for lease in database.leases.all() if not lease.is_orphaned}
    whole = [name for name in closed if str(name) not in broken]
    superseded, spoilt, stray = [], list[tuple[StateName, str]](), None
    wreck = (newest, broken[str(newest)]) if newest is not None and str(newest) in broken else None
    for name in (name for name in states if not name.closed):
        heir = heirs.get(str(name))
        if heir is not None and str(heir) not in broken:
            superseded.append((name, heir))
        elif heir is not None and heir == newest and wreck and str(name) not in broken and whole and heir.number not in leased:
            spoilt.append((heir, str(wreck[1])))  # what it was made from still stands
            wreck = None
    for name in states:
        if name.closed or name in [name_gone for name_gone, _heir in superseded]:
            continue
        why = f"{broken[str(name)]}" if str(name) in broken else ""
        if wreck is not None:
            why = why or f"{wreck[0]}, which it was made from, is damaged"
        elif newest is not None and name.number < newest.number and _is_of_wreck(database, name, newest):
            why = why or f"{newest} was made in the place of what it was made from"
        if why and _harvest_paths(database, name):
            stray = name
        elif why:
            spoilt.append((name, why))
    damaged = [name for name in closed if str(name) in broken and name != newest]
    snapshots = [(name, broken[str(name)]) for name in damaged if name.number not in leased]
    return Findings([], superseded, [], [], spoilt, wreck, stray, snapshots)


def mend(writer: Writer, findings: Findings) -> list[RecoveryStep]:
    """All that needs no rebuilding; what was done. Where something is put back, that alone: then one must look again."""
    steps = findings.steps()  # while it can still be seen how much a rollback gives up
    if findings.replacements:
        repair.carry_out(writer.database, findings.replacements)
        return findings.repairs()
    writer.remove_leftovers()
    if findings.wreck is not None:  # until the new state is there, nothing that stands goes
        return dataclasses.replace(findings, superseded=[], spoilt=[], snapshots=[], harvests=[]).steps()
    if findings.staged:
        repair.discard_staged(writer.database)
    for name, _why in findings.spoilt:
        writer.delete(name)
    if findings.stray is not None:
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
    """All that can be mended without rebuilding anything: what a crash alone can leave, and damage that a copy makes up for."""
    for deep in (False, True):
        findings = survey(writer.database, deep)
        steps = []
        if findings.replacements:
            steps = mend(writer, findings)
            findings = survey(writer.database, deep=True)
        if findings.needs_rebuild:
            name = findings.wreck[0] if findings.wreck else findings.stray
            raise Corruption("damaged", str(name), advice="run shep-recover, which makes it again from what is left")
        steps += mend(writer, findings)
        if steps:
            return steps
    return []


def _heirs(database: Database, states: list[StateName]) -> dict[str, StateName]:
    """By the name of a directory the one that was made from it, as far as controls can be read."""
    controls = {name: salvage.own_control(database.states_path / str(name)) for name in states}
    return {control.parent: name for name, control in controls.items() if control is not None}


def _is_of_wreck(database: Database, name: StateName, newest: StateName) -> bool:
    """Whether an unfinished directory was made from the state in whose place a recovery has made the newest one."""
    try:
        rebuilt = database.open(newest)
        is_rebuilt = rebuilt.report().get("phase") == REBUILT
    except (Corruption, FileNotFoundError, ValueError):
        return False  # something of it is put back first; then one looks again
    damaged = names.parse_state(rebuilt.control.parent)
    return is_rebuilt and damaged is not None and damaged.number <= name.number


def _harvest_paths(database: Database, name: StateName) -> list[Path]:
    directory = database.states_path / str(name) / names.HARVESTS
    return sorted(path for path in directory.iterdir() if names.is_harvest(path.name)) if directory.is_dir() else []


def _harvests(
    database: Database, findings: Findings, states: list[StateName], deep: bool
) -> list[tuple[Path, harvest.HarvestStatus]]:
    """The harvests that are to be rolled back: those that have not ended, and those with damage."""
    removed = {name for name, _why in (*findings.superseded, *findings.spoilt)}
    furthest = next((name for name in reversed(states) if name not in removed), None)
    if furthest is None:
        return []
    statuses = [(path, harvest.inspect(path, deep)) for path in _harvest_paths(database, furthest)]
    return [(path, status) for path, status in statuses if status.damage or not status.ended]


def _checkpointed_bytes(status: harvest.HarvestStatus) -> int:
    point = status.checkpoint
    return status.log_bytes + point.journal.length + point.contrib.length + sum(s.length for s in point.segments)


def _bytes(path: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.name != names.LOCK)
