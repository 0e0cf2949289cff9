"""What must hold of a soaked farm at a quiet point, when nothing runs that writes to the database: invariants I1 to I10.

I1, I3, I6 and I7 are judged by the oracle of the crash tests, which recovers the database first; I2, I4 and I5 by what the ledger
knows; I8 by a recover that is killed; I9 by the toy web's own log; I10 by the journals.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shepherd.errors import ShepherdError
from shepherd.formats.tables import NO_ROW, JournalFlag, Kind
from shepherd.store.disk import names
from shepherd.store.state import journals
from shepherd.store.state.directory import State
from tests.crash import oracle
from tests.soak.ledger import Ledger
from tests.soak.stage import DELAY_S, ROOT, Stage
from toyweb import log


def judge(stage: Stage, ledger: Ledger, number: int) -> Iterator[str]:
    """Complaints. The reapers may run; `number` says how soon a first recover is killed."""
    before = _facts(stage.db)
    _kill_a_recover(stage, number)
    yield from oracle.violations(stage.db, before)
    yield from twice_settled(stage)
    yield from impolite(stage)
    try:
        ledger.compare_states(stage)
        ledger.compare_documents(stage)
    except ShepherdError as error:
        yield f"what was told cannot be compared: {error}"


def _facts(db: Path) -> oracle.Facts:
    """What a recover may not change: of unfinished directories only the furthest counts."""
    facts = oracle.observe(db, to_checkpoint=True)

    def counts(name: str) -> bool:
        parsed = names.parse_state(name)
        return name == facts.furthest or (parsed is not None and parsed.closed)

    return replace(
        facts,
        states={name: digest for name, digest in facts.states.items() if counts(name)},
        harvests={name: files for name, files in facts.harvests.items() if counts(name.partition("/")[0])},
    )


def _kill_a_recover(stage: Stage, number: int) -> None:
    """I8: what a killed recover leaves, the next one mends; the oracle will see."""
    command = [sys.executable, "-m", "shepherd.cli", "shep-recover", "--quiet", "--db", str(stage.db)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        time.sleep(0.2 + number % 1000 / 1500)
        process.send_signal(signal.SIGKILL)


def twice_settled(stage: Stage) -> Iterator[str]:
    """I10: no reap settles a record of its plan twice, whatever became of the reapers that had it."""
    database = stage.database
    states = [database.open(name) for name in database.states() if name.closed]
    states += [journals.open_state(database.log_path, name) for name in journals.numbers(database.log_path)]
    for state in states:
        for number in state.numbered(names.JOURNAL):
            yield from _twice(state, number)


def _twice(state: State, number: int) -> Iterator[str]:
    records = state.journal(number)
    settling = (records["kind"] == Kind.PAGE) & (records["flags"] & JournalFlag.HOP == 0) & (records["plan_row"] != NO_ROW)
    for row, count in Counter(records["plan_row"][settling].tolist()).items():
        if count > 1:
            yield f"I10: row {row} of the plan was settled {count} times in journal {number} of {state.name}"


def impolite(stage: Stage) -> Iterator[str]:
    """I9."""
    entries = log.read_log(stage.web.log_path)
    yield from (f"I9: {violation}" for violation in log.audit(entries, stage.model.delays_s(DELAY_S)))
