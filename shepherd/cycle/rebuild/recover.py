"""Drives shep-recover: the plain mending of store/check/recover, and the rebuilding of what is damaged.

A damaged closed state 8 becomes 10 if 9.reap stands on it, and then 9.reap becomes 11.reap: a fresh directory on the new state
with the old one's harvest and an empty plan. Only when both are published do the damaged ones go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from shepherd.arrays.partitions import Tick
from shepherd.config import Config
from shepherd.cycle.rebuild import drive as rebuild
from shepherd.errors import Corruption
from shepherd.formats import tables
from shepherd.formats.control import CLOSED, Control
from shepherd.formats.frame import FrameKind
from shepherd.store.check import check, salvage
from shepherd.store.check.copies import has_bytes
from shepherd.store.check.recover import Findings, RecoveryStep, mend, survey
from shepherd.store.check.salvage import Wreck
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import damage_note, harvest
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import State
from shepherd.store.state.dry_run import DryRun

REAP: Final = "reap"
UNFETCHED: Final = "what was planned and not yet fetched"

Announce: TypeAlias = Callable[[Sequence[RecoveryStep]], object]


@dataclass(frozen=True)
class Recovery:
    """What one recovery works with. In `mirrors` what is lost here is looked for; `announce` hears what is about to be done."""

    config: Config
    now: int
    tick: Tick
    mirrors: Sequence[Database] = ()
    announce: Announce = lambda steps: None


def recover(writer: Writer, run: Recovery, deep: bool) -> list[RecoveryStep]:
    """Mend all that can be mended; what was done, and what it cost. Where that fails, nothing is deleted any more until it does
    not."""
    try:
        return _recover(writer, run, deep)
    except Corruption as error:
        damage_note.write(writer.database.log_path, str(error))
        raise


def _recover(writer: Writer, run: Recovery, deep: bool, proved: StateName | None = None) -> list[RecoveryStep]:
    """`proved` has been made again just now."""
    findings = survey(writer.database, deep, proved, run.mirrors)
    if findings.replacements or findings.needs_rebuild:
        run.announce(describe(writer.database, findings, dataclasses.replace(run, tick=lambda _bytes: None)))
    steps = mend(writer, findings)
    if findings.replacements:
        return steps + _recover(writer, run, True, proved)
    if not findings.needs_rebuild:
        if findings.deep:
            damage_note.remove(writer.database.log_path)
        return steps
    if proved is not None and findings.wreck is not None and findings.wreck[0] == proved:
        raise Corruption(f"{proved} was made and checked just now, and has a fault: {findings.wreck[1]}; use a mirror")
    number = writer.database.states()[-1].number + 1
    if findings.wreck is not None:
        name = findings.wreck[0]
        state = _rebuild(writer, name, number, run)
        steps.append(_rebuilt(state, name))
        proved, number = state.name, number + 1
    if findings.stray is not None:
        steps += _carry_over(writer, findings.stray, number, run.now)
    if findings.wreck is not None:
        writer.drop_snapshots([findings.wreck[0]])
    return steps + _recover(writer, run, True, proved)  # older states may share what was damaged


def describe(database: Database, findings: Findings, run: Recovery) -> list[RecoveryStep]:
    """What `recover` would do. What a rebuild would find, and what it would lose, is counted by one that writes nothing."""
    steps = findings.steps()
    if findings.wreck is not None:
        name, fault = findings.wreck
        wreck = State.of_control(database.states_path / str(name), _control(database, name))
        state = _rebuild(DryRun(database, wreck), name, database.states()[-1].number + 1, run)
        step = _rebuilt(state, name)
        steps.append(dataclasses.replace(step, what=f"make {step.what.removeprefix('made ')}: {fault}"))
    if findings.stray is not None:
        steps.append(RecoveryStep(f"carry the harvest of {findings.stray} over to the new state", UNFETCHED))
    return steps


def _rebuild(writer: Writer, name: StateName, number: int, run: Recovery) -> State:
    """The new state. It is read whole before it is published."""
    database = writer.database
    wreck = Wreck(database.states_path / str(name), _control(database, name), _elsewhere(database, name, run.mirrors))
    closed = [other for other in reversed(database.states()) if other.closed and other.number < name.number]
    return rebuild.run(writer, wreck, number, _older(writer, closed), run.config, run.now, run.tick)


def _rebuilt(state: State, name: StateName) -> RecoveryStep:
    report = state.report()
    helped = f" and of {report['older']}" if report["older"] != "-" else ""
    return RecoveryStep(f"made {state.name} from what is left of {name}{helped}", details=_details(report["counts"]))


def _control(database: Database, name: StateName) -> Control:
    """The control of a state, or of the one that knows most of it: what was made from it, then closed states, newest first."""
    own = salvage.own_control(database.states_path / str(name))
    if own is not None:
        return own
    others = [salvage.own_control(database.states_path / str(other)) for other in reversed(database.states()) if other != name]
    controls = [control for control in others if control is not None]
    heirs = [control for control in controls if control.parent == str(name)]
    closed = [control for control in controls if control.phase == CLOSED]
    if not controls:
        raise Corruption("no control file can be read, and the key is lost with them; use a mirror", database.states_path)
    return [*heirs, *closed, *controls][0]


def _elsewhere(database: Database, name: StateName, mirrors: Sequence[Database]) -> list[Path]:
    """All other directories that may have segments of a state."""
    own = [database.states_path / str(other) for other in reversed(database.states()) if other != name]
    return own + [mirror.states_path / str(other) for mirror in mirrors for other in reversed(mirror.states())]


def _details(counts: dict[str, int]) -> tuple[str, ...]:
    """What a rebuild could not take over as it was: `weight: 140 from the older state, 73 not known`."""
    grouped: dict[str, list[str]] = {}
    for key, value in counts.items():
        what, _, how = key.partition(": ")
        grouped.setdefault(what, []).append(f"{value} {how}".rstrip())
    return tuple(f"{what}: {', '.join(phrases)}" for what, phrases in sorted(grouped.items()))


def _older(writer: Writer, closed: list[StateName]) -> State | None:
    """The newest older state whose tables check; that its segments are damaged, too, does not matter."""
    for name in closed:
        path = writer.database.states_path / str(name)
        bad = (fault for fault in check.walk_tables(path) if not fault.note and names.OBJECTS not in fault.path.parts)
        if next(bad, None) is None:
            return State(path)
    return None


def _carry_over(writer: Writer, stray: StateName, number: int, now: int) -> list[RecoveryStep]:
    """The harvest of a .reap under a new one. Its plan stays if it is whole and the index is to the byte what it was made of;
    else what was still planned is planned again."""
    old = writer.database.states_path / str(stray)
    closed = writer.database.closed()
    for path in sorted((old / names.HARVESTS).iterdir()):
        if names.is_harvest(path.name):
            harvest.rollback(path, accept_loss=True)
    builder = writer.build(closed, StateName(number, REAP), now)
    kept_plan = _is_plan_of(old, closed)
    try:
        builder.keep(path for path in closed.control.files if path != names.REPORT)
        if kept_plan:
            builder.adopt(names.PLAN, old / names.PLAN)
        else:
            builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(0, tables.PLAN))
        for path in sorted((old / names.HARVESTS).iterdir()):
            if names.is_harvest(path.name):
                harvest.copy(path, builder.path / names.HARVESTS / path.name)
        builder.control = dataclasses.replace(builder.control, parent=str(stray))
        builder.publish({"phase": "recover", "from": str(stray)})
    finally:
        builder.close()
    writer.delete(stray)
    return [RecoveryStep(f"carried the harvest of {stray} over to {builder.name}", "" if kept_plan else UNFETCHED)]


def _is_plan_of(reap: Path, closed: State) -> bool:
    """Whether the plan of a .reap is whole, and says of a state what it said of the one that it was made from."""
    control = salvage.own_control(reap)
    if control is None or names.PLAN not in control.files or not has_bytes(reap, names.PLAN, control.files[names.PLAN]):
        return False
    index = [path for path in closed.control.files if path.startswith("index/") and not path.endswith("/touched")]
    return all(control.files.get(path) == closed.control.files[path] for path in index)
