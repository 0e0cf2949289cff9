"""A toy web and a database that gathers it, for tests that kill the programs that do so."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shepherd.store.state.database import Database
from tests.support import programs
from tests.support.programs import call
from tests.worlds import write_open_filter
from toyweb import log, run
from toyweb.model import Model

ROOT = Path(__file__).resolve().parents[2]
DELAY_S = 0.02
SITES = 50
PHASES = ("shep-feedback", "shep-plan", "shep-cork", "shep-merge", "shep-equiv", "shep-select", "shep-record", "shep-cleanup")
NOW = 1_900_000_000  # later than any clock here: everything is due, whatever the machine's time
CF = f"""
[politeness]
delay_s = {DELAY_S}
[plan]
reap_s = 60
max_pages = 150
[reap]
checkpoint_s = 0.1
reserve_bytes = 0  # of the disk
[cleanup]
reserve_bytes = 0
[fetch]
ca_file = "../web/ca.pem"
[network]
allow = ["127.0.0.0/8"]
static = "../web/static"
"""


@dataclass(frozen=True)
class Farm:
    """A directory with cf/ and web/, which databases share, and one database."""

    home: Path
    db: Path
    model: Model

    def run(self, program: str, *args: str, fail: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program on the database; `fail` is its failpoint."""
        return call(program, *args, SHEPHERD_DB=str(self.db), SHEPHERD_CF=str(self.home / "cf"), SHEPHERD_FAIL=fail)

    def must(self, program: str, *args: str) -> str:
        """Run a program that must succeed; what it printed."""
        done = self.run(program, *args)
        assert done.returncode == 0, f"{program}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    def cycle(self, *of_reap: str) -> bool:
        return programs.cycle(self.db, self.home / "cf", *of_reap)

    def killed(self, program: str, fail: str, *args: str) -> None:
        """Run a program that must die at its failpoint: a run that ends by itself has tested nothing."""
        done = self.run(program, *args, fail=fail)
        assert done.returncode == -signal.SIGKILL, f"{program} was not killed at {fail}: {done.returncode} {done.stderr}"

    def copy(self, home: Path) -> Farm:
        """The same database again, elsewhere."""
        shutil.copytree(self.db, home, copy_function=shutil.copy2)
        return Farm(self.home, home, self.model)

    def upload(self) -> None:
        """Feedback that waits for the next shep-feedback."""
        name = self.database.new_item_name(NOW * 1000)
        self.database.inbox.drop_feedback(name, "".join(f"{url} 50000\n" for url in self.model.seeds()).encode())

    def equate(self) -> None:
        """Two sites of the web are one from now on, for all databases that share the cf/."""
        (self.home / "cf" / "url-equiv").write_text(" ".join(site.name for site in self.model.by_popularity[:2]) + "\n")

    @property
    def database(self) -> Database:
        return Database(self.db)

    def furthest(self) -> str:
        return str(self.database.furthest().name)

    def violations(self) -> list[log.Violation]:
        entries = log.read_log(self.home / "web" / "access.log")
        assert entries, "nobody asked the toy web anything"
        return log.audit(entries, self.model.delays_s(DELAY_S))


@contextmanager
def farm(home: Path, db: Path | None = None) -> Iterator[Farm]:
    """A running toy web and an empty database with its seeds inserted, or a copy of one that has gathered it before."""
    (home / "cf").mkdir(parents=True)
    (home / "cf" / "shepherd.toml").write_text(CF)
    write_open_filter(home / "cf")
    model = Model(1, SITES)
    with run.start(model, home / "web"):
        made = Farm(home, home / "db", model)
        if db is None:
            made.must("shep-init", "--quiet")
            made.must("shep", "insert", *model.seeds())
        else:
            shutil.copytree(db, made.db)
        yield made


def gather_for_all(home: Path) -> None:
    """Below a directory: `gathered`, the database after one cycle, and `planned`, after three and the plan of a fourth."""
    with farm(home / "farm") as one:
        one.cycle()
        shutil.copytree(one.db, home / "gathered")
        one.cycle()
        one.cycle()
        one.must("shep-plan")
        shutil.copytree(one.db, home / "planned")
    shutil.rmtree(home / "farm")


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def reference(stage: Farm, program: str, tmp_path: Path) -> tuple[str, dict[str, bytes]]:
    """Name and contents of what the phase makes when nobody disturbs it."""
    undisturbed = stage.copy(tmp_path / "undisturbed")
    undisturbed.must(program, "--now", str(NOW))
    made = undisturbed.database.furthest()
    return made.path.name, contents(made.path)
