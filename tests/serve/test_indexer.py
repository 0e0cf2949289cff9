"""The indexer of docs/indexer.md, run as it stands there: gathered pages can be searched, changes follow, weights come back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.serve import tokens
from shepherd.urls import parse
from tests.support.export_pages import page
from tests.support.origin import Answer, ok
from tests.support.page_states import Page, make_herd
from tests.support.reaping import CF, Home, planned
from tests.support.serving import ROOT, Serving, serving, token_of
from tests.support.waiting import PATIENCE_S
from tests.worlds import PRINTS

pytestmark = pytest.mark.waits

HTML = "Content-Type: text/html; charset=iso-8859-2"
PAGES = {
    "flock.example/": "<title>A flock</title><a href=/sheep>sheep</a> <a href=/dog>a dog</a>",
    "flock.example/sheep": "<title>Sheep</title><p>They graze <script>hidden()</script>quietly. <a href=/>home</a>",
    "flock.example/dog": "<title>Pes</title><p>Pes jménem Žofka <a href=/sheep>sheep</a>",
    "other.example/about": "<title>Elsewhere</title><a href=http://flock.example/sheep>look</a>",
}
HOSTILE = ok(
    "<title>Wolf\x1b]0;owned\x07\x9b2J</title><p>A wolf, so-called, in \x1b[31m Grün\u202e".encode(),
    "Content-Type: text/html; charset=windows-874",
)
COUNTING = """
import itertools, runpy, sqlite3

steps, connect = itertools.count(), sqlite3.connect


def counted(*arguments):
    index = connect(*arguments)
    index.set_progress_handler(lambda: next(steps) < 0, 1)
    return index


sqlite3.connect = counted
runpy.run_path("indexer.py")
print("", next(steps), end="")
"""


def test_indexer_of_the_docs_gets_every_page_change_and_weight(tmp_path: Path) -> None:
    script_of_the_docs(tmp_path)
    routes: dict[str, Answer] = {route: ok(page.encode("iso-8859-2"), HTML) for route, page in PAGES.items()}
    with planned(tmp_path, routes, [f"http://{route}" for route in routes], []) as made:
        finish(made)
        settings = CF.format(timeout_s=3, reapers="[]", reap="")
        with serving(tmp_path, settings) as served:
            know_the_indexer(served)
            assert re.fullmatch(r"state \d+: 4 present\n", update(served))
            assert search(served, "Žofka") == ["http://flock.example/dog"]
            assert search(served, "quietly") == ["http://flock.example/sheep"]
            assert search(served, "hidden") == []
            assert search(served, "Elsewhere") == ["http://other.example/about"]  # which only its title has

            made.must("shep-feedback", "-q")
            weights = {url: row["weight"] for url, row in rows(made).items()}
            assert weights["http://flock.example/sheep"] > weights["http://flock.example/dog"]
            assert weights["http://flock.example/dog"] > weights["http://other.example/about"] == 20_000

            for origin in made.origins:
                origin.routes["flock.example/dog"] = ok(b"<title>Dog</title>Rex", HTML)
            made.must("shep", "refresh", "http://flock.example/dog")
            made.must("shep", "delete", "http://other.example/about")
            for program in ("merge", "select", "record", "plan"):
                made.must(f"shep-{program}", "-q")
            finish(made)
            assert re.fullmatch(r"state \d+: 1 changed, 1 gone\n", update(served))
            assert search(served, "Rex") == ["http://flock.example/dog"]
            assert search(served, "Žofka") == search(served, "elsewhere") == []
            assert re.fullmatch(r"state \d+: nothing new\n", update(served))


def test_hostile_page_neither_breaks_the_indexer_nor_reaches_the_terminal(tmp_path: Path) -> None:
    script_of_the_docs(tmp_path)
    with (
        planned(tmp_path, {"wolf.example/": HOSTILE}, ["http://wolf.example/"], []) as made,
        serving(tmp_path, CF.format(timeout_s=3, reapers="[]", reap="")) as served,
    ):
        know_the_indexer(served)
        assert update(served).endswith(": nothing new\n")
        assert not list(tmp_path.rglob("*.feedback"))
        finish(made)
        assert update(served).endswith(": 1 added\n")
        assert len(list(tmp_path.rglob("*.feedback"))) == 1
        assert update(served).endswith(": nothing new\n")
        assert len(list(tmp_path.rglob("*.feedback"))) == 1  # no weights where nothing is new
        for words in ("so-called wolf", "Grün", "wolf,"):
            assert search(served, words) == ["http://wolf.example/"], words
        for words in ('"', "body:nothing", "wolf NOT called", "AND", "*", "^(", ""):
            assert search(served, words) == [], words
        text = run(served, "search", "wolf")
        assert "Wolf" in text and all(one.isprintable() or one == "\n" for one in text)


def test_cost_of_a_page_does_not_grow_with_their_number(tmp_path: Path) -> None:
    steps = []
    for count in (100, 400):
        home = tmp_path / str(count)
        make_herd(home, flock(count), (), ())
        script_of_the_docs(home)
        (home / "counting.py").write_text(COUNTING)
        with serving(home) as served:
            know_the_indexer(served)
            told, _, counted = run(served, "update", served.url, script="counting.py").rpartition(" ")
            assert told.endswith(f": {count} present\n")
        steps.append(int(counted))
    assert steps[1] < 6 * steps[0], steps  # four times as many, and some for the depth of trees


def flock(count: int) -> list[Page]:
    """Each links to those before it."""
    urls = [f"http://a.example/{n}" for n in range(count)]
    keys = [b"".join(half.to_bytes(8, "little") for half in PRINTS.of(parse(url))[:2]) for url in urls]
    return [page(url, f"<p>page {n} of all".encode(), L=b"".join(keys[max(n - 8, 0) : n])) for n, url in enumerate(urls)]


def script_of_the_docs(place: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "indexer.md").read_text(encoding="utf-8"), re.DOTALL)
    (place / "indexer.py").write_text(script)


def finish(made: Home) -> None:
    for program in ("reap", "cork"):
        made.must(f"shep-{program}", "-q")


def rows(made: Home) -> dict[str, dict[str, int]]:
    return {row["url"]: row for row in map(json.loads, made.must("shep", "list", "--json").splitlines())}


def know_the_indexer(served: Serving) -> None:
    path = served.home / "cf" / "tokens"
    tokens.write(path, [*tokens.read(path), tokens.make_client("indexer", ["read", "feedback"], token_of("indexer"))])


def run(served: Serving, *arguments: str, script: str = "indexer.py") -> str:
    command = [sys.executable, "-W", "error", script, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "TOKEN": token_of("indexer")}
    done = subprocess.run(
        command, cwd=served.home, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def update(served: Serving) -> str:
    return run(served, "update", served.url)


def search(served: Serving, words: str) -> list[str]:
    return [line for line in run(served, "search", words).splitlines() if line.startswith("http")]
