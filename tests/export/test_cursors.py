"""Exports that continue: nothing new is missed and nothing half-written passes for whole, wherever a run is cut off."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.config import Config, Export
from shepherd.errors import Locked
from shepherd.export.output import Output
from shepherd.store.disk import locks, names
from shepherd.store.state import cursors
from tests.support.export_pages import WARES, export, lines, page
from tests.support.export_pages import names as names_in
from tests.support.page_states import Herd, Page, add_state, make_herd
from tests.worlds import DAY, NOW

FIRST = list(WARES[:4])
CHANGED = page(WARES[0].url, b"<p>second version</p>")
AGAIN = page(WARES[0].url, b"<p>third version</p>")


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    return make_herd(tmp_path / "herd", FIRST, (), ())


def outcomes(out: Path, number: int) -> dict[str, str]:
    """The outcome of every document, by URL, or by footprint where the URL is not known."""
    found = lines(out / f"shepherd-{number:06d}-00000.jsonl")
    return {one["url"] or one["footprint"]: one["what"] for one in found}


def run(herd: Herd, out: Path, *arguments: str, status: int = 0, fail: str = "", cf: Path | None = None) -> None:
    out.mkdir(exist_ok=True)
    export(herd, out, "--format", "jsonl", "--cursor", "feed", *arguments, status=status, fail=fail, cf=cf)


def cursor_state(herd: Herd) -> int | None:
    """The state to which the cursor has come."""
    at = cursors.read(herd.db / "log", "feed")
    return at.state if at is not None else None


def test_next_export_has_exactly_what_is_new(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(herd, out)
    assert set(outcomes(out, 2)) == {one.url for one in FIRST}
    run(herd, out, status=4)
    new = page("https://a.example/new")
    add_state(herd, [CHANGED, *FIRST[1:3], new], now=NOW + DAY)
    with herd.store.writing("test") as writer:
        assert writer.prune(1, NOW + DAY) == [1, 2]  # the state of the cursor is gone: its keys are enough
    run(herd, out)
    seen = outcomes(out, 3)
    assert {seen.pop(url) for url in (CHANGED.url,)} == {"changed"} and seen.pop(new.url) == "added"
    assert list(seen.values()) == ["gone"]
    assert cursor_state(herd) == 3


def test_change_of_weights_makes_no_page_gone(tmp_path: Path) -> None:
    """Root pages are kept for every site of a class: which of them is exported must not depend on what they weigh."""
    roots = [page(f"{spelt}a.example/") for spelt in ("http://", "https://", "http://www.", "https://www.")]
    herd, out = make_herd(tmp_path / "herd", roots, (), ()), tmp_path / "out"
    run(herd, out)
    assert len(outcomes(out, 2)) == 1
    for heaviest in roots:
        weighed = [replace(one, columns=one.columns | {"weight": 9 if one is heaviest else 3}) for one in roots]
        number = add_state(herd, weighed, now=NOW + DAY)
        run(herd, out)
        assert outcomes(out, number) == {}
    assert cursor_state(herd) == number


def test_cursor_refuses_another_choice(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(herd, out, "--section", "html")
    add_state(herd, [CHANGED], now=NOW + DAY)
    run(herd, out, "--section", "pdf", status=2)
    run(herd, out, "--section", "html")


@pytest.mark.parametrize("selector", [("--glob", "*"), ("--newer", "30d"), (FIRST[0].url,)])
def test_cursor_that_could_never_continue_is_refused(herd: Herd, tmp_path: Path, selector: tuple[str, ...]) -> None:
    run(herd, tmp_path / "out", *selector, status=2)
    assert cursor_state(herd) is None and names_in(tmp_path / "out") == []


KINDS = [
    (("--format", "jsonl"), ("--format", "jsonl", "--no-body")),
    (("--format", "jsonl", "--no-body"), ("--format", "jsonl")),
    (("--format", "jsonl"), ("--format", "warc")),
    (("--format", "warc"), ("--format", "warc", "--cdxj")),
    (("--format", "warc", "--cdxj"), ("--format", "warc")),
    (("--format", "warc"), ("--format", "warc", "--digest", "sha256")),
]


@pytest.mark.parametrize(("first", "then"), KINDS)
def test_cursor_refuses_another_kind_of_files(herd: Herd, tmp_path: Path, first: tuple[str, ...], then: tuple[str, ...]) -> None:
    """An archive that has bodies, or an index, of some of its states alone would show only when it is needed."""
    out = tmp_path / "out"
    export(herd, out, *first, "--cursor", "feed")
    add_state(herd, [CHANGED, *FIRST[1:]], now=NOW + DAY)
    before = names_in(out)
    for dry in ((), ("--dry-run",)):
        done = export(herd, out, *then, "--cursor", "feed", *dry, status=2)
        assert " ".join(first).encode() in done.stderr and b"another name" in done.stderr
    assert names_in(out) == before and cursor_state(herd) == 2
    export(herd, out, *first, "--cursor", "feed", "--split-bytes", "1")  # where files end is nobody's loss
    assert cursor_state(herd) == 3


def test_option_that_a_format_does_not_know_does_not_stop_a_cursor(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(herd, out)
    add_state(herd, [CHANGED, *FIRST[1:]], now=NOW + DAY)
    run(herd, out, "--digest", "sha256")
    assert cursor_state(herd) == 3


def test_cursor_of_an_older_version_continues(herd: Herd, tmp_path: Path) -> None:
    """One that does not say what its files were continues, and says so from then on."""
    out, place = tmp_path / "out", herd.db / "log" / "cursors" / "feed" / "cursor.json"
    run(herd, out)
    told = json.loads(place.read_text())
    place.write_text(json.dumps({key: told[key] for key in ("state", "choice")}))
    add_state(herd, [CHANGED, *FIRST[1:]], now=NOW + DAY)
    run(herd, out, "--no-body")
    assert json.loads(place.read_text()) == told | {"state": 3, "written": {"format": "jsonl", "bodies": False}}


def _archive(herd: Herd) -> Path:
    cf = herd.cf
    (cf / "shepherd.toml").write_text('[export]\ncursors = ["feed"]\n')
    return cf


def test_no_version_is_dropped_before_an_archive_has_it(herd: Herd, tmp_path: Path) -> None:
    """Two versions come and go between two exports: the states that had them are kept, and exported one after the other."""
    out, cf = tmp_path / "out", _archive(herd)
    run(herd, out, cf=cf)
    for number, one in enumerate((CHANGED, AGAIN)):
        add_state(herd, [one, *FIRST[1:]], now=NOW + (number + 1) * DAY)
    with herd.store.writing("test") as writer:
        assert writer.prune(1, NOW + 9 * DAY, unexported=("feed",)) == [1, 2]
    run(herd, out, cf=cf)
    for number, version in ((3, "second"), (4, "third")):
        (found,) = lines(out / f"shepherd-{number:06d}-00000.jsonl")
        assert found["what"] == "changed" and version in found["body"]
    with herd.store.writing("test") as writer:
        assert writer.prune(1, NOW + 9 * DAY, unexported=("feed",)) == [3]
    assert cursors.behind(herd.store, ("feed", "never")) == {4} and cursors.behind(herd.store, ()) == set()


def test_dry_run_does_not_count_what_an_earlier_state_has_exported(herd: Herd, tmp_path: Path) -> None:
    out, cf = tmp_path / "out", _archive(herd)
    run(herd, out, cf=cf)
    for number in range(3):
        add_state(herd, [CHANGED, *FIRST[1:]], now=NOW + (number + 1) * DAY)  # after the first of them nothing is new
    arguments = ("--format", "jsonl", "--cursor", "feed", "--json")
    dry = export(herd, out, *arguments, "--dry-run", cf=cf).stdout
    assert [one["counts"]["documents"] for one in objects(dry)] == [1, 0, 0]
    assert cursor_state(herd) == 2
    done = export(herd, out, *arguments, cf=cf).stdout
    assert [(one["state"], one["since"]) for one in objects(dry)] == [(one["state"], one["since"]) for one in objects(done)]


def objects(text: bytes) -> list[dict[str, Any]]:
    """JSON objects, one after the other."""
    decoder, left, found = json.JSONDecoder(), text.decode().strip(), list[dict[str, Any]]()
    while left:
        one, end = decoder.raw_decode(left)
        found.append(one)
        left = left[end:].lstrip()
    return found


def test_cleanup_counts_the_states_that_cursors_need(herd: Herd) -> None:
    """What the configuration says gets to those who delete states."""
    from shepherd.cycle.cleanup.report import pinned

    add_state(herd, [CHANGED], now=NOW + DAY)
    config = Config(export=Export(("feed",)))
    assert pinned(herd.store, config, set(), set(), NOW)["bytes of leased states"] > 0
    assert pinned(herd.store, replace(config, export=Export()), set(), set(), NOW)["bytes of leased states"] == 0


# --- cut off ----------------------------------------------------------------------------------------------------

POINTS = [
    "create:.shepherd-000003-00000.jsonl.tmp:1",
    "write:.shepherd-000003-00000.jsonl.tmp:1",
    "sync:.shepherd-000003-00000.jsonl.tmp:1",
    "rename:.shepherd-000003-00000.jsonl.tmp:1",
    "write:.shepherd-000003.json.tmp:1",
    "rename:.shepherd-000003.json.tmp:1",
    "link:index/norm:1",
    "rename:000003.tmp:1",
    "rename:.cursor.json.tmp:1",
    "rename:feed/000002:1",
    "unlink:index/norm:1",
]


@pytest.mark.parametrize("point", POINTS)
def test_killed_export_is_completed_by_the_next_run(herd: Herd, tmp_path: Path, point: str) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    run(herd, out)
    add_state(herd, [CHANGED, *FIRST[1:]], now=NOW + DAY)
    run(herd, out, fail=f"{point}=kill", status=-signal.SIGKILL)
    manifest = out / "shepherd-000003.json"
    if manifest.exists():
        assert all((out / one["name"]).stat().st_size == one["bytes"] for one in json.loads(manifest.read_text())["files"])
    else:
        assert cursor_state(herd) == 2
    if cursor_state(herd) == 2:
        run(herd, out)
    whole.mkdir()
    export(herd, whole, "--format", "jsonl", "--since", "2")
    name = "shepherd-000003-00000.jsonl"
    assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert names_in(out) == ["shepherd-000002-00000.jsonl", "shepherd-000002.json", name, "shepherd-000003.json"]
    assert cursor_state(herd) == 3


def test_full_disk_leaves_nothing_with_a_name(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(herd, out, fail="write:.shepherd-000002-00000.jsonl.tmp:1=enospc", status=12)
    assert names_in(out) == [] and cursor_state(herd) is None
    run(herd, out)


def test_export_is_overwritten_only_on_request(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export(herd, out, "--format", "jsonl", "--split-bytes", "1")
    before = names_in(out)
    export(herd, out, "--format", "jsonl", status=2)
    assert names_in(out) == before
    export(herd, out, "--format", "jsonl", "--overwrite")
    assert len(before) > 3 and names_in(out) == ["shepherd-000002-00000.jsonl", "shepherd-000002.json"]


OTHERS = [
    ("--format", "warc"),
    ("--format", "jsonl", "--section", "html"),
    ("--format", "jsonl", "--since", "1"),
    ("--format", "jsonl", "--no-body"),
    ("--format", "jsonl", "--split-bytes", "1"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_cursor_does_not_overwrite_an_export_that_is_not_its_own(herd: Herd, tmp_path: Path, other: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    export(herd, out, *other)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = export(herd, out, "--format", "jsonl", "--cursor", "feed", status=2)
    assert b"--overwrite" in done.stderr and b"--prefix" in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert cursor_state(herd) is None
    run(herd, out, "--prefix", "feed")
    assert {path.name for path in out.iterdir()} > before.keys()


@pytest.mark.parametrize("other", [("--cdxj",), ("--digest", "sha256")])
def test_cursor_does_not_overwrite_another_archive(herd: Herd, tmp_path: Path, other: tuple[str, ...]) -> None:
    export(herd, tmp_path, "--format", "warc", *other)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("shepherd-*")}
    export(herd, tmp_path, "--format", "warc", "--cursor", "feed", status=2)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("shepherd-*")} == before
    export(herd, tmp_path, "--format", "warc", *other, "--cursor", "feed")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("shepherd-*")} == before


def test_cursor_recognises_what_a_killed_run_of_its_own_left(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        run(herd, out, "--section", "html", fail="rename:.cursor.json.tmp:1=kill", status=-signal.SIGKILL)
        assert (out / "shepherd-000002.json").exists()
    run(herd, out, "--section", "html")


# --- two at once ------------------------------------------------------------------------------------------------


def test_second_export_of_the_same_files_is_locked_out(herd: Herd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".shepherd-000002-00000.jsonl.tmp").write_bytes(b"being written")
    held = locks.lock(out / ".shepherd-000002.lock", "shep-export")
    for more in ((), ("--overwrite",), ("--cursor", "feed")):
        done = export(herd, out, "--format", "jsonl", *more, status=3)
        assert b"is held by shep-export" in done.stderr
    assert (out / ".shepherd-000002-00000.jsonl.tmp").read_bytes() == b"being written"
    export(herd, out, "--format", "jsonl", "--part", "1/2")  # another stem
    held.release()
    export(herd, out, "--format", "jsonl")
    assert not list(out.glob(".*"))


def test_second_export_of_one_cursor_is_locked_out(herd: Herd, tmp_path: Path) -> None:
    held = cursors.locked(herd.db / "log", "feed")
    run(herd, tmp_path / "out", status=3)
    run(herd, tmp_path / "out", "--dry-run")
    assert names_in(tmp_path / "out") == [] and cursor_state(herd) is None
    held.release()
    run(herd, tmp_path / "out")
    assert cursor_state(herd) == 2


def test_lock_whose_file_is_removed_belongs_to_one(tmp_path: Path) -> None:
    inside, alone = threading.Semaphore(1), list[bool]()

    def export_often() -> None:
        for _ in range(200):
            try:
                output = Output(tmp_path, "out-000001", overwrite=True)
            except Locked:
                continue
            alone.append(inside.acquire(blocking=False))
            os.sched_yield()
            inside.release()
            output.abandon()

    threads = [threading.Thread(target=export_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone and all(alone)


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(herd: Herd) -> Iterator[tuple[Herd, Page]]:
    """One byte of one body is not what was written."""
    state = herd.store.closed()
    rows = {state.objects.get(oid).url: oid for oid in state.index["oid"][0 : state.index.rows].tolist()}
    oid = rows[FIRST[1].url]
    path = state.path / names.OBJECTS / names.segment(oid >> 32)
    at = (oid & 0xFFFFFFFF) + state.objects.get(oid).header.length - 5
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    yield herd, FIRST[1]


@pytest.mark.parametrize("format_", ["jsonl", "warc", "files", "buckets", "stream", "tar.gz"])
def test_damaged_document_is_reported_and_costs_no_other(damaged: tuple[Herd, Page], tmp_path: Path, format_: str) -> None:
    herd, _page = damaged
    out = tmp_path / "out"
    out.mkdir()
    done = export(herd, out, "--format", format_, "--json", status=11)
    counts = json.loads(done.stdout)["counts"]
    assert (counts["damaged"], counts["present"]) == (1, len(FIRST) - 1)
    assert b"objects/00000001 at " in done.stderr and b"the body is damaged" in done.stderr


def test_cursor_passes_a_damaged_document_only_on_request(damaged: tuple[Herd, Page], tmp_path: Path) -> None:
    herd, _page = damaged
    out = tmp_path / "out"
    run(herd, out, status=11)
    assert cursor_state(herd) is None
    run(herd, out, "--past-damage", status=11)
    assert cursor_state(herd) == 2
