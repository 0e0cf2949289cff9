"""shepherd: the master, which runs the other programs in their order.

It decides by what stands in the database and by exit status alone, so after any crash, of itself or of a program, the next
start goes on from the right place. It holds db/lock for the whole cycle and passes it on to each program it runs.
"""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shepherd.cli import check_config, common, phase
from shepherd.cli.cycle import CORK, FEEDBACK, MERGE, PLAN, REAP, Found, look, next_step
from shepherd.cli.shep_shared import many, shown
from shepherd.config import Config
from shepherd.errors import Corruption, NothingToDo, ShepherdError

if TYPE_CHECKING:
    from shepherd.cli.children import Signals
    from shepherd.store.database import Database

CYCLES = "cycles.jsonl"
NOTHING = NothingToDo.exit_status
TERMINATED = 128 + signal.SIGTERM


@click.group()
@common.versioned
def command() -> None:
    """Run the programs of the cycle in their order."""


command.add_command(check_config.command)


@command.command("cycle")
@common.database
@common.configured
@click.option("--seconds", type=click.IntRange(min=0), metavar="N", help="End the reap after N seconds.  [default: plan.reap_s]")
@common.standard
def cycle_command(db: Path, config: Config, seconds: int | None) -> int:
    """Run one cycle and exit: feedback, plan, reap, cork, merge, equiv, select, record.

    What was inserted is merged first. After a crash the cycle goes on from what is there. The first Ctrl-C or SIGTERM ends the
    program that runs in good order, and then the cycle; the second kills it, and the database is intact all the same.
    Exit status 4 if there was nothing to do; else that of the program that failed.
    """
    from shepherd.cli.children import Signals
    from shepherd.store import locks, names
    from shepherd.store.database import Database

    database = Database(db)
    lock = phase.inherited_lock()
    if lock is None:
        lock = locks.lock(db / names.LOCK, "shepherd cycle").fd
    with database.writing("shepherd cycle", inherited=lock) as writer:
        cycle = Cycle(database, config, seconds, lock, Signals())
        writer.prune(
            config.store.keep_states, int(time.time()), config.store.keep_journals
        )  # first: a failing cycle must not keep a disk full
        status = cycle.run()
        if status == 0:
            writer.prune(config.store.keep_states, int(time.time()), config.store.keep_journals)
    if status == NOTHING:
        raise NothingToDo("nothing is due, and neither requests nor contributions nor harvests wait that could be taken in")
    return status


class Cycle:
    """One cycle under way."""

    def __init__(self, database: Database, config: Config, seconds: int | None, lock: int, signals: Signals) -> None:
        self._database = database
        self._config = config
        self._seconds = seconds
        self._lock = lock
        self._signals = signals
        self._steps: list[dict[str, Any]] = []  # for the log

    def run(self) -> int:
        """Run what is to be run, and log it; the exit status."""
        start, began_s = int(time.time()), time.monotonic()
        status = self._run_steps()
        if status == NOTHING:
            return status
        state = self._look().name
        entry = {"start": start, "seconds": _since(began_s), "status": status, "state": state, "steps": self._steps}
        if self._signals.stopping():
            entry["stopped"] = signal.Signals(self._signals.came[0]).name
        phase.append_line(self._database.log_path / CYCLES, entry)
        if status == 0:
            timings = ", ".join(f"{s['step'].removeprefix('shep-')} {s['seconds']:.1f}" for s in self._steps if not s["status"])
            what = "stopped as asked" if self._signals.stopping() else "complete"
            common.LOG.info("cycle %s after %.1f s (%s): state %s", what, entry["seconds"], timings, state)
        return status

    def _look(self) -> Found:
        return look(self._database, self._config)

    def _run_steps(self) -> int:
        tried: list[str] = []
        while not self._signals.stopping():
            found = self._look()
            step = next_step(found, tried)
            if step is None:
                return 0 if any(s["status"] == 0 for s in self._steps) else NOTHING
            tried.append(step)
            status = self._run_step(step, found)
            if self._signals.killing():
                return self._killed(step)
            if self._signals.stopping() and status == TERMINATED:
                return 0  # it was told to stop before it could listen, and has done nothing yet
            if status == NOTHING and step in (FEEDBACK, MERGE, PLAN):
                continue  # what waited was taken already, or cannot be taken; nothing is due
            if status == Corruption.exit_status and step == CORK and found.phase == "closed":
                continue  # it has said which harvest of the inbox cannot be taken; ours are sound
            if status != 0 or self._look() == found:
                return self._failed(step, status)
        return 0

    def _run_step(self, step: str, before: Found) -> int:
        began_s = time.monotonic()
        common.LOG.debug("%s, from %s", step, before.name)
        status = self._signals.run(
            step,
            self._arguments(step),
            on_soft=signal.SIGTERM if step == REAP else None,
            dies_with_us=step == REAP,
            environment={phase.LOCK_FD: str(self._lock)},
            descriptors=(self._lock,),
        )
        entry: dict[str, Any] = {"step": step, "seconds": _since(began_s), "status": status}
        made = self._made(before)
        if step == REAP and (told := phase.last_reap(self._database.path)).get("state") == before.name:
            made["report"] = told
        self._steps.append(entry | made)
        if step in (FEEDBACK, MERGE, CORK) and made:
            _tell_refused(made["report"])
        return status

    def _arguments(self, step: str) -> list[str]:
        """The batch phases are quiet: the cycle's own line tells of them. The reap lasts, so it may show how it gets on."""
        arguments = ["--db", str(self._database.path)]
        if self._config.directory.is_dir():  # without it, all is as by default
            arguments += ["--cf", str(self._config.directory)]
        if common.LOG.isEnabledFor(logging.DEBUG):
            arguments.append("--verbose")
        elif step != REAP or not common.LOG.isEnabledFor(logging.INFO):
            arguments.append("--quiet")
        if step == REAP and self._seconds is not None:
            arguments += ["--seconds", str(self._seconds)]
        return arguments

    def _made(self, before: Found) -> dict[str, Any]:
        """The directory that a step made, and its counters."""
        state = self._database.furthest()
        return {} if str(state.name) == before.name else {"made": str(state.name), "report": state.report()}

    def _failed(self, step: str, status: int) -> int:
        how = f"ended with exit status {status}" if status else "said that it was done, but nothing has changed: this is a bug"
        _say(f"{step} {how}; see to that, then run `shepherd cycle` again: {self._where()}")
        return status or ShepherdError.exit_status

    def _killed(self, step: str) -> int:
        _say(f"{step} was killed as asked; nothing that was acknowledged is lost: {self._where()}")
        return self._signals.exit_status

    def _where(self) -> str:
        return f"it continues from {self._look().name}"


def _tell_refused(report: dict[str, Any]) -> None:
    """A quiet phase says nothing of what it could not use: whoever left it is told here."""
    for what, count, first in phase.refused(report):
        common.LOG.warning("%s refused, the first: %s", many(count, what), shown(first))


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 3)


def _say(text: str) -> None:
    click.echo(f"shepherd: {text}", err=True)


def main() -> None:
    common.run(command)
