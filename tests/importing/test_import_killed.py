"""shep-import killed at every step between two commits, and run again: rows and buckets are those of an undisturbed one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd.store.check import check
from tests.importing.crawl import ONE, Home, crawl, made
from tests.support import sampling
from tests.support.warcs import Warc

POINTS = (
    "sync:.harvest.tmp/seg.00000001:1",  # nothing is taken in
    "rename:000002.tmp:1",  # the URLs wait in the inbox
    "rename:000003.merged:1",  # they are merged
    "rename:.harvest.tmp:2",  # they are rows
    "rename:000004.tmp:1",  # the documents wait in the inbox
    "rename:.harvest.tmp:3",  # they are in
    "rmdir:.harvest:3",  # all is in
)


def several() -> Warc:
    warc = crawl()
    warc.revisit(ONE, "2020-03-01T00:00:00Z", ONE, "2020-02-03T04:05:06Z")
    return warc


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = made(tmp_path_factory.mktemp("undisturbed"))
    home.run(home.write(several().data))
    return home


@pytest.mark.parametrize("point", sampling.of_the_day(POINTS, 3, "killed import"))
def test_killed_import_neither_loses_nor_doubles_anything(tmp_path: Path, undisturbed: Home, point: str) -> None:
    home = made(tmp_path)
    name = home.write(several().data)
    home.run(name, fail=f"{point}=kill", status=-9)
    assert [fault for fault in check.walk(home.db) if not fault.note] == []
    home.run(name, status=4 if point == POINTS[-1] else 0)
    assert home.facts() == undisturbed.facts()
    assert buckets(home) == buckets(undisturbed)
    home.run(name, status=4)
    assert os.listdir(home.path / "db" / "inbox") == []


def buckets(home: Home) -> int:
    state = home.db.furthest()
    return sum(1 for segment in state.segments() for _bucket in state.objects.scan(segment))
