"""Every sync is forgotten in turn, as if the disk had said yes and done nothing: one that nobody misses would be for nothing.

A mutant is a run without one sync. It is noticed if one of the disks that are possible only without that sync breaks a promise.
Some need a kill first: the sync makes up for one that a killed program did not come to. What survives stands in a list, with the
reason why the sync stays. A sync that had nothing to make durable cannot be missed and is not counted.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from shepherd.formats.tables import TABLES
from shepherd.store.disk import names
from tests.crash import sweep
from tests.crash.record import Call
from tests.crash.replay import Distinct, Run, cuts_of, out_of_sight
from tests.crash.tally import Tally
from tests.crash.workloads import PHASES, WORKLOADS, Workload
from tests.support import sampling

Role: TypeAlias = tuple[str, str]  # who syncs, and what

PROBE = "tries whether the file system can sync; what it made goes again"
LATER = "the checkpoint or the end that follows syncs this file, too; until then a lost cut is cut again by the next rollback"
AGAIN = "what was not made durable is done again; only who builds on it needs the sync: `resume`, `inbox` and the kills show that"
NEW = "nothing is in the files of a new harvest before its first checkpoint, and that syncs the directory"
SPREAD = "spreads the writing of large segments; sealing syncs them anyway"
LAST = "the sync after the last of several renames is for all of them"

REAP: Final = "db/state/N.reap/harvest/reap"
MODE = "what was lost is a mode, which the next program that takes the lock gives back"
SURVIVE: Final[dict[str, dict[Role, str]]] = {
    "init": {
        ("_settle", "db"): PROBE,
        ("_abilities.<locals>.<lambda>", "db/.probe-N/a"): PROBE,
        ("_rename", "db/.probe-N"): PROBE,
        ("_rename", "db/.probe-N/d.tmp/a"): PROBE,
        **{("ColumnWriter.finish", f"db/.state.tmp/N.tmp/{table}/COLUMN"): MODE for table in TABLES},  # they are empty
    },
    "publish": {
        ("SegmentWriter.sync", "db/state/N.tmp/objects/N"): SPREAD,
        ("Builder.finish_segments", "db/state/N.tmp/objects/N"): MODE,
    },
    "harvest": {("rollback", REAP): NEW},
    "harvest and cork": {("rollback", REAP): NEW},
    "cork": {("Builder.adopt", f"{REAP}/{name}"): MODE for name in ("seg.N", "contrib")},
    "resume": {("rollback", f"{REAP}/{name}"): LATER for name in ("checkpoints", "journal", "contrib")},
    "recover": {
        ("Writer.remove_leftovers", "db/state"): AGAIN,
        ("Inbox.remove", "db/inbox"): AGAIN,
        ("rollback", REAP): AGAIN,
        **{("rollback", f"{REAP}/{name}"): AGAIN for name in ("checkpoints", "journal", "contrib", "seg.N")},
    },
    "recover from damage": {
        ("rollback", REAP): AGAIN,
        **{("rollback", f"{REAP}/{name}"): AGAIN for name in ("journal", "contrib", "seg.N")},
    },
    "prune": {("Writer.prune", "db/state"): LAST},
    "inbox harvest": {
        ("copy", "db/inbox"): LAST,
        ("Inbox.remove", "db/inbox"): AGAIN,
        **{("Builder.adopt", f"db/inbox/ITEM.harvest/{name}"): MODE for name in ("seg.N", "contrib")},
    },
    "phase record": {("Inbox.remove", "db/inbox"): AGAIN},
    "phase feedback": {("Inbox.remove", "db/inbox"): AGAIN},
}
# Belt and braces: of what must be made up for after a kill, nothing is ever missed without these.
NEVER_MISSED: Final[dict[Role, str]] = {
    ("_settle", "db"): PROBE,
    ("rollback", f"{REAP}/journal"): LATER,
    ("rollback", f"{REAP}/contrib"): LATER,
}
# The same syncs as elsewhere, in other company, are left to the full sweeps.
SWEEP: Final = sampling.IS_SWEEP
FORGETFUL: Final = {**WORKLOADS, **PHASES} if SWEEP else {k: v for k, v in WORKLOADS.items() if k != "harvest and cork"}
KILLED: Final = {k: v for k, v in WORKLOADS.items() if SWEEP or k not in ("publish", "cork", "recover", "lease")}
MOST_CUTS: Final = 24  # by default, of one mutant
FEW_CUTS: Final = 3  # by default, of one that is known to survive


def role(call: Call) -> Role:
    table = rf"/({'|'.join(TABLES)})/[a-z_]+(\.check)?$"
    path = re.sub(r"[0-9]{3,}", "N", re.sub(table, r"/\1/COLUMN", call.path))
    return call.site, re.sub(r"/N-[^/]+-[0-9N]+\.", "/ITEM.", path)


def noticed(workload: Workload, mutant: Run, place: int, path: str, memory: Path, most: int | None) -> bool | None:
    """Whether a disk that only the mutant makes possible breaks a promise; None if there is no such disk."""
    possible = False
    found = (cut for cut in Distinct(alike=1)(cuts_of(mutant, place, path)) if workload.sound or cut.era)
    for cut in itertools.islice(found, most):
        possible = True
        if sweep.first_violation(mutant, cut, memory) is not None:
            return True
    return False if possible else None


@pytest.mark.parametrize("name", sampling.of_the_day(FORGETFUL, 6, "forgotten syncs"))
def test_forgotten_sync_is_noticed(name: str, memory: Path, tally: Tally) -> None:
    workload = FORGETFUL[name]
    run = sweep.record(workload, memory)
    verdicts: dict[Role, list[bool]] = defaultdict(list)
    for place in run.syncs():
        call = run.log[place]
        if SWEEP or not verdicts[role(call)]:  # by default the first of each role that had something to lose
            expected = role(call) in SURVIVE.get(name, {})
            most = None if SWEEP else FEW_CUTS if expected else MOST_CUTS
            verdict = noticed(workload, run.forgetting({place}), place, call.path, memory, most)
            if verdict is not None:
                verdicts[role(call)].append(verdict)
                tally.point(f"without {call}", [] if verdict or expected else ["nobody notices"])
    survived = {one for one, found in verdicts.items() if not all(found)}
    print(
        f"{len(run.syncs())} syncs, {tally.n} with something to lose, {sum(map(sum, verdicts.values()))} noticed; not: {survived}"
    )
    tally.close()
    assert survived == set(SURVIVE.get(name, {})), "the list of survivors is longer than it needs to be"


def test_forgotten_sync_that_makes_up_for_a_killed_program_is_noticed(memory: Path, tally: Tally) -> None:
    """Programs killed right before a sync; after the restart, every sync of what was uncertain then is forgotten in turn."""
    verdicts: dict[Role, list[bool]] = defaultdict(list)
    for name, workload in KILLED.items():
        run = sweep.record(workload, memory)
        for kill, with_recover in itertools.product(kills(run, name), (True, False) if SWEEP else (False,)):
            both, _end = sweep.restart(workload, run, kill, memory, with_recover)
            for path, places in making_up(both, kill).items():
                one = role(both.log[min(places)])
                if SWEEP or not any(verdicts[one]):  # by default once noticed is enough
                    most = None if SWEEP else MOST_CUTS
                    verdict = noticed(workload, both.forgetting(places), min(places), path, memory, most)
                    verdicts[one] += [] if verdict is None else [verdict]
    survived = {one for one, found in verdicts.items() if found and not any(found)}
    for one, found in verdicts.items():
        if found:
            tally.point(f"without {one}", [] if any(found) or one in NEVER_MISSED else ["nobody notices"])
    print(f"{sum(map(len, verdicts.values()))} mutants of {tally.n} syncs; survived: {sorted(survived)}")
    tally.close()
    assert survived == set(NEVER_MISSED), "the list of survivors is longer than it needs to be"


def kills(run: Run, name: str) -> list[int]:
    """Right before a sync of what can be seen; by default once for each role, and where a harvest ends."""
    changes = ("rename", "mkdir", "unlink", "truncate", *(["write"] if SWEEP else []))
    found = [place for place in run.syncs() if place and run.log[place - 1].op in changes]
    found = [place for place in found if not any(map(out_of_sight, run.log[place].path.split("/")))]
    if SWEEP:
        return found
    if name == "harvest and cork":
        return [max(place for place in run.syncs() if run.log[place].path.endswith(names.CHECKPOINTS))]
    return sorted({role(run.log[place]): place for place in found}.values())


def making_up(both: Run, kill: int) -> dict[str, list[int]]:
    """Where, after a kill, what was uncertain then is synced, by path; from the first place of the code that does it."""
    found: dict[str, list[int]] = defaultdict(list)
    doubtful: set[int] = set()
    for position, disk in both.disks(kill):
        if position == kill:
            doubtful = set(disk.uncertain()) & disk.visible(out_of_sight)
        if position < len(both.log) and both.log[position].op == "sync":
            call = both.log[position]
            known = found.get(call.path)
            if disk.number_of(call.path) in doubtful and (not known or both.log[known[0]].site == call.site):
                found[call.path].append(position)
    return found
