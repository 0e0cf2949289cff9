"""docs/tutorial.md, typed in by a newcomer, and the toy web that its first command gathers, judged by its model and access log.

Every command of the page is run as it stands there, and must print what stands below it: `...` stands for anything within a line,
and a line of its own for any lines. What the first of them has gathered is copied before the page changes it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shepherd.cli.gather.toy import SEED, SETTINGS, SITES
from tests.support.waiting import PATIENCE_S
from toyweb import log
from toyweb.model import Model, canonical

pytestmark = pytest.mark.waits

ROOT = Path(__file__).resolve().parents[3]
BIN = ROOT / "bin"
PAGE = ROOT / "docs" / "tutorial.md"
TREE = ("bin", "cf", "db", "shepherd", "toyweb", "setup.cfg", "pyproject.toml", "requirements.lock", "requirements-dev.lock")
MARK = "=== tutorial ==="
CALENDAR_BOUND = SETTINGS["select"]["site_soft"]  # rows of one site, so pages of its calendar, too


@dataclass(frozen=True)
class Typed:
    """A command, where it stands, and what it prints."""

    line: int
    command: str
    printed: str


def typed(page: str) -> list[Typed]:
    found: list[Typed] = []
    for block in re.finditer(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        line = page.count("\n", 0, block.start()) + 2
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.group(1), re.MULTILINE):
            found.append(Typed(line + block.group(1).count("\n", 0, part.start()), part.group(1), part.group(2)))
    return found


def pattern(printed: str) -> re.Pattern[str]:
    lines = [
        r"(?:.*\n)*?" if line == "..." else ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
        for line in printed.splitlines()
    ]
    return re.compile("".join(lines))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree as a newcomer has it, set up already."""
    place = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(["git", "ls-files", "-z", *TREE], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["xargs", "-0", "cp", "-P", "--parents", "-t", str(place)], cwd=ROOT, input=listed, check=True)
    (place / ".venv").symlink_to(ROOT / ".venv")
    return place


@dataclass(frozen=True)
class Gathered:
    """A finished gather: its database, what it printed where, and the web it was of."""

    db: Path
    clone: Path
    output: str
    model: Model

    @property
    def log_path(self) -> Path:
        return self.db / "cf" / "web" / "access.log"

    def lines(self, program: str, *args: str) -> list[dict[str, Any]]:
        """What a program prints as JSON lines."""
        return [json.loads(line) for line in run(program, *args, "--db", str(self.db), "--json").splitlines()]


def run(program: str, *args: str) -> str:
    done = subprocess.run([str(BIN / program), *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{program}: {done.returncode} {done.stdout}{done.stderr}"
    assert "\nshepherd: " not in done.stderr, f"a program that nobody has called complains: {done.stderr}"
    return done.stdout


def type_in(clone: Path, commands: list[str]) -> list[str]:
    """What each command printed, all of them typed into one shell."""
    script = "\n".join(f"{command}\necho '{MARK}'" for command in commands)
    shell = ["bash", "-c", f"exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n{script}"]
    done = subprocess.run(shell, cwd=clone, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    outputs = done.stdout.split(f"{MARK}\n")
    assert len(outputs) == len(commands) + 1, done.stdout
    return outputs[:-1]


@pytest.fixture(scope="module")
def gathered(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    """What the first command of the page makes, copied to where `gather --db` has it: the page continues in the clone."""
    first = typed(PAGE.read_text(encoding="utf-8"))[0]
    assert first.command == "bin/gather -q"
    [output] = type_in(clone, [first.command])
    db = tmp_path_factory.mktemp("gather") / "db"
    shutil.copytree(clone / "toy" / "db", db)
    shutil.copytree(clone / "toy" / "web", db / "cf" / "web")
    return Gathered(db, clone, output, Model(SEED, SITES))


# --- the page ---------------------------------------------------------------------------------------------------


def test_tutorial_prints_what_it_says(clone: Path, gathered: Gathered) -> None:
    [first, *later] = typed(PAGE.read_text(encoding="utf-8"))
    assert len(later) > 10
    outputs = [gathered.output, *type_in(clone, [step.command for step in later])]
    wrong = [
        f"{PAGE.name}, line {step.line}: $ {step.command}\n{output}"
        for step, output in zip([first, *later], outputs, strict=True)
        if not pattern(step.printed).fullmatch(output)
    ]
    assert not wrong, "\n".join(wrong)


def test_pattern_of_the_tutorial_bites() -> None:
    assert pattern("a ... c\n").fullmatch("a b c\n")
    assert not pattern("a ... c\n").fullmatch("a b d\n")
    assert pattern("a\n...\nb\n").fullmatch("a\nx\ny\nb\n")
    assert not pattern("a\n").fullmatch("a\nb\n")


# --- what was gathered ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(gathered: Gathered) -> list[dict[str, Any]]:
    """Gathered rows with a body, robots files apart."""
    rows = gathered.lines("shep", "list", "--type", "gathered", "--limit", "100000")
    return [row for row in rows if not {"robots", "redirect"} & set(row["flags"])]


def test_every_page_that_robots_and_limits_allow_is_stored_and_none_other(
    gathered: Gathered, pages: list[dict[str, Any]]
) -> None:
    model = gathered.model
    stored = {canonical(row["url"]) for row in pages}
    calendar = {url for url in stored if model.is_trap(url)}
    expected = model.expected(version=1)
    assert len(expected) > 1000
    assert sorted(expected - stored) == []
    assert sorted(stored - expected - calendar) == []
    assert 0 < len(calendar) <= CALENDAR_BOUND


def test_page_that_robots_denies_is_never_fetched(gathered: Gathered) -> None:
    denied = {(page.host, page.path) for page in gathered.model.pages("shepherd") if not page.allowed}
    asked = {(canonical_host(entry.host), entry.path) for entry in log.read_log(gathered.log_path)}
    assert len(denied) > 10
    assert sorted(asked & {(canonical_host(host), path) for host, path in denied}) == []


def canonical_host(host: str) -> str:
    return urlsplit(canonical(f"http://{host}/")).hostname or ""


def test_mirrors_are_one_document(pages: list[dict[str, Any]]) -> None:
    """Only the root page of each site, which equivalence needs, may be there twice."""
    times = Counter(canonical(row["url"]) for row in pages if urlsplit(row["url"]).path != "/")
    assert [url for url, count in times.items() if count > 1] == []
    assert any("www." in row["url"] for row in pages)
    assert any("www." not in row["url"] for row in pages)


def test_unchanged_page_is_not_stored_again_by_the_refresh(gathered: Gathered, pages: list[dict[str, Any]]) -> None:
    full = Counter(row["url"] for row in gathered.lines("shep-dump", "buckets") if row["stored"])
    unchanged = [row for row in pages if row["reason"] == "unchanged"]
    changed = [row for row in pages if full[row["url"]] > 1]
    assert len(unchanged) > 1000
    assert changed
    assert [row["url"] for row in unchanged if full[row["url"]] != 1] == []


def test_refresh_asks_conditionally(gathered: Gathered) -> None:
    answers = Counter(entry.status for entry in log.read_log(gathered.log_path))
    assert answers[304] > 1000


def test_no_server_is_asked_sooner_than_its_delay(gathered: Gathered) -> None:
    entries = log.read_log(gathered.log_path)
    assert len(entries) > 3000
    assert log.audit(entries, gathered.model.delays_s(SETTINGS["politeness"]["delay_s"])) == []


def test_database_checks(gathered: Gathered) -> None:
    run("shep-check", "--db", str(gathered.db))


def test_summary_names_three_commands_that_work(gathered: Gathered) -> None:
    tail = gathered.output.split("Try next:\n")[1]
    commands = [line.split() for line in tail.splitlines() if line.strip()]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(command, cwd=gathered.clone, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout


def test_running_again_follows_the_changed_web(gathered: Gathered) -> None:
    again = run("gather", "--db", str(gathered.db))
    assert "nothing more is due" in again
    rows = gathered.lines("shep", "list", "--type", "gathered", "--limit", "100000")
    stored = {canonical(row["url"]) for row in rows if not {"robots", "redirect"} & set(row["flags"])}
    assert gathered.model.expected(version=2) == {url for url in stored if not gathered.model.is_trap(url)}
    run("shep-check", "--db", str(gathered.db))
