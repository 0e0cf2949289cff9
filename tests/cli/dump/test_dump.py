"""shep-dump, each command through the real program: what it shows, how it is laid out, and how it reports damage."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shepherd.cli.dump import main as program
from shepherd.cli.dump import rows as dump_rows
from shepherd.formats import tables
from shepherd.formats.frame import Frame
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import logs
from shepherd.store.state.database import Database
from shepherd.text import iso, iso_ms
from shepherd.urls import parse
from tests.crash import cycle_steps, store_steps
from tests.support.page_states import GREETING, ROOT, Herd, make_herd
from tests.support.sound import flip
from tests.support.unfinished_states import GONE, NEW, PRINTS, START_MS, merge, refusal, row_of, run, start_reap
from tests.support.waiting import PATIENCE_S
from tests.worlds import KEY, NOW

COMMANDS = tuple(program.command.commands)


@pytest.fixture(scope="module")
def reaping(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """A database in the midst of a reap. For tests that change nothing."""
    herd = make_herd(tmp_path_factory.mktemp("reaping"))
    start_reap(herd)
    return herd


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    herd = make_herd(tmp_path_factory.mktemp("merged"))
    merge(herd)
    return herd


def dump(herd: Herd | Path, *arguments: str, status: int = 0) -> str:
    done = run(herd if isinstance(herd, Path) else herd.db, "shep-dump", *arguments)
    assert done.returncode == status, done
    return done.stdout


def rows(herd: Herd, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump(herd, *arguments, "--json").splitlines()]


def hexed(*numbers: int) -> list[str]:
    return [f"{number:016x}" for number in numbers]


# --- what is shown ----------------------------------------------------------------------------------------------


def test_control_hides_the_key(herd: Herd) -> None:
    lines = rows(herd, "control")
    assert {"key": "key", "value": "(secret)"} in lines
    assert {"key": "phase", "value": "closed"} in lines
    assert any(line["key"] == "file" and line["value"].startswith("index/norm 88 ") for line in lines)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bucket"])
def test_key_is_nowhere_shown(reaping: Herd, command: str) -> None:
    for form in ([], ["--json"]):
        assert KEY.hex() not in dump(reaping, command, *form)


def test_index_shows_every_column(herd: Herd) -> None:
    state = herd.store.closed()
    shown = rows(herd, "index", "-u")
    assert len(shown) == state.index.rows
    assert set(shown[0]) == {"row", "url", *tables.INDEX}
    row = shown[row_of(state, "http://a.example/")]
    assert [row["norm"], row["path"], row["site"]] == hexed(*PRINTS.of(parse("http://a.example/")))
    assert row["url"] == "http://a.example/"
    assert row["flags"] == ["initial", "equiv"]
    assert (row["type"], row["reason"], row["status"], row["weight"]) == ("gathered", "gathered", 200, 50_000)
    assert row["gathered"] == iso(NOW - 3 * 86_400)
    assert (row["section"], row["deferred"]) == ("none", None)
    forgotten = shown[row_of(state, "http://a.example/forgotten")]
    assert (forgotten["oid"], forgotten["digest"], forgotten["url"]) == (None, None, None)


def test_index_of_a_merge_shows_urls_that_wait_in_contrib(merged: Herd) -> None:
    urls = {row["url"] for row in rows(merged, "index", "-u")}
    assert {"http://a.example/linked", "http://a.example/new?x=1", "http://down.example/x"} <= urls


@pytest.mark.parametrize("step_rows", [1, 2, 4])
def test_contrib_is_not_read_again_for_every_step_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_rows: int
) -> None:
    cycle_steps.grow(tmp_path / "db", "select more")
    state, passes = Database(tmp_path / "db").furthest(), list[Path]()
    expected = [row[-1] for row in dump_rows.index(state, None, (), 0, urls=True).rows]
    assert sum("/linked/" in (url or "") for url in expected) > step_rows

    def counted(path: Path, length: int | None = None) -> Iterator[Frame]:
        passes.append(path)
        return read_frames(path, length)

    read_frames = logs.read_frames
    monkeypatch.setattr(logs, "read_frames", counted)
    monkeypatch.setattr(dump_rows, "STEP_ROWS", step_rows)
    assert [row[-1] for row in dump_rows.index(state, None, (), 0, urls=True).rows] == expected
    small_steps = step_rows.bit_length() - 1
    assert len(passes) <= (1 + small_steps) * len(state.numbered(names.CONTRIB))


def test_sites_show_names_limits_and_queue_keys(herd: Herd) -> None:
    shown = {row["name"]: row for row in rows(herd, "sites")}
    assert set(shown) == {"http://a.example", "https://www.b.example", "http://down.example"}
    site = shown["http://a.example"]
    assert (site["qkey"], site["documents"], site["soft_limit"], site["robots_oid"]) == ("127.0.0.7", 9, None, None)
    assert re.fullmatch("7f[0-9a-f]{6}[?]", shown["http://down.example"]["qkey"])


def test_servers_show_when_they_may_be_asked_again(herd: Herd) -> None:
    (row,) = rows(herd, "servers")
    assert (row["qkey"], row["next_ms"], row["delay_ms"]) == ("127.0.0.7", iso_ms((NOW + 60) * 1_000), 10_000)
    assert "2026-09-21T14:14:20.000Z" in dump(herd, "servers")


def test_journal_of_a_harvest_is_shown_up_to_its_checkpoint(reaping: Herd) -> None:
    looked_up, fetched = rows(reaping, "journal", "-u")
    assert (looked_up["kind"], looked_up["result"], looked_up["url"]) == ("qkey", "resolved", "http://a.example")
    assert (fetched["kind"], fetched["result"], fetched["url"]) == ("page", "stored", NEW)
    assert (fetched["file"], fetched["flags"], fetched["plan_row"]) == ("harvest/reap/journal", ["contacted"], None)
    assert datetime.fromisoformat(fetched["end_ms"]) - datetime.fromisoformat(fetched["start_ms"]) == timedelta(milliseconds=70)


def test_contributions_show_their_url_and_that_of_their_parent(reaping: Herd) -> None:
    sealed, fresh = rows(reaping, "contrib", "-u")
    assert (sealed["file"], sealed["ordinal"], sealed["url"]) == ("contrib.00000001", 0, "http://a.example/linked")
    assert (fresh["url"], fresh["parent_url"], fresh["flags"]) == ("https://www.b.example/found", NEW, ["https"])
    assert "parent_url" not in rows(reaping, "contrib")[0]


def test_plan_shows_what_and_why(reaping: Herd) -> None:
    shown = rows(reaping, "plan", "-u")
    assert [(row["url"], row["why"], row["kind"], row["qkey"]) for row in shown] == [
        (NEW, "new", "page", "127.0.0.7"),
        (GONE, "retry", "page", "127.0.0.7"),
    ]
    assert refusal(reaping.db, "shep-dump", "plan", "--state", "2", status=2).startswith("shep-dump: 000002 has no plan")


def test_checkpoints_show_whether_they_are_valid(own_herd: Herd) -> None:
    harvest = start_reap(own_herd)
    shown = rows(own_herd, "checkpoints")
    assert [(row["harvest"], row["sequence"], row["kind"], row["holds"]) for row in shown] == [
        ("reap", 1, "checkpoint", "yes"),
        ("reap", 2, "checkpoint", "yes"),
    ]
    assert [(row["time_ms"], row["segments"], row["journal_bytes"]) for row in shown] == [
        (iso_ms(START_MS), 0, 152),
        (iso_ms(START_MS + 1_000), 1, 304),
    ]
    flip(harvest / "journal", 200)
    assert [row["holds"] for row in rows(own_herd, "checkpoints")] == ["yes", "no"]


def test_inbox_shows_each_inserted_url_and_who_left_it(own_herd: Herd) -> None:
    name = store_steps.item_name(1)
    store_steps.insert(own_herd.store, name, (1, 3))
    common = {"item": name, "taken": "no", "op": "insert", "weight": 40_000, "pinned": False, "by": "me"}
    assert rows(own_herd, "inbox") == [common | {"line": n, "url": store_steps.url_of(one)} for n, one in ((1, 1), (2, 3))]


def test_inbox_shows_each_request_and_whether_it_is_applied(own_herd: Herd) -> None:
    store = own_herd.store
    name = store.new_item_name(NOW * 1_000)
    store.inbox.drop(name, [{"op": "insert", "url": "http://x.example/", "weight": 7, "by": "me"}])
    other = store.new_item_name(NOW * 1_000 + 1)
    (store.inbox.directory / f"{other}.req").write_bytes(b'\xff not "json\x1b[2J\n')
    with store.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(3, "merged"), NOW)
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.keep_objects()
        builder.change(applied=(name,))
        writer.publish(builder, {})
    first, second = rows(own_herd, "inbox")
    assert first == {
        "item": name, "line": 1, "taken": "yes", "op": "insert", "weight": 7, "pinned": None, "by": "me", "url": "http://x.example/",
    }  # fmt: skip
    assert (second["item"], second["taken"], second["op"]) == (other, "no", "bad")
    assert "\\xff" in second["url"]
    assert "\x1b" not in dump(own_herd, "inbox")


def test_leases_show_owner_state_and_expiry(own_herd: Herd) -> None:
    lease = own_herd.store.lease(1, "me", "a test", NOW * 1_000, 100)
    (held,) = rows(own_herd, "leases", "--now", str(NOW))
    assert (held["name"], held["state"], held["expires"], held["holds"]) == (lease.name, 1, iso(NOW + 100), "yes")
    assert (held["owner"], held["purpose"], held["pid"]) == ("me", "a test", os.getpid())
    assert [row["holds"] for row in rows(own_herd, "leases", "--now", str(NOW + 101))] == ["no"]
    assert "2026-09-21T14:15:00Z" in dump(own_herd, "leases")


def test_buckets_of_a_harvest_are_shown_behind_those_of_the_state(reaping: Herd) -> None:
    shown = rows(reaping, "buckets")
    assert [row["file"] for row in shown] == [*["objects/00000001"] * 10, "harvest/reap/seg.00000001"]
    assert (shown[-1]["url"], shown[-1]["stored"], shown[-1]["state"], shown[-1]["time_ms"]) == (NEW, 4, 3, iso_ms(START_MS))
    assert {"thin"} == {flag for row in shown for flag in row["flags"]}


# --- one bucket -------------------------------------------------------------------------------------------------


def ways(herd: Herd, url: str) -> Iterator[list[str]]:
    """Every way to ask for the bucket of a URL."""
    state = herd.store.closed()
    norm, path, site = PRINTS.of(parse(url))
    oid = state.index["oid"].value(row_of(state, url))
    yield [url]
    yield hexed(oid)
    yield hexed(norm, path)
    yield hexed(site, path)
    yield [f"{oid >> 32}:{oid & 0xFFFFFFFF}"]


def test_one_bucket_is_shown_by_url_oid_footprint_and_place(herd: Herd) -> None:
    for which in ways(herd, "http://a.example/moved"):
        (shown,) = rows(herd, "bucket", *which)
        assert (shown["url"], shown["status_line"]) == ("http://a.example/moved", "HTTP/1.1 301 Moved")
        assert shown["redirect_target"] == "http://b.example/\\x1b]0;"


def test_bucket_is_shown_line_by_line_with_bytes_from_the_web_escaped(herd: Herd) -> None:
    text = dump(herd, "bucket", "http://a.example/")
    assert text.splitlines()[0].split() == ["field", "value"]
    assert "time_ms          2026-09-21T14:13:20.000Z\n" in text
    assert "headers          Content-Type: text/html\nheaders          X-Steer: \\x1b[2J\n" in text
    assert "flags            -\n" in text


@pytest.mark.parametrize("how", ["--body", "--stored"])
def test_body_goes_to_a_pipe_byte_by_byte(herd: Herd, how: str) -> None:
    command = [sys.executable, "-m", "shepherd.cli", "shep-dump", "bucket", "http://a.example/", how, "--db", str(herd.db)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == GREETING


@pytest.mark.parametrize(
    ("which", "status", "said"),
    [
        (["http://a.example/unheard-of"], 4, "not known in 000002"),
        (["http://a.example/forgotten"], 4, "no text of it is left"),
        (["0123456789abcdef", "0123456789abcdef"], 4, "not known in 000002"),
        (["f" * 16], 4, "no text of it is left"),
        (["ftp://a.example/"], 2, "only http and https"),
        (["nonsense"], 2, "give an oid"),
        (["0123456789abcdef", "xyz"], 2, "give an oid"),
        (["7:0"], 11, "objects/00000007: the segment is missing"),
        (["1:5"], 11, "objects/00000001 at 5: no bucket header"),
        (["1:99999"], 11, "objects/00000001 at 99999: the header is cut off"),
    ],
)
def test_missing_bucket_is_reported_with_the_reason(herd: Herd, which: list[str], status: int, said: str) -> None:
    assert said in refusal(herd.db, "shep-dump", "bucket", *which, status=status)


def test_url_without_a_bucket_yet_is_reported_as_waiting_in_contrib(merged: Herd) -> None:
    assert "record 0 of contrib 1" in refusal(merged.db, "shep-dump", "bucket", "http://a.example/linked", status=4)


def test_damaged_body_leaves_everything_else_to_be_seen(own_herd: Herd) -> None:
    state = own_herd.store.closed()
    row = row_of(state, "https://www.b.example/page")
    offset = state.index["oid"].value(row) & 0xFFFFFFFF
    flip(state.path / "objects/00000001", offset + state.index["size"].value(row) - 1)
    assert rows(own_herd, "bucket", "https://www.b.example/page")[0]["url"] == "https://www.b.example/page"
    said = refusal(own_herd.db, "shep-dump", "bucket", "https://www.b.example/page", "--body", status=11)
    assert f"objects/00000001 at {offset}: the body is damaged" in said


# --- which rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["a.example", "www.a.example", "https://a.example/any/path"])
@pytest.mark.parametrize("command", ["index", "sites", "servers", "journal", "plan", "contrib", "buckets"])
def test_site_is_chosen_by_host_or_url(reaping: Herd, command: str, site: str) -> None:
    norm, _path, footprint = PRINTS.of(parse("http://a.example/"))
    shown = rows(reaping, command, "--site", site)
    assert shown
    if command == "buckets":
        assert {row["site"] for row in shown} == set(hexed(footprint))
        assert len(shown) == 9
    elif command == "servers":
        assert [row["qkey"] for row in shown] == ["127.0.0.7"]
    else:
        assert {row["norm"] for row in shown} == set(hexed(norm))


def test_site_that_is_not_known_has_no_rows(reaping: Herd) -> None:
    for command in ("index", "sites", "servers", "journal", "plan", "contrib", "buckets"):
        assert rows(reaping, command, "--site", "unheard-of.example") == []
    assert "not a host or URL" in refusal(reaping.db, "shep-dump", "index", "--site", "http://", status=2)


def test_type_result_and_why_choose_rows(reaping: Herd) -> None:
    assert {row["type"] for row in rows(reaping, "index", "--type", "error", "--type", "sleeping")} == {"error", "sleeping"}
    assert [row["result"] for row in rows(reaping, "journal", "--result", "stored")] == ["stored"]
    assert [row["why"] for row in rows(reaping, "plan", "--why", "retry")] == ["retry"]


def test_limit_and_first_row_cut_the_table(herd: Herd) -> None:
    assert [row["row"] for row in rows(herd, "index", "--row", "3", "--limit", "2", "-u")] == [3, 4]
    assert [row["row"] for row in rows(herd, "sites", "--row", "2")] == [2]
    assert rows(herd, "servers", "--row", "7") == []


@pytest.mark.parametrize("given", ["3.reap", "000003.reap"])
def test_unfinished_state_is_chosen_by_its_name(reaping: Herd, given: str) -> None:
    assert {"key": "phase", "value": "reap"} in rows(reaping, "control", "--state", given)


def test_furthest_state_is_shown_unless_another_is_asked_for(reaping: Herd) -> None:
    assert {"key": "phase", "value": "reap"} in rows(reaping, "control")
    assert {"key": "state", "value": "1"} in rows(reaping, "control", "--state", "1")
    assert rows(reaping, "index", "--state", "1") == []
    assert refusal(reaping.db, "shep-dump", "index", "--state", "7", status=2).endswith(
        "no state 7; there are 000001, 000002, 000003.reap\n"
    )
