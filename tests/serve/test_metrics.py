"""/metrics: every name documented, every value what the database says, and counters that count once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shepherd import config as configuration
from shepherd.report import logbook
from shepherd.serve.counters import DatabaseCounters
from shepherd.serve.metrics import Metrics
from shepherd.serve.status import StatusFigures
from shepherd.store.disk import locks, names
from tests.support.page_states import PAGES, Herd, make_herd
from tests.worlds import NOW

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "metrics.md").read_text()
STEPS = [
    {"step": "shep-plan", "seconds": 1.5, "status": 0, "report": {"pages": 9}},
    {"step": "shep-reap", "seconds": 4, "status": 0, "report": {"pages": 8, "wire_bytes": 5, "errors": {"dns": 2}}},
    {"step": "shep-reap", "seconds": 2, "status": 0, "report": {"pages": 1, "wire_bytes": 5, "errors": {}}},
]


def metrics(herd: Herd) -> Metrics:
    figures = StatusFigures(herd.store, configuration.load(herd.cf), lambda: float(NOW))
    return Metrics(figures, herd.store.log_path)


def values(exposed: bytes) -> dict[str, float]:
    """By name and labels, as they stand in a line."""
    samples = [one for family in text_string_to_metric_families(exposed.decode()) for one in family.samples]
    return {
        one.name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(one.labels.items())) + "}" if one.labels else ""): one.value
        for one in samples
    }


def append(path: Path, *entries: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


@pytest.fixture
def busy(tmp_path: Path) -> Herd:
    """A database with a cycle behind it and a reap under way, held by this process."""
    herd = make_herd(tmp_path)
    cycle = {"start": NOW - 99, "seconds": 8.0, "status": 0, "state": "000002", "steps": STEPS}
    append(herd.db / "log" / logbook.CYCLES, cycle)
    tell(herd, 40)
    return herd


def tell(herd: Herd, pages: int, pid: int = 0, phase: str = "000003.reap") -> dict[str, Any]:
    figures = {"pages": pages, "wire_bytes": 10 * pages, "errors": 1, "active": 3, "seconds": 4.0}
    told = {"program": "shep-reap", "pid": pid or os.getpid(), "since": NOW - 4.0, "phase": phase, "done": pages, "total": 160}
    told |= {"unit": "page", "figures": figures}
    (herd.db / "log" / logbook.NOW).write_text(json.dumps(told))
    return told


# --- names ------------------------------------------------------------------------------------------------------


def documented() -> dict[str, tuple[str, list[str]]]:
    rows = re.findall(r"^\| `(shepherd_\w+)` \| (\w+) \| ([^|]*)\|", DOCS, re.MULTILINE)
    return {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}


def test_metrics_are_those_of_the_docs(busy: Herd) -> None:
    one = metrics(busy)
    one.answered("/v1/status", 200, 10, 0.1)
    one.exposed()
    append(busy.db / "log" / logbook.REAPS, {"state": "000001.reap", "results": {"stored": 1}, "errors": {"dns": 1}})
    append(busy.db / "log" / logbook.CYCLES, {"start": NOW, "seconds": 1, "status": 0, "steps": STEPS})
    busy.store.lease(None, "7@here", "x", NOW * 1_000, 3_600)
    busy.store.inbox.drop(busy.store.new_item_name(NOW), [{"op": "insert", "url": "http://a.example/"}])
    found: dict[str, tuple[str, list[str]]] = {}
    for family in text_string_to_metric_families(metrics(busy).exposed().decode() + one.exposed().decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        if name.endswith("_created"):  # the client library adds them
            continue
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        kind, known = found.get(name, (family.type, []))
        found[name] = (kind, sorted({*known, *labels}))
    assert found == {name: (kind, sorted(labels)) for name, (kind, labels) in documented().items()}


@pytest.mark.parametrize("text", [DOCS, (ROOT / "docs" / "grafana.json").read_text()], ids=["docs", "grafana"])
def test_dashboard_and_rules_use_only_known_metrics(text: str) -> None:
    known = {
        name + end for name, (kind, _) in documented().items() for end in ("", *(("_bucket",) if kind == "histogram" else ()))
    }
    assert set(re.findall(r"\bshepherd_\w+", text)) <= known


def test_every_panel_of_the_dashboard_has_a_place_and_a_query() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["targets"] and all("shepherd_" in target["expr"] for target in panel["targets"])
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


# --- values -----------------------------------------------------------------------------------------------------


def test_values_are_what_the_database_says(busy: Herd) -> None:
    held = locks.lock(busy.db / names.LOCK, "shep-reap")
    try:
        found = values(metrics(busy).exposed())
    finally:
        held.release()
    expected = {
        "shepherd_state_number": 2,
        "shepherd_state_made_timestamp_seconds": NOW,
        "shepherd_urls": len(PAGES),
        "shepherd_sites": 3,
        "shepherd_servers{backoff=1}": 1,
        "shepherd_running": 1,
        "shepherd_phase_info{program=shep-reap}": 1,
        "shepherd_phase_progress_ratio": 0.25,
        "shepherd_reap_pages_per_second": 10,
        "shepherd_reap_servers_active": 3,
        "shepherd_reaped_pages_total": 0,  # since the server was started
        "shepherd_cycle_seconds": 8,
        "shepherd_cycle_step_seconds{step=reap}": 6,
        "shepherd_cycle_urls{what=planned}": 9,
        "shepherd_cycle_urls{what=pages}": 9,
        "shepherd_cycle_urls{what=errors}": 2,
        "shepherd_fault": 0,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not any(name.startswith("shepherd_cycle_urls{what=new") for name in found)  # no merge was there to count
    assert found["shepherd_disk_free_bytes"] > 0


def test_foreign_text_does_not_break_a_line(tmp_path: Path) -> None:
    herd = make_herd(tmp_path)
    owner = 'x"} 1\nshepherd_urls 666 \\'
    herd.store.lease(None, owner, "p", NOW * 1_000, 3_600)
    exposed = metrics(herd).exposed()
    families = {one.name: one for one in text_string_to_metric_families(exposed.decode())}
    assert [one.labels["owner"] for one in families["shepherd_leases"].samples] == [owner]
    assert [one.value for one in families["shepherd_urls"].samples] == [len(PAGES)]


def test_servers_do_not_share_their_counters(tmp_path: Path) -> None:
    one, other = (metrics(make_herd(tmp_path / name)) for name in ("a", "b"))
    one.answered("/v1/status", 200, 70, 0.1)
    assert values(one.exposed())["shepherd_serve_sent_bytes_total{route=/v1/status}"] == 70
    assert not any("serve_sent" in name for name in values(other.exposed()))


# --- counters ---------------------------------------------------------------------------------------------------


def test_page_of_a_reap_under_way_is_counted_once(busy: Herd) -> None:
    log = busy.db / "log"
    totals = DatabaseCounters(log)
    totals.look(tell(busy, 40))  # there when the server came
    assert totals.reaped["pages"] == 0
    totals.look(tell(busy, 100))
    assert totals.reaped["pages"] == 60
    totals.look(tell(busy, 30, pid=77))  # it was killed, and goes on
    assert totals.reaped["pages"] == 90
    append(log / logbook.REAPS, {"state": "000003.reap", "pages": 150, "wire_bytes": 1_500, "errors": {"dns": 4}})
    totals.look(tell(busy, 30, pid=77))  # it has ended; now.json is still there
    assert totals.reaped["pages"] == 60 + 30 + 20 and totals.errors == {"dns": 4}
    totals.look(None)
    totals.look(tell(busy, 5, phase="000005.reap"))
    append(log / logbook.REAPS, {"state": "000005.reap", "pages": 7}, {"state": "000007.reap", "pages": 1_000})
    totals.look(None)
    assert totals.reaped["pages"] == 110 + 7 + 1_000


def test_log_that_is_rotated_or_torn_costs_no_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cycle = {"start": NOW, "status": 0, "steps": []}
    append(log / logbook.CYCLES, cycle, cycle)
    totals = DatabaseCounters(log)
    totals.look(None)
    assert totals.cycles == {}
    with (log / logbook.CYCLES).open("a") as file:
        file.write('{"start": 1, "st\n[]\n' + json.dumps(cycle)[:20])
    totals.look(None)
    with (log / logbook.CYCLES).open("a") as file:
        file.write(json.dumps(cycle)[20:] + "\n")
    totals.look(None)
    assert totals.cycles == {"0": 1}
    os.rename(log / logbook.CYCLES, log / "old")
    totals.look(None)
    append(log / logbook.CYCLES, cycle | {"status": 5})
    totals.look(None)
    assert totals.cycles == {"0": 1, "5": 1}
