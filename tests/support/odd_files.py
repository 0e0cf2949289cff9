"""What may stand in the place of a file and is none; and files that the system does not open."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any, Final

import pytest

ODD_KINDS: Final = ("a pipe", "a socket", "a device", "a directory", "a link", "a link to a file")


def put(path: Path, kind: str) -> None:
    """Put one in this place, where nothing stands; a device only where we may make one, else a pipe."""
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        _put_socket(path)
    elif kind == "a device":
        try:
            os.mknod(path, 0o644 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: whoever reads it to its end never ends
        except PermissionError:
            os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to("nowhere")
    else:
        path.symlink_to("/etc/passwd")


def fail_to_open(monkeypatch: pytest.MonkeyPatch, path: Path, code: int = errno.EIO) -> None:
    """From now on this process cannot open the file."""
    opened = os.open

    def fail(place: Any, *arguments: Any, **keywords: Any) -> int:
        if str(place) == str(path):
            raise OSError(code, os.strerror(code), str(path))
        return opened(place, *arguments, **keywords)

    monkeypatch.setattr(os, "open", fail)


def _put_socket(path: Path) -> None:
    """Bound by its name within a directory: a whole path may be too long for a socket."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
