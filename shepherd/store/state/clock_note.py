"""log/clock: how the clock stood when a reap last began, so that the next one sees whether it was set since (docs/formats.md).

Without the note, or after a boot, nobody can tell; then stored times count as far as they can be believed (politeness/delays).
"""

from __future__ import annotations

import json
from pathlib import Path

from shepherd.clock import ClockReading
from shepherd.store.disk import fsio, names, opening


def read_note(logs: Path) -> ClockReading | None:
    """None where there is none that can be read."""
    try:
        note = json.loads(opening.read_file(logs / names.CLOCK))
        return ClockReading(str(note["boot"]), int(note["lead_ms"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_note(logs: Path, reading: ClockReading) -> None:
    fsio.replace_file(logs / names.CLOCK, json.dumps(reading._asdict()).encode() + b"\n")
