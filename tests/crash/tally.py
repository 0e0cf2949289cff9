"""The account of a sweep: how many points, how many of them violations, how many vacuous. Both of the latter must be none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_TOLD = 10


@dataclass
class Tally:
    """`tests/conftest.py` prints what `record` is given, after the tests."""

    record: Callable[[str, object], None]
    name: str
    n: int = 0
    violations: list[str] = field(default_factory=list)
    vacuous: list[str] = field(default_factory=list)

    def point(self, what: object, complaints: list[str], vacuous: bool = False) -> None:
        """One point of the sweep; a vacuous one has tested nothing."""
        self.n += 1
        self.violations += [f"{what}: {complaint}" for complaint in complaints]
        self.vacuous += [str(what)] if vacuous else []

    def close(self) -> None:
        """The end of the sweep, and the verdict."""
        self.record("score", (self.name, [self.n, len(self.violations), len(self.vacuous)]))
        assert not self.violations, f"{len(self.violations)} violations:\n" + "\n".join(self.violations[:MOST_TOLD])
        assert not self.vacuous, f"{len(self.vacuous)} points tested nothing:\n" + "\n".join(self.vacuous[:MOST_TOLD])
        assert self.n, "there was no point to test"
