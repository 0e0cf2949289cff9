"""The files of a configuration directory, read and written as texts: shepherd.toml as a tree of settings, filter, url-equiv."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from shepherd.errors import UsageError

Tree: TypeAlias = Mapping[str, Mapping[str, Any]]  # section -> key -> value

TOML: Final = "shepherd.toml"
FILTER: Final = "filter"
EQUIV: Final = "url-equiv"
_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")


def read_tree(directory: Path) -> dict[str, dict[str, Any]]:
    """The settings of a shepherd.toml that config.load has accepted."""
    try:
        return tomllib.loads((directory / TOML).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def read_text(directory: Path) -> str:
    """A shepherd.toml that config.load has accepted, as it stands."""
    try:
        return (directory / TOML).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def read_filter(directory: Path) -> str:
    try:
        return (directory / FILTER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise UsageError(f"{directory / FILTER}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def write(directory: Path, tree: Tree, filter_text: str, why: str, equiv_text: str = "") -> None:
    """Put the three files in place; each is whole at any time."""
    from shepherd.store.disk import fsio

    directory.mkdir(parents=True, exist_ok=True)
    fsio.replace_file(directory / TOML, to_toml(tree, why).encode())
    fsio.replace_file(directory / FILTER, filter_text.encode())
    fsio.replace_file(directory / EQUIV, equiv_text.encode())


def with_setting(text: str, section: str, key: str, value: str) -> str:
    """The text of a shepherd.toml with one setting changed: in its own line, in that of its default, or below its section."""
    line, within, place = f"{key} = {_toml_value(value)}", "", -1
    lines = text.splitlines()
    own = re.compile(rf"\s*(?:# ?)?{re.escape(key)}\s*=")
    for number, present in enumerate(lines):
        if header := _HEADER.match(present):
            within = header[1]
            place = number if within == section else place
        elif within == section and own.match(present):
            return "\n".join([*lines[:number], line, *lines[number + 1 :], ""])
    if place < 0:
        return "\n".join([*lines, *([""] if lines else []), f"[{section}]", line, ""])
    return "\n".join([*lines[: place + 1], line, *lines[place + 1 :], ""])


def to_toml(tree: Tree, why: str) -> str:
    lines = [f"# {why}"]
    for name, table in tree.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML's basic strings are JSON's, but for DEL
    return f"[{', '.join(_toml_value(item) for item in value)}]"
