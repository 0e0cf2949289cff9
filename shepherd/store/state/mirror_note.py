"""db/mirror: which states of this database came from elsewhere, by number, with the checks of their controls (docs/formats.md).

Invariant: a state is entered before it gets its name. So a closed state that the note does not have was made here, or copied.
"""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path

from shepherd.errors import UsageError
from shepherd.formats.check import check64
from shepherd.store.disk import fsio, names, opening


def read_note(db: Path) -> dict[int, int]:
    """The check64 of each control that was received. What cannot be read as a note says nothing: then none was."""
    if (db / names.MIRROR).is_symlink():  # what it leads to may be anybody's, but without a note servers might be asked too soon
        raise UsageError(f"{db / names.MIRROR}: a link; put the file itself in its place, or remove it if this is not a mirror")
    try:
        checks = json.loads(opening.read_file(db / names.MIRROR))["states"]
        return {int(number): int(check, 16) for number, check in checks.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def enter(db: Path, number: int, control: bytes, there: Container[int]) -> None:
    """Note a state that is about to be published. Of the others those stay that are `there`."""
    checks = {state: check for state, check in read_note(db).items() if state in there} | {number: check64(control)}
    text = {"states": {str(state): f"{check:016x}" for state, check in sorted(checks.items())}}
    fsio.replace_file(db / names.MIRROR, json.dumps(text).encode() + b"\n")


def half_written(db: Path) -> Path:
    """What a killed mirror may leave of its note."""
    return db / f".{names.MIRROR}.tmp"


def unsure_ms(db: Path, parent: int, now: int) -> int:
    """Up to when servers may have been asked without a record here, for what is built on a state.

    Whoever gathered until now went on after a state that came from there was closed: on a mirror that is put in its place every
    server waits its full delay once.
    """
    return now * 1000 if parent in read_note(db) else 0
