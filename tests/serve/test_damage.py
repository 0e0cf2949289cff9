"""A damaged bucket at the source, or on the way: its document is named, no other one is lost, and there is a way past it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.client import pull
from shepherd.errors import Corruption, UsageError
from shepherd.formats import bucket, stream
from shepherd.formats.tables import Records
from shepherd.readers.choice import Choice
from shepherd.readers.reading import Reading
from shepherd.store.disk import names
from shepherd.store.state.directory import State
from tests.support.liar import Answer, lying, send_answer
from tests.support.programs import call
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of

URL = "http://h3.example/24"
COUNT = 61


def flip(state: State, url: str, at: int) -> None:
    """Four bytes of a bucket are not what was written; `at` counts from its begin, or if negative from its end."""
    oid = next(oid for oid in state.index["oid"][0 : state.index.rows].tolist() if state.objects.get(oid).url == url)
    path = state.path / names.OBJECTS / names.segment(oid >> 32)
    offset = (oid & 0xFFFFFFFF) + at + (state.objects.get(oid).header.length if at < 0 else 0)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:offset] + bytes(byte ^ 0xFF for byte in data[offset : offset + 4]) + data[offset + 4 :])


def damage(home: Path, at: int) -> list[str]:
    """A database with one damaged bucket; the footprints of all documents in their order."""
    state = fill(home, flock(COUNT - 1), segment_bytes=1 << 20).closed()
    flip(state, URL, at)
    return [f"{row['site']:016x}{row['path']:016x}" for batch in Reading(state, Choice()).batches() for row in batch.rows]


@pytest.mark.parametrize(("at", "url"), [(-9, URL), (bucket.HEADER_BYTES + 2, "")], ids=["body", "head"])
def test_one_damaged_bucket_does_not_hide_the_documents_behind_it(tmp_path: Path, at: int, url: str) -> None:
    footprints = damage(tmp_path, at)
    with serving(tmp_path) as served:
        documents = list(pull(served.url, token_of("reader"), damaged="give"))
    assert [one.footprint for one in documents] == footprints
    (broken,) = (one for one in documents if one.damage)
    assert broken.footprint in broken.damage and url in broken.damage and "damaged" in broken.damage
    assert not broken.is_gone and broken.weight == 25
    for part in (broken.body, lambda: broken.bucket):
        with pytest.raises(Corruption, match=broken.footprint):
            part()
    if url:
        assert broken.url == url and broken.links == []
    else:
        with pytest.raises(Corruption, match=broken.footprint):
            _ = broken.url
    assert sum(len(one.body()) > 0 for one in documents if not one.damage) == COUNT - 1


def test_damage_ends_the_pull_and_names_the_document(tmp_path: Path) -> None:
    footprints = damage(tmp_path, -9)
    came = []
    with serving(tmp_path) as served:
        with pytest.raises(Corruption, match="the body is damaged") as told:
            for document in pull(served.url, token_of("reader")):
                came.append(document.footprint)
        with pytest.raises(UsageError, match="damaged"):
            pull(served.url, token_of("reader"), damaged="ignore")  # type: ignore[arg-type]
    assert came == footprints[: len(came)]
    for part in (served.url, URL, footprints[len(came)], f"after {len(came)} of {COUNT} documents", 'damaged="give"'):
        assert part in str(told.value)


# --- on the way -------------------------------------------------------------------------------------------------


def rows_and_data(home: Path) -> tuple[Records, list[bytes]]:
    state = fill(home, flock(COUNT - 1)).closed()
    (batch,) = Reading(state, Choice()).batches()
    return batch.rows, [state.objects.get(oid).data for oid in batch.oid.tolist()]


def sent(rows: Records, data: list[bytes]) -> bytes:
    return b"".join((stream.rows_frame(rows), *data, stream.end_frame(len(rows), sum(map(len, data)))))


def answering(body: bytes, items: int) -> Answer:
    return lambda handler: send_answer(handler, body, Content_Type=stream.MEDIA_TYPE, Shepherd_Items=str(items))


def test_document_damaged_on_the_way_is_fetched_again(tmp_path: Path) -> None:
    rows, data = rows_and_data(tmp_path)
    hurt = [*data[:20], data[20][:-3] + b"***", *data[21:]]
    name = f"{rows[20]['site']:016x}{rows[20]['path']:016x}"
    rows["what"] = 1  # as after a question since a state, which the one of a single document is not
    one = rows[20:21].copy()
    one["what"] = 0
    lies = {"/documents": answering(sent(rows, hurt), COUNT), name: answering(sent(one, data[20:21]), 1)}
    with lying(tmp_path / "db", lies) as liar:
        documents = list(pull(liar.url, "x"))
        assert sum(name in path for path in liar.asked) == 1
    assert [one.bucket.data for one in documents] == data and {one.what for one in documents} == {"added"}


@pytest.mark.parametrize("lie", ["another", "none", "many"])
def test_no_other_document_comes_in_the_place_of_a_damaged_one(tmp_path: Path, lie: str) -> None:
    rows, data = rows_and_data(tmp_path)
    name = f"{rows[20]['site']:016x}{rows[20]['path']:016x}"
    hurt = [*data[:20], data[20][:-3] + b"***", *data[21:]]
    answers: dict[str, Answer] = {
        "another": answering(sent(rows[21:22], data[21:22]), 1),
        "none": lambda handler: send_answer(handler, b'{"error": "no such document"}', 404),
        "many": answering(sent(rows[20:], data[20:]), COUNT),
    }
    lies = {"/documents": answering(sent(rows, hurt), COUNT), name: answers[lie]}
    with lying(tmp_path / "db", lies) as liar:
        documents = list(pull(liar.url, "x", damaged="give"))
    assert [bool(one.damage) for one in documents] == [at == 20 for at in range(COUNT)]


def test_server_that_begins_anew_each_time_is_not_listened_to_for_ever(tmp_path: Path) -> None:
    rows, data = rows_and_data(tmp_path)
    body = b"".join((stream.rows_frame(rows[:40]), *data[:40]))
    with lying(tmp_path / "db", {"/documents": answering(body, COUNT)}) as liar:
        with pytest.raises(Corruption, match=f"more documents than it has announced, after {COUNT} of {COUNT} documents"):
            for _document in pull(liar.url, "x"):
                pass
        assert len(liar.asked) < 9


def test_stream_with_a_damaged_frame_ends_and_says_how_far_it_came(tmp_path: Path) -> None:
    rows, data = rows_and_data(tmp_path)
    frame = bytearray(stream.rows_frame(rows[3:]))
    frame[-1] ^= 1
    body = b"".join((stream.rows_frame(rows[:3]), *data[:3], frame, *data[3:], stream.end_frame(COUNT, sum(map(len, data)))))
    rest = body[len(stream.rows_frame(rows[:3])) + sum(map(len, data[:3])) :]
    lies = {"/documents": answering(body, COUNT), "/documents?after=3": answering(rest, COUNT)}
    with lying(tmp_path / "db", lies) as liar:
        documents = pull(liar.url, "x", damaged="give")
        with pytest.raises(Corruption, match=f"a frame is damaged, after 3 of {COUNT} documents"):
            list(documents)
        assert sum("/documents" in path for path in liar.asked) == 2


def test_body_that_does_not_decode_names_its_document(tmp_path: Path) -> None:
    rows, data = rows_and_data(tmp_path)
    site, path, attributes = int(rows[0]["site"]), int(rows[0]["path"]), [("U", b"http://a.example/")]
    one = bucket.pack(
        site=site,
        path=path,
        time_ms=1,
        state=1,
        attributes=attributes,
        body=b"this is no lz4",
        codec=bucket.Codec.LZ4,
        plain_bytes=99,
    )
    rows["length"][0] = len(one)
    with lying(tmp_path / "db", {"/documents": answering(sent(rows, [one, *data[1:]]), COUNT)}) as liar:
        first = next(iter(pull(liar.url, "x")))
    with pytest.raises(Corruption, match=f"{first.footprint}.*http://a.example/.*does not decode"):
        first.body()


# --- exports ----------------------------------------------------------------------------------------------------


def exported(served: Serving, to: Path, remote: bool) -> tuple[dict[str, Any], str]:
    token = served.home / "token"
    token.touch(0o600)
    token.write_text(token_of("reader"))
    place = ["--from", served.url, "--token-file", str(token)] if remote else ["--db", str(served.home / "db")]
    done = call("shep-export", *place, "--format", "jsonl", "-o", str(to), "--json")
    assert done.returncode == 11
    told: dict[str, Any] = json.loads(done.stdout)
    return told, done.stderr


@pytest.mark.parametrize("at", [-9, bucket.HEADER_BYTES + 2], ids=["body", "head"])
def test_one_damaged_bucket_does_not_end_an_export_from_a_server(tmp_path: Path, at: int) -> None:
    damage(tmp_path, at)
    with serving(tmp_path) as served:
        here, _ = exported(served, tmp_path / "here", remote=False)
        there, why = exported(served, tmp_path / "there", remote=True)
    assert here == there and here["counts"] == dict.fromkeys(here["counts"], 0) | {"present": COUNT - 1, "damaged": 1}
    for file in (tmp_path / "here").iterdir():
        assert (tmp_path / "there" / file.name).read_bytes() == file.read_bytes()
    assert why.count("skipped: ") == 1 and served.url in why and "document " in why and (URL in why or at > 0)
