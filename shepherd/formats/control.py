"""The control file: the one text that says what a state directory is and what is in it (docs/formats.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shepherd.errors import Corruption, OldFormat, UsageError
from shepherd.expressions import StoredForm
from shepherd.formats.check import check64
from shepherd.formats.tables import FORMAT_VERSION

CLOSED: Final = "closed"
PHASES: Final = ("reap", "merged", "equiv", "selected", CLOSED)
_TITLE: Final = "shepherd-control"
_SINGLE: Final = frozenset(
    (
        *("phase", "state", "parent", "now", "key", "filter", "equiv", "unsure", "segments", "contribs", "speed", "cleaned"),
        "selection",
    )
)


@dataclass(frozen=True, slots=True)
class FileEntry:
    length: int
    check: int


@dataclass(frozen=True)
class Control:
    phase: str
    state: int
    parent: str
    now: int
    key: bytes
    filter: int
    equiv: int  # check64 of the url-equiv table that made the norms; 0 = only the implicit rule
    unsure: int  # up to this moment (ms) a server may have been contacted without a record of it
    segments: int  # next free segment number
    contribs: int  # next free contrib and journal number
    speed: int = 0  # fetches in 1,000 s that earlier reaps have managed; 0 = not known
    cleaned: int = 0  # when a cleanup last went over everything, in seconds; 0 = never
    selection: int = 0  # check64 of the limits that the last select went by; see cycle/common/limits
    applied: tuple[str, ...] = ()
    files: dict[str, FileEntry] = field(default_factory=dict)

    def pack(self) -> bytes:
        lines = [
            f"{_TITLE} {FORMAT_VERSION}",
            f"phase {self.phase}",
            f"state {self.state}",
            f"parent {self.parent}",
            f"now {self.now}",
            f"key {self.key.hex()}",
            f"filter {self.filter:016x}",
            f"equiv {self.equiv:016x}",
            f"unsure {self.unsure}",
            f"segments {self.segments}",
            f"contribs {self.contribs}",
            f"speed {self.speed}",
            f"cleaned {self.cleaned}",
            f"selection {self.selection:016x}",
            *(f"applied {name}" for name in sorted(self.applied)),
            *(f"file {path} {entry.length} {entry.check:016x}" for path, entry in sorted(self.files.items())),
        ]
        text = "".join(f"{line}\n" for line in lines).encode()
        return text + f"check {check64(text):016x}\n".encode()


def version_of(data: bytes) -> int:
    """The format version that a control claims; 0 where it is no control."""
    match = StoredForm.CONTROL_TITLE.match(data)
    return int(match[1]) if match else 0


def is_intact(data: bytes) -> bool:
    """Whether a control has the checksum that it ends with, whatever else its version puts into it."""
    body, mark, last = data.rpartition(b"check ")
    return bool(mark) and last == f"{check64(body):016x}\n".encode()


def parse_control(data: bytes, where: str, version: int = FORMAT_VERSION) -> Control:
    """Parse and verify; another version is an error that says what to do, anything else unreadable is Corruption.

    The checksum comes first: a version that a damaged byte claims is nothing to act upon.
    """
    if not is_intact(data):
        raise Corruption("the control file is damaged or cut off", where)
    claimed = version_of(data)
    if claimed > version:
        raise UsageError(f"{where}: format version {claimed}; this program reads version {version}: use a newer Shepherd")
    if 0 < claimed < version:
        advice = f"run shep-upgrade, which brings the database to version {version}"
        raise OldFormat(f"format version {claimed}", where, advice=advice)
    try:
        if not claimed:
            raise ValueError("no version in its first line")
        return _read(data.rpartition(b"check ")[0].decode("ascii"))
    except (KeyError, ValueError, IndexError) as error:
        raise Corruption(f"the control file checks but cannot be read: {error!r}", where) from error


def _read(text: str) -> Control:
    single: dict[str, str] = {}
    applied: list[str] = []
    files: dict[str, FileEntry] = {}
    for line in StoredForm.LINE.finditer(text):  # one at a time: a control may come from a stranger, and be nothing but lines
        key, _, value = line[0].partition(" ")
        if key == "file":
            path, length, check = value.rsplit(" ", 2)
            files[path] = FileEntry(_count(length), _check(check))
        elif key == "applied":
            applied.append(value)
        elif key in _SINGLE:
            single[key] = value
    if single["phase"] not in PHASES:
        raise ValueError(f"unknown phase {single['phase']!r}")
    return Control(
        phase=single["phase"],
        state=_count(single["state"]),
        parent=single["parent"],
        now=_count(single["now"]),
        key=bytes.fromhex(single["key"]),
        filter=_check(single["filter"]),
        equiv=_check(single.get("equiv", "0" * 16)),  # version 1 has neither this
        unsure=_count(single.get("unsure", "0")),  # nor this
        segments=_count(single["segments"]),
        contribs=_count(single["contribs"]),
        speed=_count(single.get("speed", "0")),  # version 2 has neither this
        cleaned=_count(single.get("cleaned", "0")),  # nor this
        selection=_check(single.get("selection", "0" * 16)),  # nor has version 3 this
        applied=tuple(applied),
        files=files,
    )


def _count(text: str) -> int:
    """A number as `pack` writes it. int() would take signs, blanks and underscores as well."""
    if not StoredForm.COUNT.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _check(text: str) -> int:
    if not StoredForm.CHECK.fullmatch(text):
        raise ValueError(f"{text!r} is not a check64")
    return int(text, 16)
