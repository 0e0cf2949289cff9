"""One cycle: runs the programs that cycle_table.py names, each with its hooks, and logs how they ended.

It decides by what stands in the database and by exit status alone, so after any crash, of itself or of a program, the next
start continues from the right place. Whoever makes a CycleRun holds db/lock; each program inherits it.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shepherd import shortage
from shepherd.config import Config
from shepherd.console import common, phase, progress
from shepherd.console.shared import many, redact
from shepherd.errors import HookFailed, NothingToDo, ShepherdError
from shepherd.master import cleanup_due, events
from shepherd.master.cycle_table import (
    CLEANUP,
    CORK,
    FEEDBACK,
    MERGE,
    PLAN,
    RANK,
    REAP,
    RECOVER,
    CyclePosition,
    Move,
    after,
    look,
    next_step,
)
from shepherd.master.hooks import HookRunner
from shepherd.report import logbook

if TYPE_CHECKING:
    from shepherd.master.children import Signals
    from shepherd.store.state.database import Writer

NOTHING: Final = NothingToDo.exit_status
TERMINATED: Final = 128 + signal.SIGTERM
SIGKILLED: Final = 128 + signal.SIGKILL
CUT_SHORT: Final = (REAP, RANK)  # they last, and can end at once


@dataclass(frozen=True)
class CycleOptions:
    """What all cycles of a master have in common."""

    config: Config
    signals: Signals
    lock: int  # descriptor of db/lock
    on_reap: Callable[[], object]  # called before servers are asked
    name: str = "shepherd cycle"
    seconds: int | None = None  # of a reap, if not plan.reap_s
    pages: int | None = None  # of a plan, if not plan.max_pages
    on_line: Callable[[str, str], object] | None = None  # gets each line that a program writes; without it they write themselves
    on_second: Callable[[], object] | None = None  # gets a turn every second


class CycleRun:
    """One cycle. `status` and `message` say how it ended."""

    def __init__(self, writer: Writer, options: CycleOptions) -> None:
        self._writer = writer
        self._database = writer.database
        self._options = options
        self._config = options.config
        self._signals = options.signals
        self._steps: list[dict[str, Any]] = []  # for the log
        self._clean = False  # a cleanup could make room
        self._last_line = ""  # the last line of the last program
        self._kills = 0  # for want of memory, before the last program began
        environment = {
            "SHEPHERD_DB": str(self._database.path.absolute()),
            "SHEPHERD_CF": str(options.config.directory.absolute()),
        }
        self._hooks = HookRunner(options.config.hooks, environment, options.on_line)
        self.failed = ""  # the program that the cycle stopped at
        self.message = ""

    def run(self) -> int:
        """Run what is to be run, and log it; the exit status."""
        start, began_s = int(time.time()), time.monotonic()
        status = self._guarded()
        if status == NOTHING and not self._has_run(CLEANUP):
            return status
        state = str(self._database.states()[-1]) if self._database.states() else ""
        entry = {"start": start, "seconds": _since(began_s), "status": status, "state": state, "steps": self._steps}
        if self._signals.stopping():
            entry["stopped"] = signal.Signals(self._signals.signals_received[0]).name
        phase.append_line(self._database.log_path / logbook.CYCLES, entry)
        self._log_cycle(entry)
        if self.message and not self._signals.killing():
            self._complain(self.failed, status, self.message)
        return status

    def _log_cycle(self, entry: dict[str, Any]) -> None:
        text = ""
        if entry["status"] == 0:
            timings = ", ".join(f"{s['step'].removeprefix('shep-')} {s['seconds']:.1f}" for s in self._steps if not s["status"])
            what = "stopped as asked" if self._signals.stopping() else "complete"
            text = f"cycle {what} after {entry['seconds']:.1f} s ({timings}): state {entry['state']}"
        steps = [s["step"].removeprefix("shep-") for s in self._steps]
        events.log_event("cycle", text, seconds=entry["seconds"], status=entry["status"], state=entry["state"], steps=steps)

    def _complain(self, step: str, status: int, message: str) -> None:
        """Log it, and run the operator's own command for failures."""
        events.log_event("failed", message, logging.ERROR, step=step, status=status, said=self._last_line or None)
        if fault := self._hooks.on_error(step, status, f"{self._last_line}\n{message}" if self._last_line else message):
            events.log_event("hook_failed", fault, logging.WARNING, hook="on_error")

    # --- steps

    def _guarded(self) -> int:
        """What goes wrong in this very process has an exit status, too."""
        try:
            self._prune()  # first: a failing cycle must not keep a disk full
            status = self._run_steps()
            if status == 0:
                self._prune()
            return status
        except ShepherdError as error:
            self.failed = self.failed or self._options.name
            self.message = f"{self._options.name}: {common.with_advice(error)}"
            return error.exit_status

    def _prune(self) -> None:
        store = self._config.store
        self._writer.prune(store.keep_states, int(time.time()), store.keep_journals, self._config.export.cursors)

    def _run_steps(self) -> int:
        steps_run: list[str] = []
        while not self._signals.stopping():
            position = self._look(steps_run)
            step = self._next(position, steps_run)
            if step is None:
                return 0 if any(s["status"] == 0 for s in self._steps) else NOTHING
            steps_run.append(step)
            status = self._run_step(step, position)
            if self._signals.killing():
                return self._killed(step)
            if status == TERMINATED and (self._signals.stopping() or (step in CUT_SHORT and self._signals.cleanup_requested)):
                steps_run.pop()  # the signal came before it could handle it, and it has done nothing yet; or it is a ranking
                continue
            position_after = self._look(steps_run)
            move = after(step, status, position_after, steps_run, self._config.master.recover)
            if status == 0 and step != RANK and replace(position_after, full=position.full) == position:
                return self._stop(step, 0, position_after)
            if move is Move.STOP:
                return self._stop(step, status, position_after)
            if step == RANK and status not in (0, NOTHING):
                how = f"{step} {self._end_of(step, status)}: the cycle continues without its weights"
                self._complain(step, status, how)
            if move is not Move.CONTINUE and step != REAP:
                steps_run.pop()  # it runs once more
            self._clean |= move is Move.CLEAN
            if move is Move.MEND and (status := self._mend(steps_run)):
                return self._stop(RECOVER, status, position_after)
        return 0

    def _look(self, steps_run: list[str]) -> CyclePosition:
        """What stands there; where that cannot be known before something is mended, shep-recover runs first."""
        from shepherd.errors import RecoveryNeeded

        try:
            self._writer.tidy()
            return self._position()
        except RecoveryNeeded as error:
            if RECOVER in steps_run or not self._config.master.recover:
                raise
            events.log_event("mend", f"{error}; shep-recover is run", logging.WARNING)
            if self._mend(steps_run):
                raise
        self._writer.tidy()
        return self._position()

    def _position(self) -> CyclePosition:
        return look(self._database, self._config, self._clean or self._signals.cleanup_requested)

    def _next(self, position: CyclePosition, steps_run: list[str]) -> str | None:
        step = next_step(position, steps_run, self._config.master.rounds_per_merge)
        if step is not None:
            return step
        if CLEANUP not in steps_run and (why := cleanup_due.due(self._database, self._config, int(time.time()), CLEANUP)):
            events.log_event("cleanup", f"a cleanup is due: {why}")
            return CLEANUP
        return RANK if RANK not in steps_run and self._is_rank_due() else None

    def _is_rank_due(self) -> bool:
        """Where the cycle has done something, and enough cycles have since the last ranking, or try of one; this one counts."""
        every = self._config.master.rank_every
        if not every or not any(s["status"] == 0 for s in self._steps):
            return False
        return logbook.cycles_since(self._database.log_path, RANK, every - 1) >= every - 1

    def _mend(self, steps_run: list[str]) -> int:
        """Run shep-recover, which needs nobody's decision; its exit status."""
        steps_run.append(RECOVER)
        return self._run_step(RECOVER, None)

    def _run_step(self, step: str, before: CyclePosition | None) -> int:
        name = before.name if before else ""
        if fault := self._hooks.before(step, name):
            if step == RANK:  # which nothing waits for
                self._last_line = fault
                self._steps.append({"step": step, "seconds": 0.0, "status": HookFailed.exit_status})
                return HookFailed.exit_status
            self.failed, self._last_line = step, ""
            raise HookFailed(f"{fault}; {step} was not run")
        if step == REAP:
            self._options.on_reap()
        began_s, self._kills = time.monotonic(), shortage.kills()
        common.LOG.debug("%s, from %s", step, name)
        events.log_event("begin", step=step, state=name)
        notice = progress.Notice(self._database.path, progress.ProgressJob(step, name), first_s=0)
        notice.write()  # until the program itself shows how far it is
        try:
            status = self._start(step)
        finally:
            notice.remove()
        entry: dict[str, Any] = {"step": step, "seconds": _since(began_s), "status": status}
        output = self._output_of(before, status)
        if step == REAP and (reap_report := phase.last_reap(self._database.path)).get("state") == name:
            output["report"] = reap_report
        self._steps.append(entry | output)
        events.log_event("step", step=step, status=status, seconds=entry["seconds"], made=output.get("made"))
        if step in (FEEDBACK, MERGE, CORK) and output:
            _log_refused(output["report"])
        if fault := self._hooks.after(step, output.get("made", name), status):
            events.log_event("hook_failed", fault, logging.WARNING, hook="after", step=step)
        if step == CLEANUP:
            self._clean = self._signals.cleanup_requested = False
        return status

    def _start(self, step: str) -> int:
        """The program itself, and whatever it writes."""
        on_line = self._options.on_line
        output_tail = events.OutputTail(lambda line: on_line(step, line)) if on_line is not None else None

        def on_second() -> None:
            if output_tail is not None:
                output_tail.read_new()
            if self._options.on_second is not None:
                self._options.on_second()

        try:
            return self._signals.run(
                step,
                self._arguments(step),
                on_soft=signal.SIGTERM if step in CUT_SHORT else None,
                dies_with_us=step in CUT_SHORT,
                environment={phase.LOCK_FD: str(self._options.lock)},
                descriptors=(self._options.lock,),
                output=output_tail.fd if output_tail is not None else None,
                on_second=on_second,
            )
        finally:
            self._last_line = ""
            if output_tail is not None:
                output_tail.close()
                self._last_line = output_tail.last_line

    def _arguments(self, step: str) -> list[str]:
        """The batch phases are quiet: the cycle's own line reports them. The reap lasts, so it may show its progress."""
        arguments = ["--db", str(self._database.path)]
        if self._config.directory.is_dir():  # without it, all is as by default
            arguments += ["--cf", str(self._config.directory)]
        if common.LOG.isEnabledFor(logging.DEBUG):
            arguments.append("--verbose")
        elif step not in (REAP, RECOVER) or not common.LOG.isEnabledFor(logging.INFO):
            arguments.append("--quiet")
        seconds = 0 if self._signals.cleanup_requested else self._options.seconds
        if step == REAP and seconds is not None:
            arguments += ["--seconds", str(seconds)]
        if step == PLAN and self._options.pages is not None:
            arguments += ["--pages", str(self._options.pages)]
        return arguments

    def _output_of(self, before: CyclePosition | None, status: int) -> dict[str, Any]:
        """The directory that a step made, and its counters."""
        if before is None or status not in (0, NOTHING):
            names = self._database.states()
            return {"made": str(names[-1])} if before is None and names else {}
        state = self._database.furthest()
        return {} if str(state.name) == before.name else {"made": str(state.name), "report": state.report()}

    def _has_run(self, step: str) -> bool:
        return any(s["step"] == step for s in self._steps)

    # --- endings

    def _stop(self, step: str, status: int, position: CyclePosition) -> int:
        self.failed = step
        how = f"{self._end_of(step, status)}, then run `{self._options.name}` again"
        self.message = f"{step} {how}: it continues from {position.name}"
        return status or ShepherdError.exit_status

    def _end_of(self, step: str, status: int) -> str:
        """How a program ended that nobody asked to end, and what to do about it."""
        if status == SIGKILLED:
            memory = "give it more memory" if step == REAP else shortage.SMALLER
            return f"was killed (exit status {status}), {shortage.reason(self._kills)}; {memory}"
        how = f"ended with exit status {status}" if status else "said that it was done, but nothing has changed: this is a bug"
        return f"{how}; {_advice(status)}"

    def _killed(self, step: str) -> int:
        where = self._database.states()[-1]
        text = f"{step} was killed as asked; nothing that was acknowledged is lost: it continues from {where}"
        events.log_event("killed", text, logging.ERROR, step=step)
        return self._signals.exit_status


def _advice(status: int) -> str:
    return {
        2: "correct what it names",
        10: "see docs/recovery.md",
        11: "see docs/recovery.md for what shep-recover --deep does",
        12: "make room: end leases that nobody needs, lower store.keep_states, or give the database a larger disk",
        13: "look at the disk, then run shep-check",
        14: "raise the limit that it names",
    }.get(status, "see to that")


def _log_refused(report: dict[str, Any]) -> None:
    """A quiet phase reports nothing of what it could not use: it is reported here."""
    for what, count, first in phase.refused(report):
        text = f"{many(count, what)} refused, the first: {redact(first)}"
        events.log_event("refused", text, logging.WARNING, what=what, count=count)


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 3)


def echo(_step: str, line: str) -> None:
    """A line that a program has written, unchanged."""
    print(line, file=sys.stderr, flush=True)
