"""How much a reap may still store: by the size of the bucket file, and by what must stay free on the disk."""

from __future__ import annotations

import os

from shepherd.config import Reap
from shepherd.store.disk import names
from shepherd.store.state.directory import State


class DiskBudget:
    def __init__(self, state: State, reap: Reap) -> None:
        objects = f"{names.OBJECTS}/"
        self._before = sum(entry.length for name, entry in state.control.files.items() if name.startswith(objects))
        self._path, self._reap = state.path, reap

    def full(self, stored_bytes: int) -> str:
        """What is full, with so much stored by this reap; or nothing."""
        if self._reap.size_bytes and self._before + stored_bytes >= self._reap.size_bytes:
            return f"the bucket file has reached reap.size_bytes ({self._reap.size_bytes} bytes): raise it, or run shep-cleanup"
        disk = os.statvfs(self._path)
        if disk.f_bavail * disk.f_frsize < self._reap.reserve_bytes:
            return f"less than reap.reserve_bytes ({self._reap.reserve_bytes} bytes) of the disk is free: make room"
        return ""
