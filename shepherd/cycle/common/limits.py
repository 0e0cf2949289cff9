"""Which limits the rows of a state were selected by: where cf/ has others, or weights have changed, a select has something to do.

Control says it as a check of all settings that select goes by.
"""

from __future__ import annotations

from typing import Final

from shepherd.config import Config
from shepherd.formats.check import check64
from shepherd.formats.control import Control

UNKNOWN: Final = 0  # of a database in which nothing was selected yet, or not since control says so
OUTDATED: Final = 2**64 - 1  # weights have changed since


def limits_version(config: Config) -> int:
    limits = (config.select, config.sections, config.section_bonus, config.plan.refresh_s, config.cleanup.size_bytes)
    return check64(repr(limits).encode())


def wants_select(control: Control, config: Config) -> bool:
    """Whether a select of these rows could come to another result than the last one."""
    return control.selection not in (UNKNOWN, limits_version(config))
