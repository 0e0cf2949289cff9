"""The configuration that `gather` derives for one database: the user's own settings, narrowed to the sites that were asked for.

Nothing of the user's is written: the result lies in the database's own cf/, which can be given to every other program as --cf.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Any

from shepherd.config import Config
from shepherd.console import common
from shepherd.console.cf_files import Tree
from shepherd.errors import ConfigError, UsageError


def source_root() -> Path:
    """The source tree that we run from, or the working directory if we were installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "bin").is_dir() and (root / "cf").is_dir() else Path.cwd()


def user_directory() -> Path:
    """Where the user's own configuration is: SHEPHERD_CF, else cf/, else the defaults that came with the program."""
    directory = os.environ.get("SHEPHERD_CF")
    if directory:
        if not Path(directory).is_dir():
            raise UsageError(f"SHEPHERD_CF={directory}: not a directory")
        return Path(directory)
    return Path("cf") if Path("cf").is_dir() else common.default_files()


def earlier_contact(directory: Path) -> str:
    """The contact of an earlier run; what else is wrong with that file does not matter, because it is written anew."""
    from shepherd import config as configuration

    try:
        return configuration.load(directory).identity.contact
    except ConfigError:
        return ""


def overlay(below: Tree, above: Tree) -> dict[str, dict[str, Any]]:
    """The settings of both; where both speak, `above` holds."""
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in dict.fromkeys([*below, *above])}


# --- loopback ---------------------------------------------------------------------------------------------------


def is_loopback(site: str, config: Config) -> bool:
    """Whether scheme://host[:port] is on this machine, by its address or by the user's static table."""
    host = re.sub(r":\d+$", "", site.partition("://")[2])
    return host == "localhost" or _is_loopback_address(_static(config).get(host, host.strip("[]")))


def _static(config: Config) -> dict[str, str]:
    path = config.static_path
    if path is None or not path.is_file():
        return {}
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3}


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False
