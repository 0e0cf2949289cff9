"""Lock files: the version of each package that is installed, and the hashes of all files of it that may be.

`bin/lock` runs this file. It keeps the versions as they stand, asks the package index which wheels there are of them, and writes
their hashes: of every Python that we run with and every machine, so that one lock file serves all of them. To take another
version, or another package, edit or add its `name==version` line and run it again.

It needs nothing but the standard library.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ALL: Final = ("requirements.lock", "requirements-dev.lock", "requirements-readers.lock")
PYTHONS: Final = ("cp311", "cp312", "cp313", "cp314")
MACHINES: Final = ("x86_64", "aarch64")
MOST_PAGE_BYTES: Final = 1 << 26
TIMEOUT_S: Final = 60
_PACKAGE: Final = re.compile(r"([a-z0-9][a-z0-9.-]*)==([\w.+!-]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_WHEEL: Final = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)(?:-[0-9][^-]*)?-([^-]+)-([^-]+)-([^-]+)\.whl")
_SOURCE: Final = re.compile(r"(.+)-([^-]+)\.(?:tar\.gz|zip)")


class LockError(Exception):
    """What is wrong with a lock file, or with what the index says."""


@dataclass(frozen=True)
class LockedPackage:
    name: str
    version: str
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockFile:
    """`head` has its comments and options, each a line."""

    head: tuple[str, ...]
    packages: tuple[LockedPackage, ...]

    def text(self) -> str:
        lines = list(self.head)
        for package in sorted(self.packages, key=lambda package: package.name):
            hashes = [f"    --hash=sha256:{digest}" for digest in sorted(package.hashes)]
            lines.append(" \\\n".join([f"{package.name}=={package.version}", *hashes]))
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class IndexFile:
    """A file of a package that the index offers."""

    name: str
    digest: str
    is_yanked: bool


def parse(text: str) -> LockFile:
    """A lock file; LockError names the first line that does not belong into one."""
    head, packages = [], []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if not words:
            continue
        if line.startswith("#") or words[0] == "--no-binary":
            head.append(line)
            continue
        package, hashes = _PACKAGE.fullmatch(words[0]), [_HASH.fullmatch(word) for word in words[1:]]
        if package is None or not all(hashes):
            raise LockError(f"{line[:100]!r} is not `name==version` with hashes")
        packages.append(LockedPackage(package[1], package[2], tuple(digest[1] for digest in hashes if digest)))
    return LockFile(tuple(head), tuple(packages))


def is_for_us(wheel: str) -> bool:
    """Whether one of the Pythons and machines that we run on takes a wheel of this name."""
    match = _WHEEL.fullmatch(wheel)
    if match is None:
        return False
    python, abi, platform = (match[number].split(".") for number in (3, 4, 5))
    runs = "py3" in python or any(tag in PYTHONS for tag in python) or ("abi3" in abi and any(map(_is_old, python)))
    fits = "none" in abi or "abi3" in abi or any(tag in PYTHONS for tag in abi)
    return (
        runs and fits and any(tag == "any" or (tag.startswith(("many", "musl")) and tag.endswith(MACHINES)) for tag in platform)
    )


def _is_old(tag: str) -> bool:
    """Whether what was built for this Python, and keeps to the stable interface, runs with ours."""
    return re.fullmatch(r"cp3[0-9]{1,2}", tag) is not None and int(tag[3:]) <= int(PYTHONS[-1][3:])


class _Links(HTMLParser):
    """The files of a page of the index: names and hashes stand in its links."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            url = urllib.parse.urlsplit(values["href"] or "")
            match = re.search(r"(?:^|&)sha256=([0-9a-f]{64})(?:&|$)", url.fragment)
            if match:
                name = urllib.parse.unquote(url.path.rpartition("/")[2])
                self.files.append(IndexFile(name, match[1], "data-yanked" in values))


def index_files(page: str) -> list[IndexFile]:
    links = _Links()
    links.feed(page)
    return links.files


def hashes_of(package: LockedPackage, files: Sequence[IndexFile], from_source: bool = False) -> tuple[str, ...]:
    """Of all wheels of this version that are for us, or of its source where only that will do."""
    pattern = _SOURCE if from_source else _WHEEL
    of_version = [file for file in files if _is_of(pattern, file.name, package)]
    if of_version and all(file.is_yanked for file in of_version):
        raise LockError(f"{package.name} {package.version} was withdrawn by who made it: take another version")
    hashes = tuple(sorted({file.digest for file in of_version if from_source or is_for_us(file.name)}))
    if not hashes:
        what = "source" if from_source else "wheel for us"
        raise LockError(f"the index has no {what} of {package.name} {package.version}")
    return hashes


def _is_of(pattern: re.Pattern[str], name: str, package: LockedPackage) -> bool:
    match = pattern.fullmatch(name)
    return match is not None and normal(match[1]) == normal(package.name) and match[2] == package.version


def normal(name: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def from_source(lock: LockFile) -> frozenset[str]:
    """The packages that have no wheels."""
    return frozenset(normal(line.split()[1]) for line in lock.head if line.startswith("--no-binary"))


def relocked(lock: LockFile, index: str) -> LockFile:
    """The same versions, with the hashes that the index has now."""
    sources = from_source(lock)
    packages = []
    for package in lock.packages:
        files = index_files(_page(f"{index.rstrip('/')}/{normal(package.name)}/"))
        packages.append(LockedPackage(package.name, package.version, hashes_of(package, files, normal(package.name) in sources)))
    return LockFile(lock.head, tuple(packages))


def _page(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(MOST_PAGE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise LockError(f"{url}: {error}") from error
    if len(data) > MOST_PAGE_BYTES:
        raise LockError(f"{url}: more than {MOST_PAGE_BYTES} bytes")
    return data.decode("utf-8", "replace")


def changes(before: LockFile, after: LockFile) -> Iterator[str]:
    """What another look at the index has brought, in words; a hash that is gone deserves a second thought."""
    hashes_before = {package.name: set(package.hashes) for package in before.packages}
    for package in after.packages:
        hashes = set(package.hashes)
        added, dropped = hashes - hashes_before[package.name], hashes_before[package.name] - hashes
        if added or dropped:
            yield f"{package.name} {package.version}: {len(added)} hashes added, {len(dropped)} dropped"


def _index() -> str:
    """Where pip looks for packages."""
    try:
        return os.environ.get("PIP_INDEX_URL") or str(importlib.import_module("pip._internal.models.index").PyPI.simple_url)
    except (ImportError, AttributeError) as error:
        raise LockError("this Python has no pip that knows an index of packages: set PIP_INDEX_URL") from error


def main() -> int:
    for name in sys.argv[1:] or ALL:
        path = ROOT / name
        try:
            index = _index()
            before = parse(path.read_text(encoding="utf-8"))
            after = relocked(before, index)
        except (LockError, OSError) as error:
            print(f"lock: {name}: {error}", file=sys.stderr)
            return 1
        path.write_text(after.text(), encoding="utf-8")
        for change in changes(before, after):
            print(f"{name}: {change}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
