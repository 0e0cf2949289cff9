"""What programs print of a golden database, in JSON and in text, is what outputs.txt has, to the letter.

Somebody's scripts read it: a field that gets another name, or a value another spelling, is a change for CHANGELOG.md.
After one `python -m tests.golden.test_outputs` writes the file anew, and its diff belongs into the same commit.
"""

from __future__ import annotations

import re
import shlex
import tarfile
import tempfile
from pathlib import Path

from tests.support.programs import call

GOLDEN = Path(__file__).resolve().parent
EXPECTED = GOLDEN / "outputs.txt"
NOW = "--now 1900000000"
PAGE, ROBOTS, NEW = "http://site0.toy.example/", "http://site0.toy.example/robots.txt", "http://later.toy.example/"
# They work on one database, one after the other.
PHASES = f"""
shep-upgrade {NOW} --json
shep-merge {NOW} --json
shep-equiv {NOW} --json
shep-select {NOW} --json
shep-record {NOW} --json
shep-plan {NOW} --json
"""
READERS = f"""
shep list --limit 4 {NOW}
shep list --limit 4 --json {NOW}
shep stats --json {NOW}
shep sites --limit 4 --json
shep servers --json
shep states --json
shep top --limit 4 --json
shep top --limit 4
shep explain {PAGE} --json {NOW}
shep explain {PAGE} {NOW}
shep explain {NEW} --json {NOW}
shep at 10 {PAGE} --json
shep at 10 {PAGE}
shep diff 9 10 --json
shep robots {PAGE} --json
shep url {PAGE} --json
shep filter check {PAGE} --json
shep cat {PAGE} --json
shep reports --json
shep audit politeness --json
shepherd status --json
shep-check --json
shep-dump control --json
shep-dump index --limit 4 --json
shep-dump index --limit 4 --urls
shep-dump sites --limit 4 --json
shep-dump servers --limit 4 --json
shep-dump plan --limit 4 --json
shep-dump plan --limit 4
shep-dump journal --state 9 --limit 4 --json
shep-dump journal --state 9 --limit 4
shep-dump contrib --state 9 --limit 4 --json
shep-dump buckets --limit 4 --json
shep-dump checkpoints --json
shep-dump inbox --json
shep-dump leases --json
shep-export --format jsonl --no-body -o - --best 2 --quiet
shep-export --format jsonl -o - --quiet --robots {ROBOTS}
"""
# What depends on the disk, and on when it is asked.
VARIABLE = re.compile(r'("(?:free_bytes|states_bytes|own_bytes|shared_bytes|pinned_bytes)": )\d+|\((?:in )?\d+ \w+(?: ago)?\)')


def outputs(home: Path) -> str:
    """Every command, and what it printed with which exit status."""
    with tarfile.open(GOLDEN / "v2-closed.tar.xz") as archive:
        archive.extractall(home, filter="tar")
    (home / "cf").mkdir()
    (home / "cf" / "filter").write_text("default accept\n")  # its hash stands in control
    return "".join(_output(line, home) for line in (PHASES + READERS).split("\n") if line)


def _output(line: str, home: Path) -> str:
    ended = call(*shlex.split(line), cwd=home, SHEPHERD_DB=str(home / "db"), SHEPHERD_CF=str(home / "cf"))
    text = VARIABLE.sub(r"\1N", ended.stdout.replace(str(home), "HOME"))
    return f"$ {line}\n{text}[{ended.returncode}]\n\n"


def test_outputs_are_as_they_were(tmp_path: Path) -> None:
    assert outputs(tmp_path).splitlines() == EXPECTED.read_text(encoding="utf-8").splitlines()


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        EXPECTED.write_text(outputs(Path(home)), encoding="utf-8")


if __name__ == "__main__":
    main()
