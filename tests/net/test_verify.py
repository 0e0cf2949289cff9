"""What a reaper sends is believed only as far as it can be checked: each lie is Corruption, and nothing else happens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from shepherd import urls
from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.tables import JOURNAL, Kind, Reason, Result
from shepherd.net import wire
from shepherd.net.items import Item
from shepherd.net.verify import checked
from tests.golden import segments
from tests.golden.segments import Document
from tests.samples import a_block

PRINTS = urls.Footprints(bytes(range(16)))
URL = urls.parse("http://a.example/x")
NORM, PATH, SITE = PRINTS.of(URL)
ITEM = Item(Kind.PAGE, NORM, PATH, SITE, SITE, SITE)
STORED = bucket.pack(site=SITE, path=PATH, time_ms=1, state=1, attributes=[("U", URL.href.encode())], body=b"hi")
OLD = Document(URL.href.encode(), {}, b"hi", site=SITE, path=PATH)


def result(stored: bytes = STORED, links: bytes = b"", columns: dict[str, int] | None = None) -> wire.Result:
    record = np.zeros(1, JOURNAL)
    values = {"norm": NORM, "path": PATH, "site": SITE, "kind": Kind.PAGE, "result": Result.STORED, "reason": Reason.GATHERED}
    for name, value in (values | (columns or {})).items():
        record[name] = value
    return wire.Result(1, record.tobytes(), stored, links, "", b"", 0)


def test_honest_answer_passes() -> None:
    links = contrib.encode(a_block())
    answer = checked(result(links=links), ITEM, 9)
    assert (answer.bucket, answer.result, int(answer.record["qkey"][0])) == (STORED, Result.STORED, 9)
    assert answer.links is not None and len(answer.links) == 5


@pytest.mark.parametrize("columns", [{"norm": 1}, {"path": 1}, {"site": 1}, {"kind": 2}, {"result": 99}, {"reason": 99}])
def test_record_about_something_else(columns: dict[str, int]) -> None:
    with pytest.raises(Corruption):
        checked(result(columns=columns), ITEM, 9)


@pytest.mark.parametrize(
    "stored",
    [
        STORED + b"x",
        STORED[:-1],
        bucket.thin(1, PATH, 1, 1, URL.href),
        bucket.thin(SITE, 1, 1, 1, URL.href),
        bucket.pack(site=SITE, path=PATH, time_ms=1, state=1, attributes=[("T", b"x")]),
        bucket.pack(site=SITE, path=PATH, time_ms=1, state=1, attributes=[("U", b"http://\xe9/")]),
        segments.v2(OLD),
        segments.v30(OLD),
    ],
    ids=["longer", "shorter", "another site", "another path", "no URL", "URL beyond ASCII", "v2", "v3.0"],
)
def test_bucket_that_is_not_what_was_asked_for(stored: bytes) -> None:
    with pytest.raises(Corruption):
        checked(result(stored), ITEM, 9)


@pytest.mark.parametrize(
    "name", [b"http://[", b"a.example", b"", b"http://a.example/", b"http://\xe9", b"ftp://a.example", b"http://A"]
)
def test_contribution_of_a_site_that_is_none(name: bytes) -> None:
    block = dataclasses.replace(a_block(), names=[name, b"http://b.example"])
    with pytest.raises(Corruption):
        checked(result(links=contrib.encode(block)), ITEM, 9)


@pytest.mark.parametrize("text", [b"", b"x", b".evil.example/", b"/\xe9", b"/ ", b"/\n"])
def test_contribution_of_a_path_that_is_none(text: bytes) -> None:
    block = dataclasses.replace(a_block(1), texts=[text])
    with pytest.raises(Corruption):
        checked(result(links=contrib.encode(block)), ITEM, 9)
