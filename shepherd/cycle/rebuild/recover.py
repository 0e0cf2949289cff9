"""Drives shep-recover: the plain mending of store/check/recover, and the rebuilding of what is damaged.

A damaged closed state 8 becomes 10 if 9.reap stands on it, and then 9.reap becomes 11.reap: a fresh directory on the new state
with the old one's harvest and an empty plan. Only when both are published do the damaged ones go.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from shepherd.arrays.partitions import Tick
from shepherd.config import Config
from shepherd.cycle.rebuild import drive as rebuild
from shepherd.errors import Corruption
from shepherd.formats import tables
from shepherd.formats.frame import FrameKind
from shepherd.store.check import check, salvage
from shepherd.store.check.recover import Findings, RecoveryStep, mend, survey
from shepherd.store.check.salvage import Wreck
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import State

REAP = "reap"


def recover(
    writer: Writer, config: Config, now: int, deep: bool, tick: Tick, rebuilt_name: StateName | None = None
) -> list[RecoveryStep]:
    """Mend all that can be mended; what was done, and what it cost. `made` has been made again just now."""
    findings = survey(writer.database, deep, rebuilt_name)
    steps = mend(writer, findings)
    if not findings.needs_rebuild:
        return steps
    if rebuilt_name is not None and findings.wreck is not None and findings.wreck[0] == rebuilt_name:
        raise Corruption(f"{rebuilt_name} was made and checked just now, and has a fault: {findings.wreck[1]}; use a mirror")
    number = writer.database.states()[-1].number + 1
    if findings.wreck is not None:
        state, step = _rebuild(writer, findings.wreck[0], number, config, now, tick)
        steps.append(step)
        rebuilt_name, number = state.name, number + 1
    if findings.stray is not None:
        steps += _carry_over(writer, findings.stray, number, now)
    if findings.wreck is not None:
        writer.drop_snapshots([findings.wreck[0]])
    return steps + recover(writer, config, now, True, tick, rebuilt_name)  # older states may share what was damaged


def describe(findings: Findings) -> list[RecoveryStep]:
    """What `recover` would do."""
    steps = findings.steps()
    if findings.wreck is not None:
        name, fault = findings.wreck
        steps.append(RecoveryStep(f"make a new state from what is left of {name}: {fault}", "shown when it is done"))
    if findings.stray is not None:
        steps.append(
            RecoveryStep(f"carry the harvest of {findings.stray} over to the new state", "what was planned and not yet fetched")
        )
    return steps


def _rebuild(writer: Writer, name: StateName, number: int, config: Config, now: int, tick: Tick) -> tuple[State, RecoveryStep]:
    """The new state is checked but for its buckets: every byte of them was read a moment ago, and the rows are made of them."""
    database = writer.database
    others = [other for other in reversed(database.states()) if other != name]
    borrowed = salvage.any_control([database.states_path / str(other) for other in others])
    own = salvage.any_control([database.states_path / str(name)])
    if borrowed is None and own is None:
        raise Corruption("no control file can be read, and the key is lost with them; use a mirror", database.states_path)
    wreck = Wreck(database.states_path / str(name), own or borrowed)  # type: ignore[arg-type]  # one of them is there
    older = _older(writer, [other for other in others if other.closed and other.number < name.number])
    state = rebuild.run(writer, wreck, number, older, config, now, tick)
    fault = next((fault for fault in check.walk_tables(state.path) if not fault.note), None)
    if fault is not None:
        raise Corruption(
            f"{state.name} was made from what is left of {name}, but it does not hold together: {fault}; use a mirror"
        )
    helped = f" and of {older.name}" if older is not None else ""
    what = f"made {state.name} from what is left of {name}{helped}"
    return state, RecoveryStep(what, details=_details(state.report()["counts"]))


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
    """The harvest of a damaged .reap under a new one: what was fetched stays, what was still planned is planned again."""
    old = writer.database.states_path / str(stray)
    closed = writer.database.closed()
    for path in sorted((old / names.HARVESTS).iterdir()):
        if names.is_harvest(path.name):
            harvest.rollback(path, accept_loss=True)
    builder = writer.build(closed, StateName(number, REAP), now)
    try:
        builder.keep(path for path in closed.control.files if path != names.REPORT)
        builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(0, tables.PLAN))
        for path in sorted((old / names.HARVESTS).iterdir()):
            if names.is_harvest(path.name):
                harvest.copy(path, builder.path / names.HARVESTS / path.name)
        builder.control = dataclasses.replace(builder.control, parent=str(stray))
        builder.publish({"phase": "recover", "from": str(stray)})
    finally:
        builder.close()
    writer.delete(stray)
    return [RecoveryStep(f"carried the harvest of {stray} over to {builder.name}", "what was planned and not yet fetched")]
