"""A pipe, socket, device, directory or link in the place of a file: nobody waits for it, and shep-recover moves it aside.

Each kind in each place with `bin/test --crash`; else a sample of the day.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from shepherd.store.disk import names
from tests.crash import mending
from tests.crash.tally import Tally
from tests.crash.test_upgrade import run_upgrade, unpack
from tests.support import sampling
from tests.support.odd_files import ODD_KINDS, put
from tests.support.programs import call

IN_CLOSED: Final = (
    "control", "report.json", "index/oid", "index/oid.check", "sites/names", "servers/qkey", "objects/*", "index", "objects",
)  # fmt: skip
IN_REAP: Final = (
    "control",
    "plan",
    "harvest/*/checkpoints",
    "harvest/*/journal",
    "harvest/*/seg.*",
    "harvest/*/lock",
    "objects/*",
)
BESIDE: Final = ("lock", "lease/lock", "lease", "inbox", "log", "log/timings.jsonl", "log/cycles.jsonl", "log/now.json", "mirror")
PLACES: Final = (
    *(("closed", f"state/000009/{place}") for place in IN_CLOSED),
    *(("closed", f"state/000008/{place}") for place in ("control", "journal.*", "contrib.*")),
    *(("closed", place) for place in BESIDE),
    *(("reap", f"state/000013.reap/{place}") for place in IN_REAP),
)
DIRECTORIES: Final = ("lease", "inbox", "log", "index", "objects", "harvest")
HOOK: Final = """
[hooks]
before = "sh -c 'test $1 != shep-reap' hook"
"""
LOOKS: Final = (("shep", "list"), ("shepherd", "status"), ("shep-check",), ("shep-recover", "--dry-run"))
MADE_WHEN_NEEDED: Final = ("mirror", "log/now.json", "state/000013.reap/harvest/*/lock")
QUIET_STATUSES: Final = (0, 2, 4, 5, 10, 11)  # not 1, a bug, and not 13, a failing disk


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A database of two closed states, and one in the midst of a reap."""
    home = tmp_path_factory.mktemp("bases")
    reap = unpack("v2-reap", home / "reap")
    run_upgrade(reap)
    (home / "cf").mkdir()
    (home / "cf" / "shepherd.toml").write_text(HOOK)
    return {"closed": mending.grow(home / "closed"), "reap": reap, "cf": home / "cf"}


def struck(base: Path, place: str, kind: str, db: Path) -> tuple[Path, Path]:
    """A copy of a database with something odd in the place of the first file of that name; the file must have been there."""
    shutil.copytree(base, db)
    found = sorted(db.glob(place))
    assert found or place in MADE_WHEN_NEEDED, place
    directory, _, name = place.rpartition("/")
    path = found[0] if found else next(db.glob(directory)) / name if directory else db / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put(path, kind)
    return db, path


def judged(cf: Path, base: Path, place: str, kind: str, home: Path) -> Iterator[str]:
    """All that is not as it must be, from the first look to the last; the cycle has a copy of its own."""
    for name in ("cycled", "db"):
        db, path = struck(base, place, kind, home / name)
        for words in (("shepherd", "cycle"),) if name == "cycled" else LOOKS:
            yield from complaints(cf, db, *words)
    stood = path.lstat()
    told = call("shep-recover", SHEPHERD_DB=str(db), SHEPHERD_CF=str(cf))
    if told.returncode or str(path.relative_to(db)) not in told.stdout:
        yield f"shep-recover: {told.returncode} {told.stdout} {told.stderr}"
        return
    aside = [
        one for one in (db / names.ASIDE).iterdir() if (one.lstat().st_ino, one.lstat().st_dev) == (stood.st_ino, stood.st_dev)
    ]
    if len(aside) != 1 or str(aside[0].relative_to(db)) not in told.stdout:
        yield f"it is not aside, or the report does not say so: {told.stdout}"
    for words in (("shep-check",), ("shep", "list"), ("shepherd", "status")):
        yield from complaints(cf, db, *words, statuses=(0,))
    again = call("shep-recover", SHEPHERD_DB=str(db), SHEPHERD_CF=str(cf))
    if again.returncode or again.stdout:
        yield f"a second run: {again.returncode} {again.stdout} {again.stderr}"


def complaints(cf: Path, db: Path, *words: str, statuses: Sequence[int] = QUIET_STATUSES) -> Iterator[str]:
    """A program; whoever waits for a pipe is killed when the patience of all tests is over."""
    done = call(*words, SHEPHERD_DB=str(db), SHEPHERD_CF=str(cf))
    if "Traceback" in done.stderr or done.returncode not in statuses:
        yield f"{' '.join(words)}: {done.returncode} {done.stdout} {done.stderr}"


def is_case(place: str, kind: str) -> bool:
    """A directory belongs in the place of a directory; a note of a mirror that is a link is refused by all who need it."""
    return not (kind == "a directory" and place.rpartition("/")[2] in DIRECTORIES) and not ("link" in kind and place == "mirror")


def test_odd_file_is_neither_waited_for_nor_in_the_way(bases: dict[str, Path], tmp_path: Path, tally: Tally) -> None:
    cases = [(which, place, kind) for (which, place), kind in product(PLACES, ODD_KINDS) if is_case(place, kind)]
    for which, place, kind in sampling.sample(cases, 3, "odd files", 20):
        home = tmp_path / "home"
        tally.point(f"{kind} as {place}", list(judged(bases["cf"], bases[which], place, kind, home)))
        shutil.rmtree(home)
    tally.close()
