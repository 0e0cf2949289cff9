"""What must hold of a database after any fault, as complaints: none, and the fault has cost nothing it may not cost.

`judge` first lets shep-recover do its work, as after a crash. Then the database must be as before the disturbed step or as after
it, to the byte; what was acknowledged is there; everything checks; a second recover finds nothing to do; nothing is left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shepherd.errors import ShepherdError
from shepherd.formats.tables import in_bucket
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from shepherd.store.state.inbox import HARVEST
from tests.crash import cycle_steps


@dataclass(frozen=True)
class Facts:
    """All that a database holds and a fault may not change.

    Of a harvest it is the documents, not the files: one that is resumed after a crash has other files with the same documents.
    """

    states: dict[str, dict[str, bytes]]  # by name, every file but those of harvests
    inbox: list[bytes]  # requests and feedback, without the names, which have time and pid in them
    documents: list[bytes]
    ended: bool


def facts(db: Path) -> Facts:
    found = Database(db)
    states = {str(name): _files(found.states_path / str(name)) for name in found.states()}
    inbox = sorted(item.path.read_bytes() for item in found.inbox.all_items() if item.kind != HARVEST)
    paths = found.furthest().harvests()
    ended = bool(paths) and all(harvest.inspect(path).ended for path in paths)
    return Facts(states, inbox, cycle_steps.documents(db), ended)


def _files(path: Path) -> dict[str, bytes]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    inside = ((str(file.relative_to(path)), file) for file in files)
    return {name: file.read_bytes() for name, file in inside if not name.startswith(f"{names.HARVESTS}/")}


def judge(db: Path, before: Facts, after: Facts, acknowledged: int = 0, done: bool = False) -> list[str]:
    """Complaints about a database that a fault struck in the step from `before` to `after`.

    `acknowledged`: how many documents the step had called durable; `done`: whether it had ended.
    """
    try:
        cycle_steps.recovered(db, quick=True)  # no crash leaves more to do than a quick look finds
        found = facts(db)
        complaints = [*_compare(found, before, after, acknowledged, done), *untidy(db)]
        again = [step.what for step in cycle_steps.recovered(db, quick=True)]
        complaints += [f"a second recover does more: {what}" for what in again]
        if facts(db) != found:
            complaints.append("a second recover changes something")
    except ShepherdError as error:
        return [f"recovery fails, status {error.exit_status}: {error}"]
    return complaints


def gathered(db: Path) -> dict[int, bytes]:
    """The body of every row of the newest closed state that has one, by path."""
    state = Database(db).closed()
    oids = state.index["oid"][0 : state.index.rows]
    rows = np.flatnonzero((state.index["digest"][0 : state.index.rows] != 0) & in_bucket(oids)).tolist()
    return {state.index["path"].value(row): state.objects.get(int(oids[row])).body() for row in rows}


def judge_contents(db: Path, after: dict[int, bytes]) -> list[str]:
    """Complaints about a database whose step does less at a time where the disk has less room: its states may be others than
    elsewhere, what is `after` it is not."""
    try:
        cycle_steps.recovered(db, quick=True)
        lost = {path for path, body in after.items() if gathered(db).get(path) != body}
    except ShepherdError as error:
        return [f"recovery fails, status {error.exit_status}: {error}"]
    return [*(f"the document {path:016x} is lost" for path in lost), *untidy(db)]


def _compare(found: Facts, before: Facts, after: Facts, acknowledged: int, done: bool) -> Iterator[str]:
    if found.states != after.states and (done or found.states != before.states):
        was = f"{sorted(found.states)}, before {sorted(before.states)}, after {sorted(after.states)}"
        yield f"the states are not as {'after it' if done else 'before or after'}: {was}: {_differing(found, before, after)}"
    if found.inbox != after.inbox and (done or found.inbox != before.inbox):
        yield f"the inbox has {len(found.inbox)} items, before {len(before.inbox)}, after {len(after.inbox)}, or they differ"
    if found.states == after.states != before.states and found.inbox != after.inbox:
        yield "the step has happened, and the inbox is as before"
    if before.states == after.states and (before.documents, before.ended) != (after.documents, after.ended):
        yield from _compare_documents(found, before, after, acknowledged, done)


def _compare_documents(found: Facts, before: Facts, after: Facts, acknowledged: int, done: bool) -> Iterator[str]:
    count = len(found.documents)
    if found.documents != after.documents[:count]:
        yield "a document is not as it was stored"
    if count < max(len(before.documents), acknowledged):
        yield f"{count} documents are left of {max(len(before.documents), acknowledged)} that were acknowledged"
    if count % cycle_steps.BATCH:
        yield f"{count} documents: no checkpoint was taken there"
    if done and (count, found.ended) != (len(after.documents), after.ended):
        yield "the harvest had ended, and is not as it was then"


def _differing(found: Facts, before: Facts, after: Facts) -> list[str]:
    """The files of the states that are as neither before nor after."""
    differ = []
    for name, files in found.states.items():
        for reference in (before, after):
            expected = reference.states.get(name, {})
            differ += [f"{name}/{path}" for path in files.keys() | expected.keys() if files.get(path) != expected.get(path)]
    return sorted(set(differ))[:5]


def untidy(db: Path) -> list[str]:
    """Complaints about what does not check, and about what nobody should find there."""
    faults = [fault for fault in check.walk(Database(db)) if "the reap has not ended" not in fault.what]
    hidden = [entry for name in (names.INBOX, names.LEASES) for entry in sorted((db / name).glob(".*"))]
    return [*(f"shep-check: {fault}" for fault in faults), *(f"left over: {entry}" for entry in hidden)]
