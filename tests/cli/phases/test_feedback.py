"""shep-feedback as an indexer and an operator meet it: texts and frames, bad lines, damaged files, each upload once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import Corruption
from shepherd.formats import feedback
from shepherd.formats.feedback import FEEDBACK
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import Flag
from shepherd.store.check import check
from shepherd.store.state import lookup
from shepherd.store.state.database import Database
from shepherd.store.state.inbox_files import item_frames
from shepherd.urls import parse
from tests.support import programs
from tests.support.page_states import Herd
from tests.worlds import NOW

URLS = ("http://a.example/", "http://a.example/asleep", "http://a.example/new?x=1")


def item(number: int) -> str:
    return f"1790000000000-host-77-{number}"


def run(herd: Herd, program: str, *arguments: str, status: int = 0) -> str:
    done = programs.call(program, "--db", str(herd.db), "--cf", str(herd.cf), "--now", str(NOW), *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def row(herd: Herd, url: str) -> dict[str, int]:
    state = Database(herd.db).furthest()
    (at,) = lookup.rows_of(state, *state.prints.of(parse(url))[:2])
    return {name: state.index[name].value(at) for name in ("weight", "flags", "touched")}


def record(herd: Herd, url: str, weight: int, flags: int = 1) -> tuple[int, ...]:
    _norm, path, site = Database(herd.db).furthest().prints.of(parse(url))
    return site, path, weight, flags, 0


def frame(*records: tuple[int, ...]) -> bytes:
    return pack_frame(FrameKind.FEEDBACK, len(records), np.array(list(records), FEEDBACK).tobytes())


def test_text_and_frames_are_read_alike(own_herd: Herd) -> None:
    inbox = own_herd.store.inbox
    _norm, path, site = Database(own_herd.db).furthest().prints.of(parse(URLS[1]))
    inbox.drop_feedback(item(1), f"{URLS[0]} 123\n\n{site:016x}{path:016x} 4 unreferenced\n".encode())
    inbox.drop_feedback(item(2), frame(record(own_herd, URLS[2], 77)) + frame(record(own_herd, URLS[0], 124)))
    report = json.loads(run(own_herd, "shep-feedback", "--json"))["report"]
    assert (report["uploads"], report["heard"], report["changed rows"], report["bad lines"]) == (2, 4, 3, 0)
    assert [row(own_herd, url)["weight"] for url in URLS] == [124, 4, 77]  # the later upload holds
    assert row(own_herd, URLS[1])["flags"] & Flag.UNREFERENCED
    assert row(own_herd, "http://a.example/gone")["touched"] == 2
    assert Database(own_herd.db).furthest().name.closed


def test_upload_is_applied_once_and_removed(own_herd: Herd) -> None:
    own_herd.store.inbox.drop_feedback(item(1), f"{URLS[1]} 9\n".encode())
    run(own_herd, "shep-feedback")
    run(own_herd, "shep-feedback", status=4)
    assert list(own_herd.store.inbox.directory.iterdir()) == []
    run(own_herd, "shep-plan")
    assert row(own_herd, URLS[1])["weight"] == 9
    assert [fault for fault in check.walk(Database(own_herd.db)) if not fault.note] == []


def test_bad_line_is_reported_and_the_others_are_applied(own_herd: Herd) -> None:
    lines = [
        "nonsense",
        f"{URLS[0]} 70000",
        f"{URLS[0]} 5 shiny",
        f"{URLS[0]} -",
        "ftp://x/ 5",
        f"{URLS[1]} 6",
        "http://z.example/ 1",
    ]
    own_herd.store.inbox.drop_feedback(item(1), "\n".join(lines).encode())
    report = json.loads(run(own_herd, "shep-feedback", "--json"))["report"]
    assert (report["bad lines"], report["heard"], report["of unknown URLs"]) == (5, 1, 1)
    assert [line.partition(": ")[0] for line in report["bad"]] == [f"{item(1)}.feedback line {n}" for n in range(1, 6)]
    assert row(own_herd, URLS[1])["weight"] == 6


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign"])
def test_damaged_upload_changes_nothing_and_is_kept(own_herd: Herd, damage: str) -> None:
    good = frame(record(own_herd, URLS[1], 5)) + frame(record(own_herd, URLS[0], 6))
    bad = {
        "cut": good[:-1],
        "flipped": good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
        "foreign": good + pack_frame(FrameKind.PLAN, 1, bytes(64)),
    }
    path = own_herd.store.inbox.drop_feedback(item(1), bad[damage])
    assert "is damaged" in run(own_herd, "shep-feedback", status=4)
    assert path.exists()
    own_herd.store.inbox.drop_feedback(item(3), frame(record(own_herd, URLS[2], 9)))
    assert "1 upload refused, the first" in run(own_herd, "shep-feedback")
    own_herd.store.inbox.drop_feedback(item(2), frame(record(own_herd, URLS[2], 8)))
    report = json.loads(run(own_herd, "shep-feedback", "--json"))["report"]
    assert report["bad uploads"] == 1
    assert str(path) in report["bad"][0]
    assert [row(own_herd, url)["weight"] for url in URLS] == [50_000, 7, 8]
    assert path.exists()


def test_dry_run_and_jobs_report_the_same(own_herd: Herd) -> None:
    (own_herd.cf / "shepherd.toml").write_text("[store]\npartition_rows = 3\n")
    own_herd.store.inbox.drop_feedback(item(1), "".join(f"{url} {n}\n" for n, url in enumerate(URLS)).encode())
    told = [run(own_herd, "shep-feedback", "--dry-run", "--json", "--jobs", jobs) for jobs in ("1", "3")]
    assert told[0] == told[1]
    made = json.loads(run(own_herd, "shep-feedback", "--json", "--jobs", "3"))
    assert made["report"] == json.loads(told[0])["report"]


def test_reading_returns_what_was_written_and_refuses_a_cut_frame(tmp_path: Path) -> None:
    data, path = frame((1, 2, 3, 1, 0)), tmp_path / "upload"
    path.write_bytes(data)
    (records,) = map(feedback.unpack, item_frames(path))
    assert records.tolist() == [(1, 2, 3, 1, 0)]
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        with pytest.raises(Corruption):
            list(item_frames(path))
