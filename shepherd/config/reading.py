"""shepherd.toml from text to settings: every key must be a field, every value of the type of its default.

All that is wrong is found in one go, each fault with the line where its key stands.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from shepherd.config.faults import ConfigFault, faults_of
from shepherd.config.settings import MOST, Config

_KINDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts"}
_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")


def read(text: str, directory: Path) -> tuple[Config, list[ConfigFault]]:
    """The settings, and what is wrong with them; where something is, the settings are not to be used."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Config(directory=directory), [ConfigFault("", "", f"not valid TOML: {error}")]
    sections = {f.name: f.default_factory for f in dataclasses.fields(Config) if f.name != "directory"}
    built: dict[str, Any] = {}
    faults: list[ConfigFault] = []
    for section, table in tree.items():
        if section not in sections:
            faults.append(ConfigFault(section, "", f"unknown section{_suggestion(section, list(sections))}"))
        elif not isinstance(table, dict):
            faults.append(ConfigFault(section, "", f"{section} must be a section, written [{section}]"))
        else:
            built[section], wrong = _section(section, sections[section](), table)  # type: ignore[operator]
            faults += wrong
    config = Config(**built, directory=directory)
    return config, [*faults, *faults_of(config, {(fault.section, fault.key) for fault in faults})]


def _section(section: str, default: Any, table: dict[str, Any]) -> tuple[Any, list[ConfigFault]]:
    """`default`, a dataclass, with what the table says."""
    keys = {f.name for f in dataclasses.fields(default)}
    values: dict[str, Any] = {}
    faults: list[ConfigFault] = []
    for key, value in table.items():
        if key not in keys:
            faults.append(ConfigFault(section, key, f"unknown key{_suggestion(key, sorted(keys))}"))
            continue
        expected = getattr(default, key)
        if why := _misfit(value, expected):
            faults.append(ConfigFault(section, key, why))
        elif isinstance(expected, float | tuple):
            values[key] = type(expected)(value)
        else:
            values[key] = value
    return dataclasses.replace(default, **values), faults


def _suggestion(name: str, names: list[str]) -> str:
    """The name that was probably meant, then all there are."""
    import difflib  # costs more to load than all the rest, and is hardly ever needed

    close = difflib.get_close_matches(name, names, n=1)
    return f"{f'; did you mean {close[0]}?' if close else ''}; there are {', '.join(names)}"


def _misfit(value: Any, expected: Any) -> str:
    """Why a value cannot stand where the default is `expected`, or nothing."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(expected, bool):
        fits = isinstance(value, bool)
    elif isinstance(expected, float):
        fits = number
    elif isinstance(expected, int):
        fits = number and isinstance(value, int)
    elif isinstance(expected, tuple):
        fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
    else:
        fits = isinstance(value, str)
    if not fits:
        return f"must be {_KINDS[type(expected)]}, not {value!r}"
    return f"must be from 0 to {MOST}, not {value!r}" if number and not 0 <= value <= MOST else ""


def line_of(text: str, fault: ConfigFault) -> int:
    """The line of a fault's key, or of its section's header, counted from 1; 0 where it cannot be found."""
    if not fault.section:
        place = _AT_LINE.search(fault.why)
        return int(place.group(1)) if place else 0
    within, header = "", 0
    key = re.compile(rf"\s*[\"']?{re.escape(fault.key)}[\"']?\s*=")
    dotted = re.compile(rf"\s*{re.escape(fault.section)}\s*(\.\s*{re.escape(fault.key)}\s*)?=")
    for number, line in enumerate(text.splitlines(), 1):
        if title := _HEADER.match(line):
            within = title.group(1)
            header = header or (number if within == fault.section else 0)
        elif (fault.key and within == fault.section and key.match(line)) or (not within and dotted.match(line)):
            return number
    return header
