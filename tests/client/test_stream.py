"""What readers pull is what the leased state has: each document once, byte for byte, also in parts and after a cut."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.client import Document, Server, pull
from shepherd.client.server import LeaseOver
from shepherd.errors import Corruption, PeerLost, UsageError
from shepherd.formats import stream
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import Flag, RowType
from shepherd.readers.choice import Choice
from shepherd.readers.reading import Reading
from shepherd.store.disk.names import StateName
from shepherd.store.state.directory import State
from shepherd.urls import parse
from tests.client.cutting import cutting
from tests.support.segment_states import Sheep, fill, publish
from tests.support.serving import Serving, flock, serving, token_of
from tests.worlds import NOW, PRINTS


def expected(state: State, choice: Choice) -> list[tuple[str, bytes]]:
    """Footprint and bucket of each document, read beside the server."""
    found = []
    for batch in Reading(state, choice).batches():
        for row, oid in zip(batch.rows, batch.oid.tolist(), strict=True):
            data = state.objects._read(oid, int(row["length"]))
            found.append((f"{row['site']:016x}{row['path']:016x}", data))
    return found


def pulled(served: Serving, **choice: object) -> list[Document]:
    return list(pull(served.url, token_of("reader"), **choice))  # type: ignore[arg-type]


def raw(document: Document) -> bytes:
    return document.bucket._data


def test_stream_is_the_state(served: Serving) -> None:
    documents = pulled(served)
    assert [(one.footprint, raw(one)) for one in documents] == expected(served.database.closed(), Choice())
    assert len(documents) == 301  # one root page for both sites, neither robots file nor redirect
    root = next(one for one in documents if one.url.endswith(".example/"))
    assert (root.url, root.body(), root.weight, root.status, root.what) == (
        "https://www.h0.example/", b"the root of www", 9, 200, "present",
    )  # fmt: skip
    assert root.gathered == NOW - 60 and root.content_type == "" and root.headers == []


def test_pull_leaves_no_lease_behind(served: Serving) -> None:
    documents = pull(served.url, token_of("reader"))
    next(iter(documents))
    assert documents.state == 2 and documents.items == 301
    pulled(served)
    assert served.as_client().states()["states"][-1]["state"] == 2
    assert served.database.leases.all() == []


@pytest.mark.parametrize(
    ("choice", "same"),
    [
        ({"best": 20}, Choice(best=20)),
        ({"best": 0}, Choice(best=0)),
        ({"weight": 280}, Choice(weight=280)),
        ({"section": "html"}, Choice(sections=(1,))),
        ({"section": "html,text", "weight": 100, "best": 50}, Choice(sections=(1, 2), weight=100, best=50)),
        ({"robots": True, "redirects": True}, Choice(robots=True, redirects=True)),
        ({"part": "2/3"}, Choice(part=1, parts=3)),
    ],
)
def test_choice_over_the_network_is_the_local_one(served: Serving, choice: dict[str, object], same: Choice) -> None:
    assert [(one.footprint, raw(one)) for one in pulled(served, **choice)] == expected(served.database.closed(), same)


def test_parts_are_disjoint_and_complete(served: Serving) -> None:
    parts = [pulled(served, part=f"{n}/5") for n in range(1, 6)]
    assert sorted(one.footprint for part in parts for one in part) == sorted(one.footprint for one in pulled(served))
    sites = [{one.columns["norm"] for one in part} for part in parts]
    assert sum(map(len, sites)) == len(set.union(*sites))


def test_count_is_what_comes(served: Serving) -> None:
    with served.as_client() as server, server.leased("test") as lease:
        found = server.count(lease, section="html", best=10)
        assert found == {"state": 2, "items": 10, "gone": 0, "bucket_bytes": found["bucket_bytes"]}
    documents = pulled(served, section="html", best=10)
    assert found["bucket_bytes"] == sum(len(raw(one)) for one in documents)


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        ("http://h1.example/1", "http://h1.example/1"),
        ("https://h1.example/1#part", "http://h1.example/1"),  # the same document by its equivalent site
        ("http://h0.example/", "https://www.h0.example/"),  # the representative
        ("http://h0.example/robots.txt", "http://h0.example/robots.txt"),
        ("http://h1.example/moved", "http://h1.example/moved"),
    ],
)
def test_single_document_is_the_one_that_was_named(served: Serving, asked: str, url: str) -> None:
    with served.as_client() as server, server.leased("test") as lease:
        found = one_document(server, lease.name, {"url": asked})
        assert found.url == url
        assert raw(one_document(server, lease.name, {"footprint": found.footprint})) == raw(found)


def test_footprint_is_answered_with_the_row_of_the_stream(served: Serving) -> None:
    streamed = next(one for one in pulled(served) if one.url == "https://www.h0.example/")
    with served.as_client() as server, server.leased("test") as lease:
        for url in ("http://h0.example/", "https://www.h0.example/"):
            _norm, path, site = PRINTS.of(parse(url))
            found = one_document(server, lease.name, {"footprint": f"{site:016x}{path:016x}"})
            assert (found.url, raw(found)) == (streamed.url, raw(streamed))


def one_document(server: Server, lease: str, parameters: dict[str, object]) -> Document:
    with server.open("GET", f"/v1/leases/{lease}/document", parameters) as answer:
        items = list(stream.items(io.BytesIO(answer.raw.read()).read))
    assert len(items) == 1
    return Document(items[0])


def test_unknown_document_is_refused(served: Serving) -> None:
    with served.as_client() as server, server.leased("test") as lease:
        for parameters in (
            {"url": "http://h0.example/unheard-of"},
            {"footprint": "0" * 32},
            {"url": "http://elsewhere.example/"},
        ):
            with pytest.raises(UsageError, match="404: no such document"):
                one_document(server, lease.name, dict(parameters))
        for wrong in ({"url": "mailto:x"}, {"footprint": "xyz"}, {}, {"url": "http://h1.example/1", "footprint": "0" * 32}):
            with pytest.raises(UsageError, match="400"):
                one_document(server, lease.name, dict(wrong))


@pytest.mark.parametrize("cuts", [[1], [7_000, 1, 200, 30_000], [28, 29, 100]])
def test_cut_connection_neither_loses_nor_repeats_a_document(served: Serving, cuts: list[int]) -> None:
    with cutting(served.url, cuts) as relay:
        documents = list(pull(relay.url, token_of("reader")))
        assert relay.cuts == len(cuts)
    assert [(one.footprint, raw(one)) for one in documents] == expected(served.database.closed(), Choice())


def test_pull_gives_up_on_a_server_that_is_gone_for_good(served: Serving) -> None:
    with cutting(served.url, [20_000], then_dead=True) as relay, pytest.raises(PeerLost, match="server does not answer"):
        list(pull(relay.url, token_of("reader"), tries=3))


# --- what is new since ------------------------------------------------------------------------------------------


def succeed(home: Path, number: int, flock_: list[Sheep], keep: int = 1) -> None:
    """The next state has these documents; older ones go where nobody holds them."""
    from shepherd.store.state.database import Database

    with Database(home / "db").writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(number, CLOSED), NOW)
        publish(builder, flock_, 1500)
        writer.publish(builder, {"phase": "test"})
        writer.prune(keep, int(time.time()))


def test_change_is_seen_after_the_older_state_is_deleted(tmp_path: Path) -> None:
    before = flock(60)
    fill(tmp_path, before)
    after = [*before[2:], Sheep("http://new.example/", now=b"new", weight=3)]
    after[0] = Sheep(after[0].url, now=b"changed", weight=after[0].weight, section=after[0].section)
    with serving(tmp_path) as served:
        first = pull(served.url, token_of("reader"))
        had = {one.footprint: raw(one) for one in first}
        assert first.state == 2
        succeed(tmp_path, 3, after)
        assert [name.number for name in served.database.states()] == [3]
        told = {one.footprint: one for one in pulled(served, since=2)}
        now = {one.footprint: raw(one) for one in pulled(served)}
        assert sorted(one.what for one in told.values()) == ["added", "changed", "gone", "gone"]
        for footprint, one in told.items():
            if one.is_gone:
                del had[footprint]
                with pytest.raises(UsageError, match="gone"):
                    _ = one.url
            else:
                had[footprint] = raw(one)
        assert had == now
        assert pulled(served, since=3) == []
        assert served.as_client().states()["since"] == [2, 3]
        with pytest.raises(LeaseOver, match="410: the content of state 1 is not known any more"):
            pulled(served, since=1)


@pytest.mark.parametrize(
    ("becomes", "told"),
    [
        ({"weight": 1}, {}),
        ({"flags": Flag.REDIRECT}, {"http": "added", "https": "gone"}),
        ({"type": RowType.ERROR}, {"http": "added", "https": "gone"}),
        ({"now": b"another"}, {"https": "changed"}),
        (None, {"http": "added", "https": "gone"}),
    ],
)
def test_reader_follows_a_document_whose_representative_changes(
    tmp_path: Path, becomes: dict[str, Any] | None, told: dict[str, str]
) -> None:
    """Also where the document has two rows from then on."""
    http, https = (
        Sheep("http://h0.example/", now=b"the root", weight=5),
        Sheep("https://www.h0.example/", now=b"the root", weight=9),
    )
    fill(tmp_path, [http, https])
    scheme = {"{2:016x}{1:016x}".format(*one.key): parse(one.url).site.partition(":")[0] for one in (http, https)}
    with serving(tmp_path) as served:
        had = {one.footprint: raw(one) for one in pulled(served)}
        succeed(tmp_path, 3, [http] if becomes is None else [http, replace(https, **becomes)])
        found = pulled(served, since=2)
        assert {scheme[one.footprint]: one.what for one in found} == told
        for one in found:
            had.pop(one.footprint, None)
        had |= {one.footprint: raw(one) for one in found if not one.is_gone}
        assert had == {one.footprint: raw(one) for one in pulled(served)} and len(had) == 1


def test_damaged_bucket_ends_the_pull(tmp_path: Path) -> None:
    fill(tmp_path, flock(30), segment_bytes=1 << 20)
    segment = next((tmp_path / "db" / "state" / "000002" / "objects").iterdir())
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.chmod(0o644)
    segment.write_bytes(data)
    with serving(tmp_path) as served, pytest.raises(Corruption):
        pulled(served)
