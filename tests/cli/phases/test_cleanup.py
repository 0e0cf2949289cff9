"""shep-cleanup as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path

from shepherd.formats.tables import Reason, RowType
from tests.support import segment_states
from tests.support.programs import call
from tests.support.segment_states import Sheep
from tests.support.toy_farm import contents
from tests.worlds import NOW


def flock() -> list[Sheep]:
    pages = [Sheep(f"http://a.example/{n}", now=b"%d " % n * 60, before=(b"old %d " % n * 50,)) for n in range(6)]
    return [*pages, Sheep("http://a.example/asleep", RowType.SLEEPING, Reason.BELOW_BAR, b"asleep " * 40)]


def place(path: Path) -> tuple[str, ...]:
    (path / "cf").mkdir(exist_ok=True)
    (path / "cf" / "shepherd.toml").write_text("[cleanup]\nreserve_bytes = 0\nsparse = 80\n")
    return ("--db", str(path / "db"), "--cf", str(path / "cf"), "--now", str(NOW))


def test_dry_run_then_cleanup_then_nothing_to_do(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, flock())
    where, documents, found = place(tmp_path), segment_states.documents(db.closed()), contents(tmp_path / "db" / "state")
    dry = call("shep-cleanup", *where, "--dry-run", "--json")
    told = json.loads(dry.stdout)
    assert (dry.returncode, told["dry_run"], told["report"]["counts"]["trimmed"]) == (0, True, 1)
    assert contents(tmp_path / "db" / "state") == found
    done = call("shep-cleanup", *where, "--json", "--jobs", "2")
    report = json.loads(done.stdout)["report"]
    assert (done.returncode, report["needed percent"]) == (0, 100)
    assert report["averages"]["none"]["documents"] == 6
    assert segment_states.documents(db.closed()) == documents
    line = json.loads((tmp_path / "db" / "log" / "cleanups.jsonl").read_text())
    assert (line["cleaned"], line["trimmed"], line["state"]) == (NOW, 1, db.closed().number)
    again = call("shep-cleanup", *where)
    assert (again.returncode, again.stdout) == (4, "")
    assert "nothing to reclaim: 100 % of the" in again.stderr
    assert call("shep-cleanup", *where, "--all").returncode == 4
    assert call("shep-check", "--db", str(tmp_path / "db")).returncode == 0


def test_summary_of_a_cleanup_is_a_row_of_numbers(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, flock())
    where = place(tmp_path)
    dry = call("shep-cleanup", *where, "--dry-run").stdout
    assert "trimmed 1" in dry and "section none: 6 documents of " in dry
    done = call("shep-cleanup", *where).stderr
    report = db.closed().report()
    assert f"shep-cleanup: {db.closed().name} (" in done
    assert f"bytes freed {report['counts']['bytes freed']}" in done
    assert f"100 % of {report['bytes']} bytes in {report['segments']} segment" in done
    assert "averages" not in done and "counts:" not in done and "chosen" not in done


def test_damaged_bucket_is_exit_status_11_with_its_place(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, flock())
    where = place(tmp_path)
    oid = db.closed().index["oid"].value(0)
    path = db.closed().path / "objects" / f"{oid >> 32:08d}"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[(oid & 0xFFFFFFFF) + 70] ^= 1
    path.write_bytes(data)
    done = call("shep-cleanup", *where)
    assert done.returncode == 11
    assert f"{path} at {oid & 0xFFFFFFFF}: header or attributes are damaged" in done.stderr
    assert db.furthest().number == 2


def test_cleanup_runs_beside_no_other_writer(tmp_path: Path) -> None:
    db = segment_states.fill(tmp_path, flock())
    with db.writing("test"):
        done = call("shep-cleanup", *place(tmp_path))
    assert done.returncode == 3


def test_impossible_shares_are_refused(tmp_path: Path) -> None:
    segment_states.fill(tmp_path, flock())
    where = place(tmp_path)
    (tmp_path / "cf" / "shepherd.toml").write_text("[cleanup]\nsmall = 51\n")
    done = call("shep-cleanup", *where)
    assert done.returncode == 2
    assert "[cleanup] small: must be from 0 to 50 percent, not 51" in done.stderr
