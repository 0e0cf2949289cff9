"""The configuration: cf/shepherd.toml, and where it and the database lie.

`settings` has one class per section with all defaults, `faults` what they may not say, `reading` the way from text to settings,
`places` the rule by which programs find the directory.
An unknown section or key, a wrong type or an impossible value is a ConfigError that names the file, the line and the key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shepherd.config.faults import (
    LOG_FORMATS,
    MAX_RETRY_AFTER_S,
    MIN_MEMORY_BYTES,
    MOST_WORKERS,
    TLS_VERSIONS,
    agent_fault,
    contact_fault,
    process_fault,
    proxy_fault,
)
from shepherd.config.places import OWN_CF, CfPlace, find_cf, find_db
from shepherd.config.reading import line_of, read
from shepherd.config.settings import (
    DAY_S,
    MOST,
    Cleanup,
    Config,
    Export,
    FetchLimits,
    Hooks,
    Master,
    Merge,
    Network,
    PerSection,
    Plan,
    Politeness,
    Reap,
    SectionBonus,
    Sections,
    Select,
    Serve,
    Store,
)
from shepherd.errors import ConfigError

FILE: Final = "shepherd.toml"

__all__ = [
    "DAY_S", "FILE", "LOG_FORMATS", "MAX_RETRY_AFTER_S", "MIN_MEMORY_BYTES", "MOST", "MOST_WORKERS", "OWN_CF", "TLS_VERSIONS",
    "CfPlace", "Cleanup", "Config", "Export", "FetchLimits", "Hooks", "Master", "Merge", "Network", "PerSection", "Plan",
    "Politeness", "Reap", "SectionBonus", "Sections", "Select", "Serve", "Store",
    "agent_fault", "contact_fault", "examine", "find_cf", "find_db", "load", "process_fault", "proxy_fault",
]  # fmt: skip


def load(directory: Path) -> Config:
    """Read `directory/shepherd.toml`; a missing file means all defaults."""
    config, complaints = examine(directory)
    if complaints:
        raise ConfigError(*complaints)
    return config


def examine(directory: Path) -> tuple[Config, list[str]]:
    """The configuration of a directory, and all that is wrong with it: `FILE, line N: [section] key: why`."""
    path = directory / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config(directory=directory), []
    except (OSError, UnicodeDecodeError) as error:
        return Config(directory=directory), [f"{path}: cannot be read: {error}"]
    config, faults = read(text, directory)
    complaints = []
    for fault in faults:
        line = line_of(text, fault)
        name = " ".join([f"[{fault.section}]"] * bool(fault.section) + [fault.key] * bool(fault.key))
        complaints.append(": ".join([f"{path}, line {line}" if line else str(path), *([name] if name else []), fault.why]))
    return config, complaints
