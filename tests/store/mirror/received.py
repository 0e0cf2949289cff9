"""A directory as the source of a mirror, one that can be made to lie: for tests that need no server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from shepherd.errors import PeerLost, PeerRefused
from shepherd.store.disk.names import StateName
from shepherd.store.mirror import directory as directories
from shepherd.store.mirror import drive as mirror
from shepherd.store.state.database import Database
from tests.crash import store_steps

PART = 1000  # bytes that come at a time
Tamper = Callable[[str, int, bytes], bytes]  # what is sent in the place of a file's bytes from an offset on


def honest(_path: str, _offset: int, data: bytes) -> bytes:
    return data


class Folder:
    """Every state of a database, as a server would give it. `asked` is what was read, `sent` how many bytes."""

    where = "a folder"

    def __init__(self, db: Path, tamper: Tamper = honest, cut: int | None = None) -> None:
        self._database, self._tamper = Database(db), tamper
        self._left = cut  # bytes after which it is gone
        self.asked: list[tuple[str, int]] = []
        self.sent = 0

    def states(self) -> list[int]:
        return [name.number for name in self._database.states() if name.closed]

    @contextlib.contextmanager
    def leased(self, number: int | None) -> Iterator[Leased]:
        chosen = max(self.states()) if number is None else number
        if chosen not in self.states():
            raise PeerRefused(f"no state {chosen}")
        yield Leased(self, self._database.states_path / str(StateName(chosen, "closed")), chosen)

    def give(self, path: Path, name: str, offset: int) -> Iterator[bytes]:
        self.asked.append((name, offset))
        data = self._tamper(name, offset, path.read_bytes()[offset:])
        for at in range(0, len(data), PART):
            part = data[at : at + PART]
            if self._left is not None and name != "control":
                self._left -= len(part)
                if self._left < 0:
                    raise PeerLost("the folder is gone")
            self.sent += len(part)
            yield part


class Leased:
    def __init__(self, folder: Folder, path: Path, number: int) -> None:
        self._folder, self._path, self.number = folder, path, number

    def read(self, path: str, offset: int) -> Iterator[bytes]:
        return self._folder.give(self._path / path, path, offset)

    lease = "0000000000001-folder-1-1"


def way(keep: int = 2, verify: bool = False, adopt: bool = False) -> mirror.MirrorOptions:
    """Without a terminal, in no hurry."""
    return mirror.MirrorOptions(
        keep=keep,
        keep_journals=0,
        unexported=(),
        jobs=1,
        verify=verify,
        adopt=adopt,
        now=lambda: 1_790_000_000,
        stopping=lambda: False,
        pause=lambda seconds: None,
        pace=lambda count: None,
        progress=lambda name, total: contextlib.nullcontext(lambda more: None),
    )


def bring(server: mirror.StateServer, db: Path, how: mirror.MirrorOptions | None = None) -> mirror.MirrorResult:
    """One round into a directory."""
    with directories.create(db).writing("test", tidy=False) as writer:
        return mirror.run(writer, server, how or way())


def advance(db: Path, weight: int) -> None:
    """The next closed state, of which one column is new."""
    with Database(db).writing("test") as writer:
        store_steps.publish_changed(writer, weight)


def spoil(file: Path) -> None:
    """Another last byte, as a disk may come up with: not by any of our calls."""
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    file.chmod(0o444)
