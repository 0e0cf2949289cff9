"""The configuration that a daemon uses: a copy of cf/ as it was when it was last read, so that every program finds the same.

The texts are kept in memory; db/log/cf is where the programs read them, and is written again if somebody deletes it. Files that
shepherd.toml names (keys, tables of hosts, authorities) are not copied: the copy names them by their full path.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from shepherd import config as configuration
from shepherd.config import Config
from shepherd.console import cf_faults, cf_files
from shepherd.console.cf_place import UNBOUNDED
from shepherd.errors import NoSpace
from shepherd.master import events

PLACE: Final = "cf"  # in db/log
FILES: Final = (
    ("network", "static"), ("network", "hosts"), ("network", "proxy_auth"), ("reap", "keys"), ("fetch", "ca_file"),
    ("serve", "certificate"), ("serve", "key"),
)  # fmt: skip


class ConfigSnapshot:
    """The configuration of `source` as last read; `config` is the one that programs use."""

    def __init__(self, source: Path, log: Path) -> None:
        self._source = source
        self._place = log / PLACE
        self._tree: dict[str, dict[str, Any]] = {}
        self._filter = self._equiv = ""
        self.config = Config(directory=source)

    def read(self) -> list[str]:
        """Read `source`; all that is wrong with it, and then everything stays as it was."""
        from shepherd.filters import load_filter

        config, complaints = cf_faults.examine(self._source)
        if not complaints and not load_filter(config.filter_path).is_bounded:
            complaints = [f"{config.filter_path} {UNBOUNDED}"]
        if complaints:
            return complaints
        self._tree = _with_full_paths(cf_files.read_tree(self._source), self._source)
        self._filter = cf_files.read_filter(self._source)
        self._equiv = _text(config.equiv_path)
        self._write()
        return []

    def keep(self) -> None:
        """See to it that the copy is there."""
        if self.config.directory == self._place and not (self._place / cf_files.EQUIV).is_file():
            self._write()

    def _write(self) -> None:
        try:
            cf_files.write(self._place, self._tree, self._filter, f"What runs goes by; a copy of {self._source}", self._equiv)
            directory = self._place
        except NoSpace as error:  # a daemon that may be about to make room must be able to start
            events.log_event("reload", f"{error}; programs read {self._source} themselves", logging.WARNING)
            directory = self._source
        self.config = configuration.load(directory)


def _with_full_paths(tree: dict[str, dict[str, Any]], source: Path) -> dict[str, dict[str, Any]]:
    sections = {section: dict(keys) for section, keys in tree.items()}
    for section, key in FILES:
        if sections.get(section, {}).get(key):
            sections[section][key] = str((source / sections[section][key]).absolute())
    return sections


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
