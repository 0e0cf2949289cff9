"""docs/threat-model.md names tests and files that exist: a row whose proof was renamed away proves nothing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
TABLE = TEXT[TEXT.index("## The hostile network") :]


def test_every_row_names_a_defence_and_a_test_that_exist() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    missing = []
    for attack, defence, test, figure in rows:
        assert re.search(r"[0-9]|at the limit|the limit and one body", figure), f"{attack}: no figure"
        tests = re.findall(r"`(tests/[\w/]+(?:\.py)?)", test)
        files = re.findall(r"`([a-z]+/[\w/]*(?:\.py)?|urls\.py)`", defence)
        assert tests, f"{attack}: no test"
        missing += [name for name in tests if not (ROOT / name).exists()]
        missing += [name for name in files if not (ROOT / "shepherd" / name).exists()]
    assert missing == []
