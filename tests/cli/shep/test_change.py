"""shep delete, refresh and set, run as a user runs them: what stands in the inbox, in the log and on the screen."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import CONTRIB_BIT, Flag, Reason, RowType
from shepherd.store.state.inbox import REQUESTS
from tests.support import inboxes, programs
from tests.support.page_states import PAGES, ROOT, Herd, Page, Run, make_herd, objects, stdout_of
from tests.support.waiting import PATIENCE_S
from tests.worlds import NOW

ROBOTS = "http://a.example/robots.txt"
STORED = [page.url for page in PAGES if page.bucket]


def requests(herd: Herd) -> list[dict[str, Any]]:
    lines = [json.loads(line) for item in herd.store.inbox.items(REQUESTS) for _, line in item.lines()]
    return lines + inboxes.inserted(herd.store)


def requested_urls(herd: Herd) -> list[str]:
    return sorted(one["url"] for one in requests(herd))


def changes(herd: Herd) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (herd.db / "log" / "changes.jsonl").read_text().splitlines()]


def test_urls_are_deleted_although_others_are_unknown(own_herd: Herd, shep: Run) -> None:
    given = ["http://a.example/gone?utm_source=x", "http://a.example/nobody", "ftp://a/", "http://a.example/dead"]
    answer = shep(own_herd, "delete", *given)
    stdout_of(answer, 2)
    assert [(one["op"], one["url"]) for one in requests(own_herd)] == [
        ("delete", url) for url in sorted(("http://a.example/gone", "http://a.example/dead"), key=_place(own_herd))
    ]
    lines = answer.stderr.decode().splitlines()
    assert lines[0] == "http://a.example/nobody: not known"
    assert lines[1] == "ftp://a/: scheme ftp: only http and https are gathered"
    assert lines[2:] == [
        "2 URLs to be deleted, at the start of the next cycle",
        "shep: 2 URLs not deleted, for the reasons above",
    ]


def _place(herd: Herd) -> Any:
    from shepherd.urls import parse

    with herd.store.reading("test", NOW * 1_000) as state:
        prints = state.prints
    return lambda url: prints.of(parse(url))


def test_change_of_unknown_urls_is_exit_status_4(own_herd: Herd, shep: Run) -> None:
    for args in (
        ["http://a.example/nobody"],
        ["--site", "nobody.example"],
        ["--glob", "*/nobody"],
        ["http://a.example/forgotten"],
    ):
        answer = shep(own_herd, "delete", *args)
        stdout_of(answer, 4)
        assert answer.stderr.endswith(b"no known URL matches\n")
    assert requests(own_herd) == [] and not (own_herd.db / "log" / "changes.jsonl").exists()


def test_change_of_nothing_in_particular_is_refused(own_herd: Herd, shep: Run) -> None:
    for command in (["delete"], ["refresh"], ["set", "weight=1"], ["delete", "--purge", "--yes"]):
        answer = shep(own_herd, *command)
        stdout_of(answer, 2)
        assert b"say which are meant" in answer.stderr
    assert requests(own_herd) == []


def test_site_is_deleted_but_its_robots_file_stays(own_herd: Herd, shep: Run) -> None:
    answer = shep(own_herd, "delete", "--site", "a.example", "--json")
    (line,) = objects(answer)
    mine = sorted(url for url in STORED if url.startswith("http://a.example/") and url != ROBOTS)
    assert requested_urls(own_herd) == mine
    assert (line["deleted"], line["left_out"]) == (len(mine), {"forgotten": 1, "robots files": 1})
    assert line["takes_effect"] == "at the start of the next cycle" and line["item"] == own_herd.store.inbox.items()[0].name
    stdout_of(shep(own_herd, "delete", ROBOTS))
    assert requested_urls(own_herd) == sorted([*mine, ROBOTS])


def test_dry_run_counts_and_leaves_nothing(own_herd: Herd, shep: Run) -> None:
    before = sorted(path.name for path in own_herd.db.rglob("*") if path.name != "lock")
    for command, word in ((["delete"], "deleted"), (["refresh"], "refreshed"), (["set", "pinned=yes"], "set")):
        (line,) = objects(shep(own_herd, *command, "--glob", "*/de*", "--dry-run", "--json"))
        assert (line[word], line["item"], line["takes_effect"], line["dry_run"]) == (1, None, None, True)
    answer = shep(own_herd, "delete", "--glob", "*/de*", "--dry-run")
    assert stdout_of(answer) == "" and answer.stderr == b"1 URL would be deleted; nothing was left in the inbox\n"
    assert sorted(path.name for path in own_herd.db.rglob("*") if path.name != "lock") == before


def test_refresh_leaves_out_what_is_not_gathered(own_herd: Herd, shep: Run) -> None:
    (line,) = objects(shep(own_herd, "refresh", "--site", "a.example", "--json"))
    assert line["left_out"] == {"asleep": 1, "forgotten": 1, "rejected by the filter": 1, "robots files": 1}
    assert {one["op"] for one in requests(own_herd)} == {"refresh"}
    assert "http://a.example/asleep" not in requested_urls(own_herd) and "http://a.example/" in requested_urls(own_herd)


def test_set_leaves_one_request_with_all_its_settings(own_herd: Herd, shep: Run) -> None:
    stdout_of(shep(own_herd, "set", "weight=60000", "http://a.example/gone", "pinned=yes", "section=pdf", "frequency=4"))
    (one,) = requests(own_herd)
    assert {key: one[key] for key in ("op", "url", "weight", "pinned", "section", "frequency")} == {
        "op": "set",
        "url": "http://a.example/gone",
        "weight": 60_000,
        "pinned": True,
        "section": 3,
        "frequency": 4,
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["http://a.example/"], b"say what to set"),
        (["weight=70000", "http://a.example/"], b"from 0 to 65535"),
        (["weight=-1", "http://a.example/"], b"from 0 to 65535"),
        (["frequency=3", "http://a.example/"], b"1, 2 or 4"),
        (["pinned=maybe", "http://a.example/"], b"yes or no"),
        (["section=pfd", "http://a.example/"], b"allowed is"),
    ],
)
def test_what_cannot_be_set_is_refused(own_herd: Herd, shep: Run, args: list[str], words: bytes) -> None:
    answer = shep(own_herd, "set", *args)
    stdout_of(answer, 2)
    assert words in answer.stderr and requests(own_herd) == []


def test_url_from_before_a_strip_line_is_changed_as_it_is_stored(tmp_path: Path, shep: Run) -> None:
    """The merge must not strip it, or it would look for a row that does not exist."""
    herd = make_herd(tmp_path, [Page("http://a.example/x?utm_source=1")], sites=(), links=())
    stdout_of(shep(herd, "delete", "--glob", "*utm*"))
    stdout_of(shep(herd, "refresh", "http://a.example/x?utm_source=1"))
    for one in requests(herd):
        assert (one["url"], one["exact"]) == ("http://a.example/x?utm_source=1", True)


def test_merge_applies_the_requests(tmp_path: Path, shep: Run) -> None:
    pages = [
        Page(f"http://a.example/{word}", RowType.GATHERED, Reason.GATHERED, b"x", columns={"checked": NOW}) for word in "abcd"
    ]
    herd = make_herd(tmp_path, [*pages, Page("http://a.example/e?utm_source=1")], sites=(), links=())
    stdout_of(shep(herd, "delete", "http://a.example/a"))
    stdout_of(shep(herd, "delete", "--purge", "http://a.example/b", "http://b.example/new"))
    stdout_of(shep(herd, "refresh", "--glob", "*/[cd]"), 4)
    stdout_of(
        shep(herd, "refresh", "--newer", "99w", "--now", str(NOW + 5), "http://a.example/c", "http://a.example/e?utm_source=1")
    )
    stdout_of(shep(herd, "set", "weight=7", "frequency=2", "pinned=yes", "section=40", "--site", "a.example", "--glob", "*/d"))
    stdout_of(shep(herd, "set", "weight=9", "http://a.example/e?utm_source=1"))
    done = programs.call("shep-merge", "--db", str(herd.db), "--cf", str(herd.cf), "--now", str(NOW + 100))
    assert done.returncode == 0, done
    state = herd.store.furthest()
    found = {}
    for row in range(state.index.rows):
        one = {
            name: state.index[name].value(row) for name in ("oid", "type", "reason", "flags", "weight", "frequency", "section")
        }
        if one["oid"] < CONTRIB_BIT:
            found[state.objects.head(one["oid"]).url.rpartition("/")[2]] = one
    assert (found["a"]["type"], found["a"]["reason"]) == (RowType.FORGOTTEN, Reason.DELETED)
    assert (found["b"]["type"], found["b"]["reason"]) == (RowType.FORGOTTEN, Reason.PURGED)
    assert found["c"]["flags"] & Flag.REFRESH and not found["d"]["flags"] & Flag.REFRESH
    assert [found["d"][name] for name in ("weight", "frequency", "section")] == [7, 2, 40] and found["d"]["flags"] & Flag.PINNED
    assert found["e?utm_source=1"]["weight"] == 9
    report = state.report()
    assert report["purged before they were known"] == 1 and report["requests of unknown URLs"] == 0


# --- purge


def test_purge_accepts_unknown_urls_and_names_who_leases_the_document(own_herd: Herd, shep: Run) -> None:
    lease = own_herd.store.lease(2, "indexer@far", "export", NOW * 1_000, 10_000_000_000)
    answer = shep(own_herd, "delete", "--purge", "http://a.example/", "http://a.example/nobody", "http://a.example/forgotten")
    stdout_of(answer)
    assert requested_urls(own_herd) == ["http://a.example/", "http://a.example/forgotten", "http://a.example/nobody"]
    assert all(one["purge"] is True for one in requests(own_herd))
    first, second = answer.stderr.decode().splitlines()
    assert first == "3 URLs to be purged, at the start of the next cycle, and their bytes erased by the next cleanup"
    assert second.startswith("state 2 keeps 1 document of them while it is leased by indexer@far for export, until 2")
    (held, line) = sorted(
        objects(shep(own_herd, "delete", "--purge", "--site", "b.example", "--json")), key=lambda one: "state" not in one
    )
    assert (held["state"], held["holds"], held["owner"], line["purged"]) == (2, 1, "indexer@far", 1)
    own_herd.store.leases.remove(lease)
    assert b"leased" not in shep(own_herd, "delete", "--purge", "http://a.example/gone").stderr


# --- many at once


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    pages = [Page(f"http://crowd.example/{n}", RowType.ERROR, Reason.CLIENT_ERROR) for n in range(1_001)]
    return make_herd(tmp_path_factory.mktemp("crowd"), pages, sites=(), links=())


def test_many_urls_by_selectors_need_a_yes(crowd: Herd, shep: Run) -> None:
    answer = shep(crowd, "delete", "--site", "crowd.example")
    stdout_of(answer, 2)
    assert b"1,001 URLs would be deleted; say --yes" in answer.stderr and requests(crowd) == []
    assert list(crowd.store.inbox.directory.iterdir()) == []
    stdout_of(shep(crowd, "refresh", "--site", "crowd.example"))  # which loses nothing
    (item,) = crowd.store.inbox.items()
    item.path.unlink()
    stdout_of(shep(crowd, "delete", "--site", "crowd.example", "--yes"))
    (item,) = crowd.store.inbox.items()
    assert len(list(item.lines())) == 1_001
    item.path.unlink()


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 1_001), (b"n\n", 0)])
def test_confirmation_is_asked_for_on_a_terminal(crowd: Herd, answer: bytes, left: int) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"SHEPHERD_DB": str(crowd.db), "SHEPHERD_CF": str(crowd.cf), "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "shepherd.cli", "shep", "delete", "--site", "crowd.example"]
    try:
        os.write(ours, answer)
        done = subprocess.run(call, stdin=theirs, capture_output=True, env=environment, timeout=PATIENCE_S, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0 and b"1,001 URLs would be deleted. Go on? [y/N]" in done.stdout + done.stderr, done
    assert len(requests(crowd)) == left
    for item in crowd.store.inbox.items():
        item.path.unlink()


# --- the log


def test_log_says_who_changed_what(own_herd: Herd, shep: Run, tmp_path: Path) -> None:
    urls = tmp_path / "urls"
    urls.write_text("http://a.example/gone\n")
    stdout_of(shep(own_herd, "insert", "http://x.example/", "http://u:secret@x.example/"), 2)
    stdout_of(shep(own_herd, "delete", "--type", "error", "--status", "4xx"))
    stdout_of(shep(own_herd, "delete", "--purge", "http://a.example/gone"))
    stdout_of(shep(own_herd, "set", "weight=7", "-f", str(urls)))
    lines = changes(own_herd)
    assert [line["op"] for line in lines] == ["insert", "delete", "delete", "set"]
    assert [line["count"] for line in lines] == [1, 2, 1, 1]
    assert [line["item"] for line in lines] == [item.name for item in own_herd.store.inbox.items()]
    assert all("@" in line["by"] and line["time"] > NOW - 10**8 for line in lines)
    assert lines[0]["urls"] == ["http://x.example/", "http://u:...@x.example/"]
    assert lines[1]["selectors"] == ["--type", "error", "--status", "4xx"] and "set" not in lines[1]
    assert (lines[2]["set"], lines[2]["urls"]) == ({"purge": True}, ["http://a.example/gone"])
    assert (lines[3]["set"], lines[3]["files"]) == ({"weight": 7}, [str(urls)])


# --- insert


def test_sitemap_is_inserted_to_stay(own_herd: Herd, shep: Run) -> None:
    given = ["--sitemap", "http://x.example/sitemap.xml", "--sitemap", "ftp://x/", "http://x.example/a", "--section", "feed"]
    stdout_of(shep(own_herd, "insert", *given), 2)
    found = {one["url"]: (one["pinned"], one["section"]) for one in requests(own_herd)}
    assert found == {"http://x.example/a": (False, 8), "http://x.example/sitemap.xml": (True, 8)}
