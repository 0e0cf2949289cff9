"""Pages of docs/ lead where they say: every link has its file and its heading, and the index of decisions names them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)


def anchor(heading: str) -> str:
    """What a heading is called in a link: as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, place = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (place and place not in map(anchor, headings(file.read_text(encoding="utf-8")))):
            broken.append(target)
    assert broken == []


def test_index_of_decisions_names_every_decision_with_its_date() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    decisions = re.findall(r"^### (.*)\n\n(\d{4}-\d\d-\d\d)\n", text, re.MULTILINE)
    assert [title for title, _ in decisions] == re.findall(r"^### (.*)$", text, re.MULTILINE), "a decision without a date"
    assert re.findall(r"^\| (\d{4}-\d\d-\d\d) \| \[(.*)\]\(#.*\) \|$", text, re.MULTILINE) == [(d, t) for t, d in decisions]
