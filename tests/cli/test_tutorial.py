"""docs/tutorial.md, typed in by a newcomer: every command is run as it stands there, and must print what stands below it.

In what is printed, `...` stands for anything within a line, and a line of its own for any lines.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
TREE = ("bin", "cf", "db", "shepherd", "setup.cfg", "pyproject.toml", "requirements.lock", "requirements-dev.lock")
MARK = "=== tutorial ==="


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


def test_tutorial_prints_what_it_says(clone: Path) -> None:
    steps = typed(PAGE.read_text(encoding="utf-8"))
    assert len(steps) > 10
    script = "\n".join(f"{step.command}\necho '{MARK}'" for step in steps)
    shell = ["bash", "-c", f"exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n{script}"]
    done = subprocess.run(shell, cwd=clone, capture_output=True, text=True, timeout=600, check=False)
    outputs = done.stdout.split(f"{MARK}\n")
    assert len(outputs) == len(steps) + 1, done.stdout
    wrong = [
        f"{PAGE.name}, line {step.line}: $ {step.command}\n{output}"
        for step, output in zip(steps, outputs, strict=False)
        if not pattern(step.printed).fullmatch(output)
    ]
    assert not wrong, "\n".join(wrong)


def test_pattern_of_the_tutorial_bites() -> None:
    assert pattern("a ... c\n").fullmatch("a b c\n")
    assert not pattern("a ... c\n").fullmatch("a b d\n")
    assert pattern("a\n...\nb\n").fullmatch("a\nx\ny\nb\n")
    assert not pattern("a\n").fullmatch("a\nb\n")
