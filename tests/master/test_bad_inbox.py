"""A cycle with an inbox full of what nobody can read: it is run to its end, and so is every program that looks into the inbox."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shepherd.report import logbook
from shepherd.store.state.inbox import KINDS
from tests.support import bad_files
from tests.support.toy_farm import farm

pytestmark = pytest.mark.waits


def name_of(kind: str, numbers: Iterator[int]) -> str:
    return f"1790000000000-host-{1 << 22}-{next(numbers)}.{kind}"


def test_no_item_of_the_inbox_ends_a_cycle(tmp_path: Path) -> None:
    with farm(tmp_path / "farm") as one:
        for item in one.database.inbox.items():
            item.path.unlink()
        url = one.model.seeds()[0]
        one.must("shep", "insert", url)
        good, numbers = one.database.inbox.items(), itertools.count(1)
        bad: list[tuple[str, Path]] = []
        for kind in KINDS:
            wanted = "a directory" if kind == "harvest" else "a file"
            new_name = partial(name_of, kind, numbers)
            things = bad_files.everything(tmp_path / kind, one.db / "inbox", new_name, wanted)
            bad += list(things)
        for what, path in bad:
            if what == "file of mode 0":  # which is no bar to root
                path.unlink()
        (one.db / "inbox" / f".1790000000000-host-{1 << 22}-1.req.tmp").symlink_to(tmp_path)
        one.must("shepherd", "cycle", "--seconds", "1")
        steps = [[step["step"].removeprefix("shep-") for step in cycle["steps"]] for cycle in logbook.cycles(one.db / "log")]
        assert steps[0][:7] == ["merge", "select", "record", "feedback", "plan", "reap", "cork"]
        assert url in one.must("shep", "list")
        assert not any(item.path.exists() for item in good)
        assert {what for what, path in bad if not os.path.lexists(path)} == {"file of mode 0"}
        told = json.loads(one.must("shepherd", "status", "--json"))
        assert sum(told["inbox"].values()) == len(os.listdir(one.db / "inbox")) - 1
        for call in (("shep", "explain", url + "other"), ("shep-dump", "inbox"), ("shep-recover", "--dry-run"), ("shep-check",)):
            assert one.run(*call).returncode in (0, 4), one.run(*call)
