"""What a reaper sends is believed only as far as it can be checked: each lie is Corruption, and nothing else happens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec import structs

from shepherd import robots
from shepherd.dispatch.verify import MAX_SKEW_MS, Answer
from shepherd.errors import Corruption
from shepherd.formats import bucket, contrib
from shepherd.formats.tables import ContribFlag, JournalFlag, Kind, Reason, Result
from shepherd.wire import messages as wire
from tests.dispatch import results as answers
from tests.dispatch.results import ASKED, ASKED_MS, ITEM, NOW_MS, PATH, QKEY, RECORD, SITE, URL, a_block, a_bucket, a_result
from tests.golden import segments
from tests.golden.segments import Document

OLD = Document(URL.href.encode(), {}, b"hi", site=SITE, path=PATH)


def checked(message: wire.FetchResult) -> Answer:
    verifier, _contributions = answers.a_verifier()
    return verifier.checked(message, ASKED, 4, NOW_MS)


def test_honest_answer_is_accepted() -> None:
    answer = checked(a_result())
    assert (answer.bucket, answer.result, answer.record.qkey, answer.record.reaper) == (a_bucket(), Result.STORED, QKEY, 4)
    assert answer.links is not None and answer.links.texts == a_block().texts


@pytest.mark.parametrize(
    "columns",
    [
        {"norm": 1},
        {"path": 1},
        {"site": 1},
        {"kind": Kind.ROBOTS},
        {"result": 99},
        {"result": Result.RESOLVED},
        {"result": Result.UNCHANGED},
        {"result": Result.SOFT},
        {"reason": 99},
        {"flags": 0},
        {"flags": int(JournalFlag.CONTACTED | JournalFlag.HOP)},
        {"flags": 1 << 15 | int(JournalFlag.CONTACTED)},
        {"status": 1000},
        {"digest": 1},
        {"body_bytes": 1},
        {"valid_s": 0xFFFFFFFF},
        {"wire_bytes": 0xFFFFFFFF},  # would have to be paid for, where bytes a second are limited
    ],
    ids=str,
)
def test_record_with_a_false_field_is_corruption(columns: dict[str, int]) -> None:
    with pytest.raises(Corruption):
        checked(a_result(RECORD._replace(**columns)))


@pytest.mark.parametrize("size", [0, 127, 129])
def test_record_of_another_length_is_corruption(size: int) -> None:
    with pytest.raises(Corruption):
        checked(structs.replace(a_result(), record=bytes(size)))


def test_times_beyond_our_own_are_clamped() -> None:
    for start_ms, end_ms in ((0, 1), (-1, -1), (1 << 60, 1 << 61), (NOW_MS + 1, 0)):
        record = checked(a_result(RECORD._replace(start_ms=start_ms, end_ms=end_ms))).record
        assert ASKED_MS <= record.start_ms <= record.end_ms <= NOW_MS


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        a_bucket() + b"x",
        a_bucket()[:-1],
        a_bucket(site=1),
        a_bucket(path=1),
        a_bucket(state=6),
        a_bucket(time_ms=ASKED_MS - MAX_SKEW_MS - 1),
        a_bucket(time_ms=NOW_MS + MAX_SKEW_MS + 1),
        a_bucket(attributes=[("D", answers.DIGEST)]),
        a_bucket(attributes=[("U", URL.href.encode())]),
        a_bucket(attributes=[("U", b"http://a.example/y"), ("D", answers.DIGEST)]),
        a_bucket(attributes=[("U", b"http://\xe9/"), ("D", answers.DIGEST)]),
        a_bucket(attributes=[("U", URL.href.encode()), ("D", bytes(32))]),
        a_bucket(body=b"longer than that"),
        bucket.tombstone(SITE, PATH, ASKED_MS, answers.STATE, URL.href, "nobody"),
        segments.v2(OLD),
        segments.v30(OLD),
    ],
    ids=lambda stored: str(len(stored)),
)
def test_bucket_of_another_request_is_corruption(stored: bytes) -> None:
    with pytest.raises(Corruption):
        checked(a_result(bucket=stored))


def test_unchanged_is_accepted_only_for_a_document_that_we_have() -> None:
    record = RECORD._replace(result=Result.UNCHANGED, reason=Reason.UNCHANGED)
    verifier, _contributions = answers.a_verifier()
    known = dataclasses.replace(ASKED, item=ITEM._replace(digest=RECORD.digest))
    assert verifier.checked(a_result(record, bucket=b""), known, 4, NOW_MS).result == Result.UNCHANGED
    with pytest.raises(Corruption):
        verifier.checked(a_result(record, bucket=b""), ASKED, 4, NOW_MS)


@pytest.mark.parametrize(
    "name", [b"http://[", b"a.example", b"", b"http://a.example/", b"http://\xe9", b"ftp://a.example", b"http://A"]
)
def test_contribution_of_an_invalid_site_is_corruption(name: bytes) -> None:
    block = a_block()
    block = dataclasses.replace(block, names=[name, *block.names[1:]])
    with pytest.raises(Corruption):
        checked(a_result(links=contrib.encode(block)))


@pytest.mark.parametrize("text", [b"", b"x", b".evil.example/", b"/\xe9", b"/ ", b"/\n", b"/other", b"/" + b"x" * 2000])
def test_contribution_of_an_invalid_or_another_path_is_corruption(text: bytes) -> None:
    block = a_block()
    with pytest.raises(Corruption):
        checked(a_result(links=contrib.encode(dataclasses.replace(block, texts=[text, *block.texts[1:]]))))


def test_contribution_of_an_empty_path_is_corruption() -> None:
    block = a_block(answers.HREFS[:1])
    forged = dataclasses.replace(block, texts=[b""], path=np.array([answers.PRINTS.half("")], "<u8"))
    with pytest.raises(Corruption):
        checked(a_result(links=contrib.encode(forged)))


@pytest.mark.parametrize("text", [b"/a/../b", b"/./b", b"/%2e%2E/b", b"/a\\b", b'/"', b"/a?<c>", b"/a\n/b", b"/a?", b"/a#b"])
def test_contribution_of_a_path_that_is_not_normalised_is_corruption(text: bytes) -> None:
    """Its footprint is right: whoever has the key can make any."""
    block = a_block()
    path = np.array([answers.PRINTS.half(text.decode()), *block.path[1:].tolist()], "<u8")
    forged = dataclasses.replace(block, texts=[text, *block.texts[1:]], path=path)
    with pytest.raises(Corruption):
        checked(a_result(links=contrib.encode(forged)))


@pytest.mark.parametrize(
    "changed",
    [
        {"norm": np.arange(4, dtype="<u8")},
        {"sites": np.arange(3, dtype="<u8")},
        {"norms": np.arange(3, dtype="<u8")},
        {"parent_weight": np.full(4, answers.WEIGHT + 1, "<u2")},
        {"flags": np.full(4, ContribFlag.INSERTED, "<u2")},
        {"flags": np.full(4, ContribFlag.PINNED, "<u2")},
        {"flags": np.full(4, ContribFlag.OWN_WEIGHT, "<u2")},
        {"parents_site": np.array([1], "<u8")},
        {"parents_path": np.array([1], "<u8")},
        {"filter_version": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_link_with_a_false_field_is_corruption(changed: dict[str, object]) -> None:
    block = dataclasses.replace(a_block(), **changed)  # type: ignore[arg-type]
    with pytest.raises(Corruption):
        checked(a_result(links=contrib.encode(block)))


@pytest.mark.parametrize(
    "changed",
    [
        {"rules": b"User-agent: *"},
        {"rules_status": 200},
        {"rules": bytes(robots.MAX_BYTES + 1)},
        {"location": "http://a.example/" + "x" * 2000},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_fields_that_were_not_asked_for_are_corruption(changed: dict[str, object]) -> None:
    with pytest.raises(Corruption):
        checked(structs.replace(a_result(), **changed))
