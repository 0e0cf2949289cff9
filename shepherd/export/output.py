"""The files of one export. None has its name before all are whole and durable; then the manifest says so, last of all.

    .out-000124-00000.warc.gz.tmp ...    being written
    out-000124-00000.warc.gz ...         renamed, one after the other
    out-000124.json                      the manifest: only with it do the others count
    .out-000124.lock                     flock: one export at a time has these names

Killed anywhere, the export runs again: what has no manifest is replaced. The manifest of an export that is made again goes first,
so it never stands beside files that it does not describe. An export that continues replaces, without --overwrite, what it may
itself have left before it was killed: a manifest with the same facts. Everything else it leaves alone. The directory may be a
link; in it none is followed, for it may be one that others write, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from shepherd.errors import UsageError
from shepherd.store.disk import fsio, locks, opening

BUFFER_BYTES: Final = 1 << 20
MANIFEST_VERSION: Final = 1


class Written(Protocol):
    """A file being written."""

    name: str

    @property
    def length(self) -> int: ...
    def write(self, data: bytes) -> int: ...


class OutFile:
    """One file of an Output, written in large pieces."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.path = path
        self.hidden = path.with_name(f".{path.name}.tmp")
        fsio.unlink(self.hidden)
        self._file = fsio.AppendFile(self.hidden)
        self._parts: list[bytes] = []
        self._bytes_waiting = 0

    @property
    def length(self) -> int:
        return self._file.length + self._bytes_waiting

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))  # a view would change under us
        self._bytes_waiting += len(data)
        if self._bytes_waiting >= BUFFER_BYTES:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        if self._parts:
            self._file.write(*self._parts)
            self._parts.clear()
            self._bytes_waiting = 0

    def finish(self) -> None:
        self._flush()
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        self._file.close()


class StdoutFile:
    """Standard output in the place of a file."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self.name, self.length = "-", 0
        self._stream = stream or sys.stdout.buffer

    def write(self, data: bytes) -> int:
        self.length += len(data)
        return self._stream.write(data)


class Output:
    """A directory, and the stem that the names of the export begin with."""

    def __init__(self, directory: Path, stem: str, overwrite: bool = False, same: dict[str, Any] | None = None) -> None:
        """`overwrite`: whatever export of this stem is there; `same`: also without that, one whose manifest has these facts."""
        self.directory, self.stem = directory, stem
        self._files: list[OutFile] = []
        self._trees: list[Path] = []
        if os.path.lexists(directory) and not directory.is_dir():
            raise UsageError(f"{directory}: not a directory")
        if not directory.parent.is_dir():
            raise UsageError(f"{directory.parent}: no such directory; make it first")
        fsio.make_directory(directory)
        self._lock = _locked(directory / f".{stem}.lock")
        try:
            self._old = self._replaced(overwrite, same)
        except BaseException:
            self._release()
            raise

    def _replaced(self, overwrite: bool, same: dict[str, Any] | None) -> list[str]:
        """The names of the files that go with the manifest that is there."""
        if not os.path.lexists(self.manifest):
            return []
        manifest = _read(self.manifest)
        if not overwrite and same is None:
            raise UsageError(f"{self.manifest}: this export is there already; --overwrite makes it again")
        if not overwrite and same is not None and any(manifest.get(key) != value for key, value in same.items()):
            raise UsageError(
                f"{self.manifest}: another export is there already; give another --prefix or -o, or --overwrite replaces it"
            )
        return _names_in(manifest, self.stem)

    def _release(self) -> None:
        """The file of the lock goes first, while nobody else can have it."""
        if self._lock.fd >= 0:
            fsio.unlink(self._lock.path)
            self._lock.release()

    @property
    def manifest(self) -> Path:
        return self.directory / f"{self.stem}.json"

    def create(self, suffix: str) -> OutFile:
        """A file named by the stem and this."""
        file = OutFile(self.directory / f"{self.stem}{suffix}")
        self._files.append(file)
        return file

    def tree(self) -> Path:
        """A directory to be filled, which becomes the one named by the stem alone."""
        path = self.directory / f".{self.stem}.tmp"
        if os.path.lexists(path):
            fsio.remove_tree(path)
        fsio.add_directory(path)
        self._trees.append(path)
        return path

    def commit(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Make everything durable, give it its names, and write the manifest, which has the `facts` and the files."""
        for file in self._files:
            file.finish()
        if self.manifest.exists():
            fsio.unlink(self.manifest)
            fsio.sync_directory(self.directory)
        names = [file.name for file in self._files] + [self.stem for _ in self._trees]
        for old in self._old:
            if old not in names:
                self._remove(self.directory / old)
        for file in self._files:
            fsio.rename(file.hidden, file.path)
        for tree in self._trees:
            self._remove(self.directory / self.stem)
            fsio.rename(tree, self.directory / self.stem)
        files = [{"name": file.name, "bytes": file.length} for file in self._files]
        files += [{"name": self.stem, "bytes": None} for _ in self._trees]
        manifest = {"shepherd-export": MANIFEST_VERSION, **facts, "files": files}
        fsio.replace_file(self.manifest, json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
        self._release()
        return manifest

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            aside = self.directory / f".{path.name}.gone"
            if os.path.lexists(aside):
                fsio.remove_tree(aside)
            fsio.rename(path, aside)
            fsio.remove_tree(aside)
        else:
            fsio.unlink(path)

    def abandon(self) -> None:
        """Remove what is not committed."""
        for file in self._files:
            file.close()
            fsio.unlink(file.hidden)
        for tree in self._trees:
            if tree.exists():
                fsio.remove_tree(tree)
        self._release()


def _locked(path: Path) -> locks.FileLock:
    """Locked, if another export has it. The one that ends removes the file, so what we have locked may be no file any more."""
    while True:
        lock = locks.lock(path, "shep-export")
        try:
            if os.path.samestat(os.fstat(lock.fd), os.lstat(path)):
                return lock
        except FileNotFoundError:
            pass
        lock.release()


def _read(manifest: Path) -> dict[str, Any]:
    try:
        if manifest.is_symlink() or not manifest.is_file():
            raise ValueError
        facts: dict[str, Any] = json.loads(opening.read_file(manifest))
        _names_in(facts, "")
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{manifest}: not the manifest of an export; move it away") from None
    return facts


def _names_in(manifest: dict[str, Any], stem: str) -> list[str]:
    """The files that a manifest names, those in its own directory: it may be anybody's."""
    names = [str(file["name"]) for file in manifest["files"]]
    return [name for name in names if name.startswith(stem) and name == os.path.basename(name)]


class Series:
    """Files in a row, each begun when the one before is full. What is written together stays together."""

    def __init__(self, create: Callable[[str], Written], ending: str, most: int) -> None:
        self._create, self._ending, self._most = create, ending, most
        self.number = 0
        self.file: Written | None = None

    def wants_next(self) -> bool:
        """Whether what comes next belongs into a fresh file."""
        return self.file is None or (self._most > 0 and self.file.length >= self._most)

    def next(self) -> Written:
        self.file = self._create(f"-{self.number:05d}{self._ending}")
        self.number += 1
        return self.file
