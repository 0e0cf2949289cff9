"""The soak itself: what the schedule says is done to the farm, whoever ends is started again, and at quiet points all is judged.

Every exit status is one that the documentation has, and has a reason: 12 while the disk is full, 137 where something was killed.
Seconds are of the clock that nobody sets; only what is compared with logs is of the other one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import disks
from tests.soak import verdict
from tests.soak.ledger import Ledger
from tests.soak.schedule import Event, What
from tests.soak.spoken import Spoken
from tests.soak.stage import Daemon, Process, Stage
from toyweb import log
from toyweb.model import canonical

TICK_S = 0.05
WHILE_S = 45  # so long an episode may still be the reason of an exit status
ORPHANS_S = 60  # in which a program whose master was killed comes to its end
NEVER_S = 10**8
KILLED, TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM
SIGNALLED = {128 + signal.SIGHUP, 128 + signal.SIGUSR1}  # that came before the master could listen
LOOKS = (  # what an operator may ask at any moment, and is always answered
    ("shepherd", "status", "--json"),
    ("shep", "stats", "--json"),
    ("shep", "states", "--json"),
    ("shep", "list", "--type", "gathered", "--limit", "5", "--json"),
    ("shep-check", "--quick"),
)
CLASSES = ("master", "phase", "reap", "reapd", "worker")


@dataclass
class Soak:
    stage: Stage
    say: Callable[[str], None]
    ledger: Ledger = field(default_factory=Ledger)
    kills: Counter[str] = field(default_factory=Counter)
    episodes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    version: int = 0
    ballast: Path | None = None
    looks: int = 0
    spoken: Spoken = field(default_factory=Spoken)
    was_full: list[tuple[float, float]] = field(default_factory=list)  # from when to when that may be a reason, by the wall clock
    _last: dict[str, float] = field(default_factory=dict)  # when something was last reason for an exit status
    _ends: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def run(self, events: Iterable[Event], length_s: float) -> None:
        clock_s, waiting = 0.0, list(events)
        while clock_s < length_s:
            began_s = time.monotonic()
            self._tend()
            if waiting and waiting[0].at_s <= clock_s:
                event = waiting.pop(0)
                self.episodes[event.what] += 1
                if event.what is What.QUIET:
                    self.quiet(event.number, f"{clock_s / 60:.1f} min")
                    continue  # without its time
                self._happen(event)
            time.sleep(TICK_S)
            clock_s += time.monotonic() - began_s

    # --- what happens

    def _happen(self, event: Event) -> None:
        full = self._lately("full")
        match event.what:
            case What.KILL:
                self._kill(random.Random(event.number))
            case What.FULL:
                self._fill(event.lasts_s)
            case What.LOST:
                self._lose(event.lasts_s, hard=bool(event.number % 2))
            case What.FROZEN:
                self._freeze(event.number, event.lasts_s)
            case What.INSERT:
                self.ledger.insert(self.stage, event.number, full)
            case What.DELETE:
                self.ledger.delete(self.stage, event.number, full)
            case What.REFRESH:
                self.ledger.refresh(self.stage, event.number, full)
            case What.READ:
                self.ledger.read(self.stage, event.lasts_s, full)
            case What.WATCH:
                self.ledger.watch(self.stage)
            case What.LOOK:
                self._look(LOOKS[event.number % len(LOOKS)])
            case What.CLEAN:
                self._signal_master(signal.SIGUSR1)
            case What.HANG_UP:
                self._signal_master(signal.SIGHUP)
            case What.WEB:
                self.stage.web.advance()
                self.version += 1

    def _kill(self, draw: random.Random) -> None:
        """Some kind of process first, so that rare ones have their share; then one of these."""
        found: dict[str, list[Process]] = {}
        for one in sorted(self.stage.processes(), key=lambda one: one.pid):
            found.setdefault(_class(one), []).append(one)
        if found:
            kind = draw.choice([kind for kind in CLASSES if kind in found])
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(found[kind]).pid, signal.SIGKILL)
                self.kills[kind] += 1
                self._last["kill"] = time.monotonic()

    def _look(self, words: tuple[str, ...]) -> None:
        done = self.stage.run(*words)
        self.looks += 1
        if done.returncode:
            self.violate([f"{' '.join(words)} ended with status {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"])

    def _signal_master(self, number: int) -> None:
        if self.stage.master.process is not None:
            self._last["signal"] = time.monotonic()
            _signal([self.stage.master.process.pid], number)

    def _fill(self, lasts_s: float) -> None:
        if self.ballast is None:
            self._last["full"] = time.monotonic() + lasts_s
            self.was_full.append((time.time(), float("inf")))
            self.ballast = disks.fill(self.stage.disk)
            self._ends.append((time.monotonic() + lasts_s, self._empty))

    def _empty(self) -> None:
        if self.ballast is not None:
            self.ballast.unlink()
            self.ballast = None
            self._last["full"] = time.monotonic()
            self.was_full[-1] = (self.was_full[-1][0], time.time() + WHILE_S)

    def _lose(self, lasts_s: float, hard: bool) -> None:
        """No reaper is there, of those that are configured."""
        for reaper in self.stage.reapers:
            self._ended(reaper, reaper.end(signal.SIGKILL if hard else signal.SIGTERM))
        self._ends.append((time.monotonic() + lasts_s, self._find))

    def _find(self) -> None:
        for reaper in self.stage.reapers:
            reaper.down = False

    def _freeze(self, number: int, lasts_s: float) -> None:
        """A reaper and its workers stand still: for the dispatcher that is a partition, and then it is over."""
        leaders = [one for one in self.stage.reapers if one.process is not None]
        if leaders:
            chosen = leaders[number % len(leaders)].process
            assert chosen is not None
            group = [chosen.pid, *_children(chosen.pid)]
            _signal(group, signal.SIGSTOP)
            self._ends.append((time.monotonic() + lasts_s, lambda: _signal(group, signal.SIGCONT)))

    # --- who ends

    def _tend(self) -> None:
        for one in (self.stage.master, *self.stage.reapers):
            self._ended(one, one.tend())
        for end in [end for end in self._ends if end[0] <= time.monotonic()]:
            self._ends.remove(end)
            end[1]()
        self.ledger.give_back(self.stage)

    def _ended(self, who: Daemon, status: int | None) -> None:
        reasons = {12: "full", KILLED: "kill", TERMINATED: "kill", **dict.fromkeys(SIGNALLED, "signal")}
        if not status or (status in reasons and self._lately(reasons[status])):
            return
        tail = who.log.read_text(errors="replace").splitlines()[-8:]
        self.violate([f"{who.name} ended with status {status}: {' | '.join(tail)}"])

    def _lately(self, what: str) -> bool:
        return time.monotonic() < self._last.get(what, -1e9) + WHILE_S

    def violate(self, complaints: Iterable[str]) -> None:
        for complaint in complaints:
            self.violations.append(complaint)
            if len(self.violations) <= 50:
                self.say(f"VIOLATION {complaint}")

    # --- quiet points

    def quiet(self, number: int, when: str) -> None:
        """End all episodes and the master, softly or not, and judge what is there."""
        self._calm()
        self._end_master(hard=bool(number % 2))
        self.violate(verdict.judge(self.stage, self.ledger, number // 2))
        self._hear()
        self.say(f"{when}: {self.summary()}")
        self.stage.master.down = False

    def _hear(self) -> None:
        """What the programs and the ledger have to say."""
        stage = self.stage
        self.violate(self.spoken.judge(stage.master.log, [stage.reapers[0].log], self.was_full))
        self.violate(self.ledger.complaints)
        self.ledger.complaints.clear()

    def _calm(self) -> None:
        for _at, end in self._ends:
            end()
        self._ends.clear()
        self._empty()

    def _end_master(self, hard: bool) -> None:
        """A killed one leaves a program behind, which is killed, too, or comes to its end."""
        self._last["kill"] = time.monotonic()
        self._ended(self.stage.master, self.stage.master.end(signal.SIGKILL if hard else signal.SIGTERM))
        until_s = time.monotonic() + ORPHANS_S
        while (left := self.stage.writers()) and time.monotonic() < until_s:
            if hard:
                _signal([one.pid for one in left], signal.SIGKILL)
            time.sleep(TICK_S)
        self.violate(f"I6: {one} is still running" for one in left)

    # --- what came of it

    def summary(self) -> str:
        """One line of JSON."""
        answers = Counter(entry.status for entry in log.read_log(self.stage.web.log_path))
        ledger = self.ledger
        figures = {
            "kills": self.kills.total(),
            "killed": {kind: self.kills[kind] for kind in CLASSES},
            "disk_full": self.episodes[What.FULL],
            "reapers_lost": self.episodes[What.LOST],
            "reapers_frozen": self.episodes[What.FROZEN],
            "cycles": self.spoken.cycles.total(),
            "cycles_by_status": dict(sorted(self.spoken.cycles.items())),
            "steps": dict(sorted(self.spoken.steps.items())),
            "master": dict(sorted(self.stage.master.statuses.items())),
            "state": str(self.stage.database.furthest().name),
            "requests": answers.total(),
            "bodies": answers[200],
            "unchanged": answers[304],
            "documents": len(ledger.gathered),
            "asked": {"insert": len(ledger.inserted), "delete": len(ledger.deleted), "refresh": len(ledger.refreshed)},
            "refused": ledger.refused,
            "leases": ledger.reads,
            "looks": self.looks,
            "violations": len(self.violations),
        }
        return json.dumps(figures)

    def finish(self) -> None:
        """Nobody is struck any more: all that waits is done, then all pages are seen once more, and compared with the model."""
        self.quiet(1, "end")
        self.stage.master.down = True
        self.ledger.give_back(self.stage, all_of_them=True)
        self.stage.configure("cf-calm", refresh_s=NEVER_S, retry_s=NEVER_S, robots_retry_s=NEVER_S, reap_s=300)
        self.stage.configure("cf-all", refresh_s=0, retry_s=0, robots_retry_s=NEVER_S, reap_s=300)
        self._drain()
        self.violate(self.ledger.compare_requests(self.stage))
        self.stage.web.advance()
        self.version += 1
        self._cycle("cf-all")
        self._drain()
        self.violate(self._coverage())
        self._end_master(hard=False)
        self.violate(verdict.judge(self.stage, self.ledger, 0))
        self._hear()
        self.say(f"finished: {self.summary()}")

    def _drain(self) -> None:
        idle = 0
        for _ in range(60):
            idle = idle + 1 if self._cycle("cf-calm") == 4 else 0
            if idle == 3:
                return
            time.sleep(2 if idle else 0)
        self.violate(["there is no end to it"])

    def _cycle(self, cf: str) -> int:
        for reaper in self.stage.reapers:
            reaper.tend()
        done = self.stage.run("shepherd", "cycle", "--quiet", cf=cf)
        if done.returncode not in (0, 4):
            self.violate([f"undisturbed, shepherd cycle ended with status {done.returncode}: {done.stderr}"])
        return done.returncode

    def _coverage(self) -> Iterator[str]:
        """Every page that is on the web now is stored, and nothing else but pages of the endless calendar."""
        model, expected = self.stage.model, self.stage.model.expected(version=self.version)
        stored = {canonical(document.url) for document in self.stage.database.closed().documents()}
        yield from (f"{url} is not stored" for url in sorted(expected - stored))
        yield from (f"{url} is stored" for url in sorted(stored - expected) if not model.is_trap(url))


def _class(one: Process) -> str:
    if not one.leader:
        return "worker"
    return {"shepherd": "master", "shep-reap": "reap", "reapd": "reapd"}.get(one.program, "phase")


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
