"""What somebody may put where a file belongs: each kind of thing that cannot be read as one, made at a path."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

GIANT_BYTES = 20 << 30


def _socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as bound:  # a socket's path has 107 bytes at most
        bound.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(GIANT_BYTES)


def _endless(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


def makers(elsewhere: Path) -> dict[str, Callable[[Path], object]]:
    """By name; links lead into `elsewhere`, a new directory. A device is left out where only root could make it."""
    elsewhere.mkdir(parents=True)
    (elsewhere / "file").write_bytes(b"kept")
    (elsewhere / "directory").mkdir()
    (elsewhere / "root only").write_bytes(b"secret")
    (elsewhere / "root only").chmod(0)
    made: dict[str, Callable[[Path], object]] = {
        "link to a file": lambda path: path.symlink_to(elsewhere / "file"),
        "link to a directory": lambda path: path.symlink_to(elsewhere / "directory"),
        "link to nothing": lambda path: path.symlink_to(elsewhere / "nothing"),
        "link to itself": lambda path: path.symlink_to(path.name),
        "link to a closed file": lambda path: path.symlink_to(elsewhere / "root only"),
        "pipe": os.mkfifo,
        "socket": _socket,
        "sparse giant": _sparse,
        "file of mode 0": lambda path: path.touch(0),
    }
    return made | ({"endless device": _endless} if _may_make_devices(elsewhere) else {})


def _may_make_devices(directory: Path) -> bool:
    try:
        _endless(directory / "device")
        return True
    except PermissionError:
        return False


def everything(
    elsewhere: Path, directory: Path, new_name: Callable[[], str], belongs: str = "a file"
) -> Iterator[tuple[str, Path]]:
    """One of each under a fresh name in a directory, and a directory where a file belongs, or the other way round."""
    other: Callable[[Path], object] = Path.mkdir if belongs == "a file" else Path.touch
    for kind, make in {**makers(elsewhere), "the other of file and directory": other}.items():
        path = directory / new_name()
        make(path)
        yield kind, path
