"""Which locked packages an advisory speaks of: the lock files against a directory of advisories in the format of OSV.

`bin/advisories DIRECTORY` runs this file. The directory is for whoever has a feed, as a copy of the Python part of osv.dev: one
advisory a file. Nobody is contacted. Exit status 1 where something was found, 2 where it cannot be judged.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shepherd import text
from shepherd.cli.lock_files import ALL, ROOT, LockError, normal, parse

ECOSYSTEM: Final = "PyPI"
MOST_BYTES: Final = 1 << 24  # of an advisory
_VERSION: Final = re.compile(r"v?(?:[0-9]+!)?([0-9]+(?:\.[0-9]+)*)[-_.]?(.*)")
_BEFORE: Final = ("dev", "a", "b", "c", "rc", "alpha", "beta", "pre")  # the release that they are of
Order = tuple[tuple[int, ...], int, str]
Versions = Mapping[str, Collection[str]]


def order_of(version: str) -> Order:
    """Orders versions as far as advisories need it: by their numbers, what comes before a release before it, the rest behind."""
    match = _VERSION.fullmatch(version.strip().lower())
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    suffix = match[2].partition("+")[0]
    return tuple(numbers), 0 if not suffix else -1 if suffix.startswith(_BEFORE) else 1, suffix


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Whether one of the ranges or lists of an advisory has this version."""
    if version in affected.get("versions", ()):
        return True
    ranges = [entry for entry in affected.get("ranges", ()) if entry.get("type") in ("ECOSYSTEM", "SEMVER")]
    return any(_is_in(order_of(version), entry.get("events", ())) for entry in ranges)


def _is_in(version: Order, events: Sequence[Mapping[str, str]]) -> bool:
    """Events say from which version on a fault is there, and from or after which it is not."""
    is_in = False
    for event in sorted(events, key=lambda event: order_of(next(iter(event.values())))):
        ((kind, limit),) = event.items()
        if kind == "introduced" and (limit == "0" or version >= order_of(limit)):
            is_in = True
        elif (kind == "fixed" and version >= order_of(limit)) or (kind == "last_affected" and version > order_of(limit)):
            is_in = False
    return is_in


def advisories_of(advisory: Mapping[str, Any], packages: Versions) -> Iterator[str]:
    """A line for each locked package that an advisory is about."""
    if advisory.get("withdrawn"):
        return
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        locked = packages.get(normal(str(package.get("name", ""))), ()) if package.get("ecosystem") == ECOSYSTEM else ()
        for version in [version for version in locked if is_affected(version, affected)]:
            summary = str(advisory.get("summary") or advisory.get("details") or "")[:200]
            yield f"{package['name']} {version}: {advisory.get('id', 'without a name')}: {summary}"


def search(directory: Path, packages: Versions) -> Iterator[tuple[str, bool]]:
    """What is found, and what cannot be read (True): an advisory that nobody understands must not pass for none."""
    for path in sorted(directory.rglob("*.json")):
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            yield from ((line, False) for line in advisories_of(json.loads(path.read_bytes()), packages))
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            yield f"{path}: cannot be judged: {error}", True


def locked_versions() -> Versions:
    """By package; of some, tests need another one than the programs."""
    versions = defaultdict[str, set[str]](set)
    for name in ALL:
        for package in parse((ROOT / name).read_text(encoding="utf-8")).packages:
            versions[normal(package.name)].add(package.version)
    return versions


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("advisories: give the directory with the advisories, as of osv.dev: bin/advisories DIRECTORY", file=sys.stderr)
        return 2
    try:
        lines = list(search(Path(sys.argv[1]), locked_versions()))
    except (LockError, OSError) as error:
        print(f"advisories: {error}", file=sys.stderr)
        return 2
    for line, _is_unread in lines:
        print(text.escape(line))
    return 2 if any(is_unread for _line, is_unread in lines) else int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
