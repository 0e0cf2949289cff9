"""File systems that a test can fill, cut off and break: images on loop devices, and tmpfs of a few pages. For root only."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

FS_IOC_SHUTDOWN = 0x8004587D
FLUSH_JOURNAL, DROP_JOURNAL = 1, 2
MEGABYTES = {"ext4": 48, "xfs": 300}  # xfs cannot be made smaller


@dataclass(frozen=True)
class Disk:
    """An image on a loop device, and the directory it is mounted on."""

    kind: str
    image: Path
    device: str
    path: Path

    def mount(self, *options: str) -> None:
        run("mount", "-t", self.kind, *(("-o", ",".join(options)) if options else ()), self.device, str(self.path))

    def umount(self) -> None:
        run("umount", str(self.path))

    def cut(self, flag: int = DROP_JOURNAL) -> None:
        """As if the power went: what was not synced is lost, and every call from now on fails."""
        cut(self.path, flag)


def cut(path: Path, flag: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", flag))
    finally:
        os.close(fd)


@contextlib.contextmanager
def loop(kind: str, megabytes: int = 0) -> Iterator[Disk]:
    """A fresh file system, mounted; the test is skipped where none can be made."""
    need(kind)
    with workplace() as home:
        image, path = home / f"{kind}.img", home / kind
        path.mkdir()
        with image.open("wb") as file:
            file.truncate((megabytes or MEGABYTES[kind]) << 20)
        run(f"mkfs.{kind}", "-q", *(("-F", "-b", "4096") if kind == "ext4" else ()), str(image))
        device = run("losetup", "--find", "--show", str(image)).strip()
        try:
            disk = Disk(kind, image, device, path)
            disk.mount()
            try:
                yield disk
            finally:
                _release(path)
        finally:
            run("losetup", "--detach", device)


@contextlib.contextmanager
def tmpfs(size_bytes: int) -> Iterator[Path]:
    """A file system in memory with room for so many bytes."""
    if os.getuid():
        pytest.skip("only root can mount a small tmpfs")
    with workplace() as home:
        run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(home))
        try:
            yield home
        finally:
            _release(home)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A directory in memory, if there is such a place: no sync waits there, and no mount is left among pytest's directories."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="shepherd-test-", dir=memory) as directory:
        yield Path(directory)


def _release(path: Path) -> None:
    """Unmount, also after a test that failed and still holds a file."""
    if path.is_mount():
        gc.collect()
        subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def need(kind: str) -> None:
    if os.getuid():
        pytest.skip("only root can mount a loop device")
    if not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"mkfs.{kind} is not installed")
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode:
        pytest.skip("there is no free loop device")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def fill(path: Path) -> Path:
    """Write until no byte more fits; the file that took the space."""
    ballast = path / "ballast"
    run("sync", "--file-system", str(path))  # blocks of files that were removed can be had only now
    with ballast.open("wb", buffering=0) as file:
        while sum(_pour(file, size) for size in (1 << 20, 1 << 12, 1)):
            os.fsync(file.fileno())  # gives back what was set aside for blocks that wait
    return ballast


def _pour(file: FileIO, size: int) -> int:
    """How many bytes could be appended in pieces of this size."""
    done = 0
    with contextlib.suppress(OSError):
        while wrote := file.write(bytes(size)):
            done += wrote
    return done
