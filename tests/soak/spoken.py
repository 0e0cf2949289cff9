"""What the programs of a soaked farm wrote of themselves: how each of them ended, and that none of them was at a loss.

A master tries again where that may help, so its own exit status does not show every program that failed; its log does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ALWAYS = {0, 4}  # done, nothing to do
NO_SPACE = 12
SIGNALS = {128 + 9, 128 + 15}  # killed by us, or told to stop before it could listen
WORKER = "a worker process was killed"  # which was killed by us, too
LOSS = "Traceback (most recent call last)"


@dataclass
class Spoken:
    """Reads each log once, as it grows."""

    steps: Counter[str] = field(default_factory=Counter)  # programs that the master ran, with their exit status if it is not 0
    cycles: Counter[int] = field(default_factory=Counter)  # by exit status
    recovered: int = 0
    _read: dict[Path, int] = field(default_factory=dict)
    _said: str = ""

    def judge(self, master: Path, others: list[Path], was_full: list[tuple[float, float]]) -> Iterator[str]:
        """Complaints about what is new in the logs. The disk `was_full` from when to when."""
        for line in self._new(master):
            if LOSS in line:
                yield f"the master's log has {line}"
            told = _event(line)
            if told.get("event") == "said":
                self._said = str(told.get("text", ""))
            elif told.get("event") == "step":
                yield from self._step(told, was_full)
            elif told.get("event") == "cycle":
                self.cycles[int(told["status"])] += 1
        for path in others:
            yield from (
                f"{path.name} has a traceback, line {number}" for number, line in enumerate(self._new(path)) if LOSS in line
            )

    def _step(self, told: dict[str, Any], was_full: list[tuple[float, float]]) -> Iterator[str]:
        step, status = str(told["step"]), int(told["status"])
        self.steps[step if status == 0 else f"{step} {status}"] += 1
        self.recovered += step == "shep-recover"
        at_s = datetime.fromisoformat(told["time"]).timestamp()
        fine = status in ALWAYS or status in SIGNALS or (status == 1 and WORKER in self._said)
        if status == NO_SPACE:
            fine = any(began_s <= at_s <= ended_s for began_s, ended_s in was_full)
        if not fine:
            yield f"{step} ended with status {status} at {told['time']}: {self._said}"
        self._said = ""

    def _new(self, path: Path) -> list[str]:
        """Whole lines that were not read yet."""
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        return whole.decode("utf-8", "replace").splitlines()


def _event(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
