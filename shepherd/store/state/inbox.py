"""The inbox: where anyone leaves requests, URLs, feedback, harvests and notes of contacts: complete, by a rename, unlocked.

An item is taken exactly once: the phase that applies it lists its name in `control`, publishes, and only then removes the item;
an item that the newest chain of states already names is removed without being applied again. A harvest is a directory: what is
left of one whose removal was cut short still has its name in `control`, so nobody takes half of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from shepherd.errors import Corruption, IoFailed, NoSpace, UsageError
from shepherd.formats.check import Bytes
from shepherd.store.disk import fsio, names
from shepherd.store.state import harvest, inbox_files
from shepherd.store.state.inbox_files import RefusedItem

REQUESTS: Final = "req"
CONTRIB: Final = "contrib"  # inserted URLs: store/state/inserts.py
FEEDBACK: Final = "feedback"
HARVEST: Final = "harvest"
CONTACT: Final = "contact"  # store/state/contact_notes.py
KINDS: Final = (REQUESTS, CONTRIB, FEEDBACK, HARVEST, CONTACT)
FOR_MERGE: Final = (REQUESTS, CONTRIB)
HELD_BYTES: Final = 1 << 20
MOST_LINE_BYTES: Final = 1 << 20  # what is behind them in a line is not read


@dataclass(frozen=True)
class InboxItem:
    name: str
    path: Path
    kind: str = REQUESTS

    @property
    def time_s(self) -> int:
        """When it was left, by the clock of whoever left it."""
        return int(self.name.partition("-")[0]) // 1000

    def lines(self) -> Iterator[tuple[int, str]]:
        """Line number and text of each line that is not blank, one at a time; RefusedItem if it cannot be read."""
        for number, line in enumerate(inbox_files.item_lines(self.path, MOST_LINE_BYTES), 1):
            text = line.decode("utf-8", "replace").removesuffix("\n")
            if text.strip():
                yield number, text


_LOG = logging.getLogger(__name__)
OPS: Final = ("insert", "delete", "refresh", "set")


def parse_request(line: str) -> dict[str, Any]:
    """The request in a line: an operation of ours with a text as its `url`; ValueError says why it is not one."""
    try:
        request = json.loads(line)
    except RecursionError:
        raise ValueError("not a request; it is nested too deeply") from None
    if not isinstance(request, dict) or request.get("op") not in OPS or not isinstance(request.get("url"), str):
        raise ValueError(f'not a request; expected {{"op": ..., "url": ...}}, where op is {", ".join(OPS)}')
    return request


class Draft:
    """An item that is being written, beside the inbox: `keep` puts it in place; without it it is gone after the block."""

    def __init__(self, directory: Path, name: str, kind: str) -> None:
        self._path = directory / f"{name}.{kind}"
        self.beside = directory / f".{self._path.name}.tmp"  # where it is meanwhile, to be judged
        fsio.unlink(self.beside)
        self._file = fsio.AppendFile(self.beside)
        self._is_kept = False

    def write(self, data: Bytes) -> None:
        self._file.write(data)

    def keep(self) -> Path:
        """When this returns it is durable and will be taken by the next program that takes its kind."""
        self._file.sync()
        self._file.close()
        fsio.rename(self.beside, self._path)
        self._is_kept = True
        return self._path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()
        if not self._is_kept:
            with contextlib.suppress(IoFailed, NoSpace):  # the error that is raised already counts
                fsio.unlink(self.beside)


class RequestDraft(Draft):
    """Requests that are being written. Nothing of them is held but the last few, so their number does not matter."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory, name, REQUESTS)
        self._lines = bytearray()
        self.count = 0

    def add(self, request: dict[str, Any]) -> None:
        self._lines += json.dumps(request, sort_keys=True).encode() + b"\n"
        self.count += 1
        if len(self._lines) >= HELD_BYTES:
            self._write()

    def keep(self) -> Path:
        self._write()
        return super().keep()

    def _write(self) -> None:
        self.write(bytes(self._lines))
        self._lines.clear()


class HarvestDraft:
    """A harvest that is being written, beside the inbox: `keep` puts it in place; without it, it is gone after the block.

    What a killed program leaves of one is removed by whoever takes the lock next.
    """

    def __init__(self, directory: Path, name: str, segment_bytes: int) -> None:
        self.name = name
        self._path = directory / f"{name}.{HARVEST}"
        self._beside = directory / f".{self._path.name}.tmp"
        self._is_kept = False
        self.harvest = harvest.Harvest(self._beside, segment_bytes)

    def keep(self, now_ms: int) -> Path:
        """When this returns it is durable and will be taken by the next cork."""
        self.harvest.end(now_ms)
        fsio.rename(self._beside, self._path)
        self._is_kept = True
        return self._path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._is_kept:
            self.harvest.close()
            with contextlib.suppress(IoFailed, NoSpace):  # the error that is raised already counts
                fsio.remove_tree(self._beside)


class Inbox:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def drop(self, name: str, requests: Iterable[dict[str, Any]]) -> Path:
        """Leave requests; when this returns they are durable and will be taken by the next merge."""
        with self.draft(name) as draft:
            for request in requests:
                draft.add(request)
            return draft.keep()

    def draft(self, name: str) -> RequestDraft:
        """Begin to leave requests, as many as there are."""
        return RequestDraft(self.directory, name)

    def draft_feedback(self, name: str) -> Draft:
        """Begin to leave feedback, as much as there is: frames, or text."""
        return Draft(self.directory, name, FEEDBACK)

    def drop_feedback(self, name: str, data: Bytes) -> Path:
        """Leave an indexer's feedback; when this returns it is durable and will be taken by the next shep-feedback."""
        path = self.directory / f"{name}.{FEEDBACK}"
        fsio.replace_file(path, data)
        return path

    def drop_harvest(self, name: str, source: Path) -> Path:
        """Leave a copy of a harvest that has ended; when this returns it is durable and will be taken by the next cork."""
        path = self.directory / f"{name}.{HARVEST}"
        beside = self.directory / f".{path.name}.tmp"
        if not harvest.inspect(source).ended:
            raise UsageError(f"{source}: not a harvest that has ended; only a whole one can be taken in")
        if beside.exists():
            fsio.remove_tree(beside)
        harvest.copy(source, beside)
        fsio.rename(beside, path)
        return path

    def draft_harvest(self, name: str, segment_bytes: int) -> HarvestDraft:
        """Begin to leave a harvest that is made here."""
        return HarvestDraft(self.directory, name, segment_bytes)

    def items(self, *kinds: str) -> list[InboxItem]:
        """Complete items of some kinds, oldest first; by default of those that a merge takes."""
        return [item for item in self.all_items() if item.kind in (kinds or FOR_MERGE)]

    def all_items(self) -> list[InboxItem]:
        """Whatever has the name of an item, oldest first. What stands there is found by whoever opens it (inbox_files.py)."""
        items = []
        if not self.directory.is_dir():
            raise Corruption("the directory is missing, and what waited there; make it again with mkdir", self.directory)
        for path in sorted(self.directory.iterdir()):
            item = names.parse_item(path.name)
            if item is not None and item[1] in KINDS:
                items.append(InboxItem(item[0], path, item[1]))
        return items

    def waiting(self, applied: Iterable[str], *kinds: str) -> list[InboxItem]:
        """Items that this chain of states has not taken yet; by default those that a merge takes."""
        names_taken = set(applied)
        return [item for item in self.items(*kinds) if item.name not in names_taken]

    def waiting_bytes(self, kind: str) -> int:
        """Of all items of a kind of one file, also of those that are being written."""
        total = 0
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith((f".{kind}", f".{kind}.tmp")):
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
        return total

    def remove(self, applied: Iterable[str]) -> None:
        """Remove items that a published state names; one that we may not remove is not taken again, as long as it is there."""
        names_taken = set(applied)
        for item in self.all_items():
            if item.name in names_taken:
                clear(item.path)
        fsio.sync_directory(self.directory)


def copy_harvest(item: InboxItem, name: str) -> Path:
    """A copy that belongs to us, under a name of ours: if we are killed, whoever takes the lock next removes it."""
    copy = item.path.with_name(f".{name}.{HARVEST}.tmp")
    try:
        harvest.copy(item.path, copy)
    except BaseException as error:
        clear(copy)
        if isinstance(error, NoSpace):
            raise RefusedItem("it belongs to somebody else, and there is no space for a copy; free some", item.path) from error
        raise
    return copy


def clear(path: Path) -> None:
    """Remove what somebody has left, whatever stands there; what is not ours to remove is reported, and stays."""
    try:
        fsio.remove_tree(path)
    except IoFailed as error:
        if not isinstance(error.__cause__, PermissionError | FileNotFoundError):
            raise
        _LOG.warning("%s: cannot be removed by this user, and stays: remove it yourself", path)


class Arrivals:
    """Items of one kind that come in while somebody waits for them. Nothing is taken."""

    def __init__(self, directory: Path, kind: str, applied: Iterable[str]) -> None:
        self._directory, self._kind = directory, kind
        self._names = {f"{name}.{kind}" for name in applied}  # names of files; what is not there any more is forgotten

    def new(self) -> list[InboxItem]:
        """Those that are new since the last call. However many wait, only new ones cost more than the reading of a name."""
        there = set(os.listdir(self._directory))
        items = []
        for name in there - self._names:
            item = names.parse_item(name)
            if item is not None and item[1] == self._kind:
                items.append(InboxItem(item[0], self._directory / name, self._kind))
        self._names = there
        return sorted(items, key=lambda item: item.name)
