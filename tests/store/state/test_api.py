"""The examples of docs/api.md, run as they stand there, and what they leave judged by shep-check."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.config import Config
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.plan import drive as plan
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.errors import UsageError
from shepherd.store.check import check
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.documents import StoredDocument
from shepherd.store.state.gathering import Gathering, Page
from shepherd.store.state.harvest import Harvest
from tests.support.page_states import ROOT, Herd
from tests.support.waiting import PATIENCE_S
from tests.worlds import NOW

EXAMPLES = re.findall(
    r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.DOTALL
)


def run(script: str, home: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example_prints_what_the_page_says(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 2
    for script, output in EXAMPLES:
        assert run(script, tmp_path) == output
    database = Database(tmp_path / "db")
    assert list(check.walk(database)) == []
    assert database.leases.all() == []


@pytest.mark.parametrize("of", [Database, State, Writer, Builder, Harvest, Gathering, StoredDocument])
def test_every_public_method_has_a_docstring(of: type) -> None:
    public = {name: member for name, member in vars(of).items() if not name.startswith("_")}
    silent = [name for name, member in public.items() if callable(member) and not inspect.getdoc(member)]
    assert inspect.getdoc(of)
    assert silent == []


# --- documents --------------------------------------------------------------------------------------------------


def test_documents_are_those_with_a_body(herd: Herd) -> None:
    with herd.store.reading("test", NOW * 1_000) as state:
        found = {document.url: document for document in state.documents()}
        assert set(found) == {"http://a.example/", "http://a.example/private/old", "https://www.b.example/page"}
        page = found["https://www.b.example/page"]
        assert (page.body(), page.columns["weight"], page.columns["status"]) == (b"the page", 60_000, 200)
        assert found["http://a.example/"].content_type == "text/html"
        assert [d.url for d in state.documents("b.example")] == ["https://www.b.example/page"]
        assert list(state.documents("unheard-of.example")) == []


# --- gathering --------------------------------------------------------------------------------------------------


def planned(home: Path, count: int) -> Database:
    """A database with a plan of so many pages."""
    database = Database.create(home / "db", bytes(16), NOW)
    urls = [f"http://a.example/{n}" for n in range(count)]
    database.inbox.drop(database.new_item_name(NOW * 1_000), ({"op": "insert", "url": url} for url in urls))
    with database.writing("test") as writer:
        for phase in (merge, select, record, plan):
            phase.run(writer, Config(directory=home), NOW, lambda rows: None)
    return database


def test_interrupted_import_wants_only_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    state = planned(tmp_path, 4).furthest()
    with Gathering(state, "import") as one:
        first, second, *rest = one.planned_pages()
        one.store(first, Page(b"1", NOW * 1_000))
        one.checkpoint(NOW * 1_000)
        one.store(second, Page(b"2", NOW * 1_000))
    with Gathering(state, "import") as again:
        assert list(again.planned_pages()) == [second, *rest]
        assert len(rest) == 2


def test_harvest_is_begun_only_where_something_is_planned(tmp_path: Path) -> None:
    database = planned(tmp_path, 1)
    with pytest.raises(UsageError, match="reap directory"):
        Gathering(database.closed(), "import")
    with pytest.raises(UsageError, match="plain name"):
        Gathering(database.furthest(), "../import")
