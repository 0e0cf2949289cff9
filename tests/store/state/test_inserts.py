"""URLs left as contributions: written, found sound or not, and taken by a merge like requests of the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shepherd.errors import Corruption
from shepherd.filters import Filter, parse_filter
from shepherd.formats import contrib
from shepherd.formats.block_builder import BLOCK_URLS, BlockBuilder
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.vocabulary import ContribFlag
from shepherd.store.state import inserts
from shepherd.store.state.inbox import CONTRIB, REQUESTS, InboxItem
from shepherd.store.state.inserts import InsertDraft, Trailer
from shepherd.urls import Footprints, parse
from tests.support import inboxes
from tests.support.inboxes import KEY, Taken
from tests.support.page_states import ROOT

FILTER = parse_filter("strip utm_*\nreject ext zip\nset section feed host b.example\n")
URLS = ("http://a.example/", "https://www.a.example/x?y=1", "http://b.example/")


def name(number: int) -> str:
    return f"179000000000{number}-host-77-{number}"


def leave(home: Path, urls: Sequence[str], number: int = 1, filters: Filter = FILTER, key: bytes = KEY, **said: int) -> InboxItem:
    with InsertDraft(home, name(number), key, filters, "me@here") as draft:
        for url in map(parse, urls):
            draft.add(url.site, url.href, weight=said.get("weight", 7), section=said.get("section"))
        return InboxItem(name(number), draft.keep(), CONTRIB)


def ask(home: Path, number: int, *requests: Mapping[str, object]) -> InboxItem:
    path = home / f"{name(number)}.{REQUESTS}"
    path.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in requests))
    return InboxItem(name(number), path, REQUESTS)


def words(taken: Taken) -> tuple[list[str], list[int], list[int], list[str]]:
    return taken.urls, taken.weights, taken.sections, taken.bad


def test_contributions_are_taken_as_requests_of_the_same_words(tmp_path: Path) -> None:
    requests = ({"op": "insert", "url": url, "weight": 7} for url in URLS)
    left = words(inboxes.take([leave(tmp_path, URLS)], FILTER))
    assert left == words(inboxes.take([ask(tmp_path, 2, *requests)], FILTER))
    assert left == (list(URLS), [7, 7, 7], [0, 0, 8], [])


def test_item_says_who_left_how_many(tmp_path: Path) -> None:
    assert inserts.inspect(leave(tmp_path, URLS).path, KEY) == Trailer(3, "me@here")


def test_golden_item_reads_as_it_was_written() -> None:
    """tests/golden/README.md says what it is."""
    path = ROOT / "tests" / "golden" / "inserted.contrib"
    assert inserts.inspect(path, KEY) == Trailer(4, "user@host")
    taken = inboxes.take([InboxItem(name(1), path, CONTRIB)], FILTER)
    assert (taken.urls, taken.weights, taken.sections) == ([*URLS, "http://a.example/pinned"], [7, 7, 7, 60_000], [0, 0, 8, 3])


def test_draft_without_keep_leaves_nothing(tmp_path: Path) -> None:
    with InsertDraft(tmp_path, name(1), KEY, FILTER, "me") as draft:
        draft.add("http://a.example", "http://a.example/", weight=7)
    assert list(tmp_path.iterdir()) == []


def test_more_urls_than_a_block_are_several_blocks(tmp_path: Path) -> None:
    urls = [f"http://a.example/{n}" for n in range(BLOCK_URLS + 2)]
    item = leave(tmp_path, urls)
    assert [frame.records for frame in inserts.frames(item.path)] == [BLOCK_URLS, 2]
    assert inserts.inspect(item.path, KEY).urls == len(urls)
    assert inboxes.take([item], FILTER).urls == urls


def test_changed_filter_judges_strips_and_sections_anew(tmp_path: Path) -> None:
    urls = ("http://a.example/x?s=1&t=2", "http://a.example/no.pdf", "http://b.example/")
    changed = parse_filter("strip s\nreject ext pdf\nset section data host a.example\n")
    taken = inboxes.take([leave(tmp_path, urls)], changed)
    assert words(taken) == (
        ["http://a.example/x?t=2", "http://b.example/"],
        [7, 7],
        [9, 0],
        [f"{name(1)}.contrib URL 2: http://a.example/no.pdf is rejected by filter line 2: reject ext pdf"],
    )
    said = inboxes.take([leave(tmp_path, urls, 2, section=3)], changed)
    assert said.sections == [3, 3]  # an operator's word, whatever the filter says


def test_later_of_an_insert_and_a_deletion_holds_across_kinds(tmp_path: Path) -> None:
    delete = {"op": "delete", "url": "https://a.example/x?y=1"}
    before, inserted, after = ask(tmp_path, 1, delete), leave(tmp_path, URLS, 2), ask(tmp_path, 3, delete)
    taken = inboxes.take([before, inserted], FILTER)
    assert (taken.urls, len(taken.edits)) == (list(URLS), 0)
    taken = inboxes.take([inserted, after], FILTER)
    assert (taken.urls, len(taken.edits)) == ([URLS[0], URLS[2]], 1)
    taken = inboxes.take([before, inserted, after], FILTER)
    assert (taken.urls, len(taken.edits)) == ([URLS[0], URLS[2]], 2)


def test_purge_keeps_an_insert_out(tmp_path: Path) -> None:
    purge = {"op": "delete", "url": URLS[0], "purge": True}
    for items in ([leave(tmp_path, URLS, 1), ask(tmp_path, 2, purge)], [ask(tmp_path, 3, purge), leave(tmp_path, URLS, 4)]):
        taken = inboxes.take(items, FILTER)
        assert (taken.urls, taken.purged, len(taken.edits)) == (list(URLS[1:]), [URLS[0]], 1)
        assert taken.bad == [f"{URLS[0]} is not inserted: another request purges it"]


def damaged(data: bytes, how: str) -> bytes:
    trailer = inserts.pack_trailer(Trailer(3, "me@here"))
    assert data.endswith(trailer)
    frames = data.removesuffix(trailer)
    return {
        "cut off": data[:-1],
        "without its trailer": frames,
        "with another number": frames + inserts.pack_trailer(Trailer(4, "me@here")),
        "with more behind it": data + trailer,
        "with another frame": pack_frame(FrameKind.PLAN, 0, b"") + data,
        "with a trailer of nobody": frames + pack_frame(FrameKind.TRAILER, 3, b"{}"),
        "empty": b"",
        "altered": data[:99] + bytes([data[99] ^ 1]) + data[100:],
        "not frames": b"http://a.example/\n",
    }[how]


HARM = (
    *("cut off", "without its trailer", "with another number", "with more behind it", "with another frame"),
    *("with a trailer of nobody", "empty", "altered", "not frames"),
)


@pytest.mark.parametrize("how", HARM)
def test_damage_is_data_with_the_item_as_its_path(tmp_path: Path, how: str) -> None:
    path = leave(tmp_path, URLS).path
    path.write_bytes(damaged(path.read_bytes(), how))
    with pytest.raises(Corruption) as caught:
        inserts.inspect(path, KEY)
    assert caught.value.path == path
    assert str(path) not in caught.value.what


@pytest.mark.parametrize("how", HARM)
def test_damaged_item_is_reported_and_nothing_of_it_taken(tmp_path: Path, how: str) -> None:
    item, other = leave(tmp_path, URLS), leave(tmp_path, ["http://c.example/"], 2)
    item.path.write_bytes(damaged(item.path.read_bytes(), how))
    with pytest.raises(Corruption):
        inserts.inspect(item.path, KEY)
    taken = inboxes.take([item, other], FILTER)
    assert taken.urls == ["http://c.example/"]
    (told,) = taken.bad
    assert told.startswith(f"{name(1)}.contrib") and told.endswith("insert its URLs again, and remove it")


def test_item_of_another_database_is_not_taken(tmp_path: Path) -> None:
    item = leave(tmp_path, URLS, key=bytes(16))
    (told,) = inboxes.take([item], FILTER).bad
    assert "another database" in told


INSERTED = int(ContribFlag.INSERTED | ContribFlag.OWN_WEIGHT)
ILL = (
    *(("://", "/x", INSERTED), ("http://", "/x", INSERTED), ("x://a", "/x", INSERTED), ("http://[", "/x", INSERTED)),
    *(("http://a b", "/x", INSERTED), ("http://a.example/", "/x", INSERTED), ("http://A.example", "/x", INSERTED)),
    *(
        ("http://a.example", path, INSERTED)
        for path in ("", "x", "/\n", "/a\n/b", "/x?", "/x#y", "/a/../b", "/%2e", "/<", "/" * 2001)
    ),
    *(("http://a.example", "/x", flags) for flags in (0xFFFF, INSERTED | int(ContribFlag.CANONICAL), INSERTED | 1 << 15)),
)


def leave_ill(home: Path, site: str, path: str, flags: int, version: int) -> InboxItem:
    """An item whose checksums and footprints are right, with a good URL before another."""
    blocks = BlockBuilder(Footprints(KEY), version)
    blocks.add("http://good.example", "/a", 7, 0, INSERTED)
    blocks.add(site, path, 7, 0, flags)
    block = blocks.block()
    item = home / f"{name(1)}.{CONTRIB}"
    item.write_bytes(pack_frame(FrameKind.CONTRIB, 2, contrib.encode(block)) + inserts.pack_trailer(Trailer(2, "me")))
    return InboxItem(name(1), item, CONTRIB)


@pytest.mark.parametrize("version", [FILTER.version, 1])
@pytest.mark.parametrize(("site", "path", "flags"), ILL)
def test_item_with_what_is_no_url_is_reported_and_the_others_are_taken(
    tmp_path: Path, site: str, path: str, flags: int, version: int
) -> None:
    taken = inboxes.take([leave_ill(tmp_path, site, path, flags, version), leave(tmp_path, ["http://c.example/"], 2)], FILTER)
    assert taken.urls == ["http://c.example/"]
    (told,) = taken.bad
    assert told.startswith(f"{name(1)}.contrib at 0: a URL") and told.endswith("insert its URLs again, and remove it")


def test_odd_paths_in_their_normalised_spelling_are_sound(tmp_path: Path) -> None:
    urls = (
        "http://a.example/.well-known/x",
        "http://a.example//x?'",
        "http://a.example/a|b?c{d}??",
        "http://[::1]:81/%20%2F?/../x",
    )
    spelt = [parse(url).href for url in urls]
    assert inboxes.take([leave(tmp_path, spelt)], FILTER).urls == spelt


def test_url_that_the_filter_cannot_read_is_a_fault_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that was altered after it was found sound."""
    monkeypatch.setattr(inserts, "is_site", lambda name: True)
    taken = inboxes.take([leave_ill(tmp_path, "http://[", "/x", INSERTED, 1)], FILTER)
    assert (taken.urls, taken.bad) == (["http://good.example/a"], [f"{name(1)}.contrib URL 2: http://[/x is not a URL"])
