"""The scripts of docs/serve.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from shepherd.serve import tokens
from tests.client.test_stream import succeed
from tests.support.segment_states import Sheep, fill
from tests.support.serving import ROOT, serving, token_of
from tests.support.waiting import PATIENCE_S

PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_script_prints_what_the_page_says(tmp_path: Path) -> None:
    old, kept = Sheep("http://example.org/old", section=1), Sheep("http://example.org/kept", section=1)
    text = Sheep("http://example.org/text", section=2)
    fill(tmp_path, [old, kept, text])
    with serving(tmp_path) as served:
        path = tmp_path / "cf" / "tokens"
        tokens.write(path, [*tokens.read(path), tokens.make_client("indexer", ["read", "feedback"], token_of("indexer"))])
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SERVER": served.url, "TOKEN": token_of("indexer")}
        assert len(EXAMPLES) == 2
        for number, (script, output) in enumerate(EXAMPLES):
            if number:
                succeed(tmp_path, 3, [kept, text, Sheep("http://example.org/new", now=b"new", section=1, weight=7)])
            command = [sys.executable, "-W", "error", "-c", script]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            assert (done.stdout, done.returncode) == (output, 0), done.stderr
        assert len(served.database.inbox.items("feedback")) == 1
        assert served.database.leases.all() == []


def test_every_parameter_is_on_the_page() -> None:
    from shepherd.serve import routes

    parameters = [one.name for one in (*routes.CHOICE, routes.AFTER)]
    words = [*parameters, *(route.path.split("/")[-1] for route in routes.ROUTES if not route.path.endswith("}"))]
    assert [word for word in words if word not in PAGE] == []
