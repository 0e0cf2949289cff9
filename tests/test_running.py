"""docs/running.md: the settings that it advises hold together, and what it says of sizes is so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from shepherd import config
from shepherd.formats import bucket, tables

PAGE = Path(__file__).resolve().parents[1] / "docs" / "running.md"


def test_settings_for_a_server_are_consistent(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / config.FILE).write_text(block)
    found = config.load(tmp_path)
    assert found.identity.contact
    assert found.cleanup.size_bytes <= found.reap.size_bytes, "a cleanup is due before a reap must end"
    assert found.select.space_bytes <= found.cleanup.size_bytes
    assert found.politeness == config.Politeness(), "no profile is less polite than the defaults"


@pytest.mark.parametrize(
    ("what", "size"),
    [
        ("a URL, gathered or not", sum(np.dtype(t).itemsize for t in tables.INDEX.values())),
        ("its bucket before it is gathered", bucket.HEADER_BYTES),
        ("a site", sum(np.dtype(t).itemsize for t in tables.SITES.values())),
        ("a server", sum(np.dtype(t).itemsize for t in tables.SERVERS.values())),
        ("a planned page, while it is reaped", tables.PLAN.itemsize),
        ("a contact", tables.JOURNAL.itemsize),
    ],
)
def test_size_in_the_table_is_that_of_the_format(what: str, size: int) -> None:
    told = re.search(rf"^\| {re.escape(what)} \| (\d+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None and int(told.group(1)) == size
