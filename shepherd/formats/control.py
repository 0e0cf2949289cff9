"""The control file: the one text that says what a state directory is and what is in it (docs/formats.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from shepherd.errors import Corruption, OldFormat, UsageError
from shepherd.formats.check import check64
from shepherd.formats.tables import FORMAT_VERSION

CLOSED: Final = "closed"
PHASES: Final = ("feedback", "reap", "merged", "equiv", "selected", CLOSED)
_TITLE: Final = "shepherd-control"
_FIRST_LINE: Final = re.compile(rb"shepherd-control ([1-9][0-9]{0,8})\n")


@dataclass(frozen=True)
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
            *(f"applied {name}" for name in sorted(self.applied)),
            *(f"file {path} {entry.length} {entry.check:016x}" for path, entry in sorted(self.files.items())),
        ]
        text = "".join(f"{line}\n" for line in lines).encode()
        return text + f"check {check64(text):016x}\n".encode()


def version_of(data: bytes) -> int:
    """The format version that a control claims; 0 where it is no control."""
    found = _FIRST_LINE.match(data)
    return int(found[1]) if found else 0


def parse_control(data: bytes, where: str, version: int = FORMAT_VERSION) -> Control:
    """Parse and verify; another version is an error that says what to do, anything else unreadable is Corruption."""
    body, mark, last = data.rpartition(b"check ")
    claimed = version_of(data)
    if claimed > version:
        raise UsageError(f"{where}: format version {claimed}; this program reads version {version}: use a newer Shepherd")
    if 0 < claimed < version:
        raise OldFormat(f"{where}: format version {claimed}; run shep-upgrade, which brings the database to version {version}")
    if not mark or last.strip() != f"{check64(body):016x}".encode() or not last.endswith(b"\n"):
        raise Corruption(f"{where}: the control file is damaged or cut off")
    try:
        return _read(body.decode("ascii"))
    except (KeyError, ValueError, IndexError) as error:
        raise Corruption(f"{where}: the control file checks but cannot be read: {error!r}") from error


def _read(text: str) -> Control:
    single: dict[str, str] = {}
    applied: list[str] = []
    files: dict[str, FileEntry] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "file":
            path, length, check = value.rsplit(" ", 2)
            files[path] = FileEntry(int(length), int(check, 16))
        elif key == "applied":
            applied.append(value)
        else:
            single[key] = value
    if single["phase"] not in PHASES:
        raise ValueError(f"unknown phase {single['phase']!r}")
    return Control(
        phase=single["phase"],
        state=int(single["state"]),
        parent=single["parent"],
        now=int(single["now"]),
        key=bytes.fromhex(single["key"]),
        filter=int(single["filter"], 16),
        equiv=int(single.get("equiv", "0"), 16),  # version 1 has neither this
        unsure=int(single.get("unsure", "0")),  # nor this
        segments=int(single["segments"]),
        contribs=int(single["contribs"]),
        speed=int(single.get("speed", "0")),  # version 2 has neither this
        cleaned=int(single.get("cleaned", "0")),  # nor this
        applied=tuple(applied),
        files=files,
    )
