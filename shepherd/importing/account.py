"""The outcome of the records of an import, counted; a listener is called for those that were not taken in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class RecordPlace(NamedTuple):
    """Where a record stands."""

    file: str
    offset: int


class RecordListener(Protocol):
    """Is called for single records."""

    def on_bad(self, place: RecordPlace, why: str) -> None:
        """It cannot be used."""

    def on_left_out(self, place: RecordPlace, why: str) -> None:
        """It is not wanted."""


@dataclass
class Account:
    listener: RecordListener
    records: Counter[str] = field(default_factory=Counter)  # by type
    taken_by_kind: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of those left out
    settled: Counter[str] = field(default_factory=Counter)  # what cork made of those taken
    bad_records: int = 0
    given_up: list[str] = field(default_factory=list)  # files that were not read to their ends
    new: int = 0  # URLs that had no row
    links: int = 0
    states: list[str] = field(default_factory=list)  # that were made, the last of each round

    def leave(self, place: RecordPlace, why: str) -> None:
        self.reasons[why] += 1
        self.listener.on_left_out(place, why)

    def refuse(self, place: RecordPlace, why: str) -> None:
        self.bad_records += 1
        self.listener.on_bad(place, why)

    def report(self) -> dict[str, Any]:
        return {
            "records": dict(self.records),
            "taken": dict(self.taken_by_kind),
            "left_out": dict(self.reasons),
            "bad": self.bad_records,
            "given_up": self.given_up,
            "new": self.new,
            "links": self.links,
            "settled": {name: count for name, count in self.settled.items() if count},
            "states": self.states,
        }
