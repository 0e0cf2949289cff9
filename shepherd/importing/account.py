"""What became of the records of an import, counted; and whoever listens hears of those that were not taken in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Place(NamedTuple):
    """Where a record stands."""

    file: str
    offset: int


class Told(Protocol):
    """Who hears of single records."""

    def bad(self, place: Place, why: str) -> None:
        """It cannot be used."""

    def left_out(self, place: Place, why: str) -> None:
        """It is not wanted."""


@dataclass
class Account:
    told: Told
    records: Counter[str] = field(default_factory=Counter)  # by type
    taken: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of those left out
    settled: Counter[str] = field(default_factory=Counter)  # what cork made of those taken
    bad: int = 0
    new: int = 0  # URLs that had no row
    links: int = 0
    states: list[str] = field(default_factory=list)  # that were made, the last of each round

    def leave(self, place: Place, why: str) -> None:
        self.reasons[why] += 1
        self.told.left_out(place, why)

    def refuse(self, place: Place, why: str) -> None:
        self.bad += 1
        self.told.bad(place, why)

    def report(self) -> dict[str, Any]:
        return {
            "records": dict(self.records),
            "taken": dict(self.taken),
            "left_out": dict(self.reasons),
            "bad": self.bad,
            "new": self.new,
            "links": self.links,
            "settled": {name: count for name, count in self.settled.items() if count},
            "states": self.states,
        }
