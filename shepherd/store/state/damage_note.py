"""log/damage: what shep-recover could not mend, in its words.

While it stands no state is deleted, because an older one may be what the damage is mended with. A recovery that has read every
byte, and ends well, removes it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from shepherd.errors import IoFailed, NoSpace
from shepherd.store.disk import fsio

FILE: Final = "damage"


def stands(logs: Path) -> bool:
    return (logs / FILE).exists()


def write(logs: Path, what: str) -> None:
    """A disk that does not take it is no reason to say something else than what was wrong."""
    with contextlib.suppress(NoSpace, IoFailed):
        fsio.replace_file(logs / FILE, what.encode() + b"\n")


def remove(logs: Path) -> None:
    if stands(logs):
        fsio.unlink(logs / FILE)
