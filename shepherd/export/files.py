"""Bodies as files: in a tree of directories by host and path, or in tar files of the same names, with a list beside."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from isal import isal_zlib

from shepherd.export.documents import Exported
from shepherd.export.lines import described
from shepherd.export.output import Series, Written
from shepherd.export.safe_names import file_path
from shepherd.formats import warc
from shepherd.store.disk import fsio

LIST: Final = ".files.jsonl"


def _path_and_body(document: Exported) -> tuple[str, bytes]:
    html = document.bucket.attributes.get("T", b"") in (b"text/html", b"application/xhtml+xml")
    return file_path(document.bucket.url, html), document.body()


def _listed(listing: Written, document: Exported, path: str, more: dict[str, Any]) -> None:
    listing.write(json.dumps({"path": path, **more, **described(document)}).encode("ascii") + b"\n")


class FilesSink:
    """A file for each document; those without a body are not there."""

    def __init__(self, root: Path, listing: Written) -> None:
        self._root, self._listing = root, listing
        self._directories_made: set[Path] = {root}

    def add(self, document: Exported) -> None:
        path, body = _path_and_body(document)
        target = self._root / path
        self._directory(target.parent)
        file = fsio.AppendFile(target)
        try:
            file.write(body)
            file.sync()
        finally:
            file.close()
        _listed(self._listing, document, path, {})

    def _directory(self, path: Path) -> None:
        if path not in self._directories_made:
            self._directory(path.parent)
            if not path.is_dir():
                fsio.add_directory(path)
            if len(self._directories_made) > 100_000:
                self._directories_made = {self._root}
            self._directories_made.add(path)

    def finish(self) -> None:
        """Names count when their directories are durable; what was made is all in the tree."""
        for directory in sorted((path for path in self._root.rglob("*") if path.is_dir()), reverse=True):
            fsio.sync_directory(directory)
        fsio.sync_directory(self._root)


class TarSink:
    """The same files in compressed tar files; the members have the times of the fetches, and belong to nobody."""

    ending: Final = ".tar.gz"

    def __init__(self, series: Series, listing: Written) -> None:
        self._series, self._listing = series, listing
        self._tar: tarfile.TarFile | None = None
        self._gzip: _Gzip | None = None

    def add(self, document: Exported) -> None:
        path, body = _path_and_body(document)
        if self._tar is None or self._series.wants_next():
            self._next()
        assert self._tar is not None and self._series.file is not None
        member = tarfile.TarInfo(path)
        member.size, member.mtime, member.mode = len(body), document.bucket.header.time_ms // 1_000, 0o644
        self._tar.addfile(member, io.BytesIO(body))
        _listed(self._listing, document, path, {"file": self._series.file.name})

    def _next(self) -> None:
        self._end()
        self._gzip = _Gzip(self._series.next().write)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|", format=tarfile.PAX_FORMAT)  # type: ignore[call-overload] # noqa: SIM115

    def _end(self) -> None:
        if self._tar is not None and self._gzip is not None:
            self._tar.close()
            self._gzip.end()

    def finish(self) -> None:
        if self._tar is None:
            self._next()
        self._end()


class _Gzip:
    """What tarfile writes to."""

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write, self._packer = write, isal_zlib.compressobj(warc.LEVEL, isal_zlib.DEFLATED, 31)

    def write(self, data: bytes) -> int:
        self._write(self._packer.compress(data))
        return len(data)

    def end(self) -> None:
        self._write(self._packer.flush())
