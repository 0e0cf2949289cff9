"""The figures of the status page, against databases and logs of known content, and against what the programs say of them."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from shepherd import config as configuration
from shepherd.config import CfPlace, last_cf
from shepherd.formats.tables import Flag, RowType
from shepherd.report import logbook
from shepherd.serve.cache import MOST, Cache
from shepherd.serve.reap_rate import ReapSpeed
from shepherd.serve.status import MOST_POINTS, StatusFigures
from shepherd.store.state.lease import SERVED
from shepherd.urls import qkey_of_address
from tests.support.page_states import PAGES, Herd, add_state, make_herd
from tests.support.programs import call
from tests.worlds import NOW

SERVERS = {
    "qkey": [qkey_of_address(f"127.0.0.{n}") for n in range(1, 6)],
    "delay_ms": [500, 1_000, 1_000, 10_000, 4_000_000],
    "backoff": [0, 0, 3, 0, 12],
    "errors": [0, 1, 30, 2, 9],
    "fetches": [9, 9, 40, 8, 10],
    "documents": [1, 2, 3, 4, 5],
}


GATHERED = [page for page in PAGES if page.type == RowType.GATHERED and not page.columns.get("flags", 0) & Flag.ROBOTS]


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("herd"))


@pytest.fixture
def own_herd(tmp_path: Path) -> Herd:
    return make_herd(tmp_path)


def figures(herd: Herd, now: float = NOW) -> StatusFigures:
    return StatusFigures(herd.store, configuration.load(herd.cf), lambda: now)


def program(herd: Herd, *arguments: str) -> list[dict[str, Any]]:
    done = call(*arguments, "--json", SHEPHERD_DB=str(herd.db), SHEPHERD_CF=str(herd.cf))
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def log(herd: Herd, name: str, lines: list[Any]) -> None:
    (herd.db / "log").mkdir(exist_ok=True)
    (herd.db / "log" / name).write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


# --- what is going on -------------------------------------------------------------------------------------------


def test_status_says_what_the_program_says(own_herd: Herd) -> None:
    own_herd.store.lease(None, "7@here", SERVED + "an index", NOW * 1_000, 3_600)
    own_herd.store.lease(1, "8@there", "old", (NOW - 9_000) * 1_000, 1)
    [told] = program(own_herd, "shepherd", "status")
    found = figures(own_herd).status()
    for key in ("running", "now", "states", "cleaned", "inbox", "fault"):
        assert found[key] == told[key], key
    assert found["disk"].keys() == told["disk"].keys() and found["disk"]["segments_bytes"] == told["disk"]["segments_bytes"]
    assert [(one["owner"], one["purpose"], one["expired"]) for one in found["leases"]] == [
        ("8@there", "old", True),
        ("7@here", "an index", False),
    ]
    totals = found["totals"]
    assert (totals["state"], totals["rows"], totals["urls"], totals["sites"]) == (2, len(PAGES), len(PAGES), 3)
    assert (totals["servers"], totals["backing_off"], totals["gathered"]) == (1, 0, len(GATHERED))


def test_status_does_not_reveal_the_path_of_the_database(own_herd: Herd) -> None:
    (own_herd.db / "state" / "000002" / "control").write_text("damage")
    found = figures(own_herd).status()
    assert "state/000002/control" in found["fault"] and found["totals"] is None
    assert str(own_herd.db) not in json.dumps(found)


def test_status_says_which_configuration_answers_and_whether_it_was_the_last(own_herd: Herd) -> None:
    place = CfPlace(own_herd.cf, "")
    assert figures(own_herd).status()["configuration"] == {"place": "cf", "digest": place.digest, "is_last": None}
    for ran_with, is_last in ((place, True), (CfPlace(own_herd.db, ""), False)):
        text = last_cf.to_text(last_cf.of_place(ran_with), own_herd.db)
        (own_herd.db / last_cf.FILE).write_text(text)
        assert figures(own_herd).status()["configuration"]["is_last"] is is_last


def test_newer_state_is_seen(own_herd: Herd) -> None:
    now = [float(NOW)]
    one = StatusFigures(own_herd.store, configuration.load(own_herd.cf), lambda: now[0])
    assert one.sites("urls", 9)["state"] == 2
    add_state(own_herd, PAGES[:2])
    found = one.sites("urls", 9)
    assert (found["state"], found["urls"], found["sites"]) == (3, 2, 1)


def test_status_does_not_read_the_index(own_herd: Herd) -> None:
    """What is not there cannot be read: all of it must come from the tables of sites and servers."""
    shutil.rmtree(own_herd.db / "state" / "000002" / "index")
    (own_herd.db / "state" / "000002" / "index").mkdir()
    one = figures(own_herd)
    assert one.status()["totals"]["rows"] == len(PAGES)
    assert len(one.sites("gathered", 9)["top"]) == 3 and len(one.servers("delay", 9, False)["top"]) == 1


def test_status_leaves_no_lease(own_herd: Herd) -> None:
    one = figures(own_herd)
    one.status(), one.sites("urls", 3), one.servers("pages", 3, True), one.explain("http://a.example/")
    assert own_herd.store.leases.all() == []


# --- what was ---------------------------------------------------------------------------------------------------


def step(name: str, **report: Any) -> dict[str, Any]:
    return {"step": f"shep-{name}", "seconds": 1.5, "status": 0, "report": report}


def test_cycle_is_shown_as_by_shep_reports(own_herd: Herd) -> None:
    reap = step("reap", pages=8, wire_bytes=900, errors={"client-error": 2, "dns": 1})
    steps = [step("plan", pages=10), reap, step("merge", new=5), step("select", forgotten=4)]
    cycles = [
        {"start": NOW, "seconds": 9.5, "status": 0, "state": "000002", "steps": steps},
        '{"start": 7, "steps": [{"st',
        {"start": NOW + 60, "seconds": 1, "status": 4, "state": "000002", "steps": [None, {"step": "shep-plan", "report": 7}]},
        {"start": NOW + 90, "seconds": 2, "status": 0, "state": "000002", "steps": [reap, reap]},
    ]
    log(own_herd, logbook.CYCLES, cycles)
    found = figures(own_herd).history(10, 1)
    first, empty, last = found["cycles"]
    assert {key: first[key] for key in ("planned", "pages", "errors", "wire_bytes", "new", "forgotten", "seconds")} == {
        "planned": 10, "pages": 8, "errors": 3, "wire_bytes": 900, "new": 5, "forgotten": 4, "seconds": 9.5,
    }  # fmt: skip
    assert (empty["planned"], empty["pages"], empty["status"]) == (None, None, 4)
    assert last["pages"] == 16 and last["steps"] == [["reap", 1.5], ["reap", 1.5]]
    assert found["errors"] == {"client-error": 6, "dns": 3}
    assert [one["start"] for one in figures(own_herd).history(1, 1)["cycles"]] == [NOW + 90]


def test_plot_of_a_month_has_a_bounded_number_of_points(own_herd: Herd) -> None:
    lines: list[Any] = [
        {"time": NOW - 60 * n, "state": "x", "seconds": 60, "pages": n, "wire_bytes": 10, "errors": 1, "active": 3}
        for n in range(3_000, 0, -1)
    ]
    log(own_herd, logbook.MINUTES, ["{", *lines, '{"time": NaN}', {"time": NOW, "pages": -1}, [], {"time": "x"}])
    rates = figures(own_herd).history(1, 24 * 31)["rates"]
    assert len(rates) <= MOST_POINTS and rates[-1]["time"] == NOW - 60
    assert sum(one["pages"] for one in rates) == sum(range(1, 3_001)) and sum(one["seconds"] for one in rates) == 180_000
    assert len(figures(own_herd).history(1, 1)["rates"]) == 60


# --- servers, sites, URLs ---------------------------------------------------------------------------------------


def test_servers_are_those_of_the_program(tmp_path: Path) -> None:
    herd = make_herd(tmp_path, servers=SERVERS)
    found = figures(herd).servers("delay", 3, False)
    assert found["top"] == program(herd, "shep", "servers", "--sort", "delay", "--limit", "3")
    assert (found["servers"], found["backing_off"]) == (5, 2)
    delays = {one["from_ms"]: (one["servers"], one["backing_off"]) for one in found["delays"] if one["servers"]}
    assert delays == {0: (1, 0), 1_000: (1, 0), 5_000: (1, 1), 10_000: (1, 0), 3_600_000: (1, 1)}
    assert found["backoffs"] == [{"times": 1, "servers": 3}, {"times": 8, "servers": 1}, {"times": 4096, "servers": 1}]
    slowed = figures(herd).servers("errors", 9, True)["top"]
    assert [one["address"] for one in slowed] == ["127.0.0.3", "127.0.0.5"]


def test_sites_are_those_of_the_program(own_herd: Herd) -> None:
    found = figures(own_herd).sites("urls", 2)
    told = program(own_herd, "shep", "sites", "--sort", "urls", "--limit", "2")
    gathered = {one["site"]: one.pop("gathered") for one in found["top"]}
    assert found["top"] == [{key: value for key, value in one.items() if key != "types"} for one in told]
    assert gathered["http://a.example"] == sum(page.url.startswith("http://a.example/") for page in GATHERED)
    assert (found["sites"], found["urls"], found["gathered"]) == (3, len(PAGES), len(GATHERED))


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/", "http://a.example/moved", "http://a.example/private/old", "http://a.example/linked",
        "http://nowhere.example/?utm_source=x", "HTTP://A.EXAMPLE:80/../gone#x", "http://a.example/<script>\u202e",
    ],
)  # fmt: skip
def test_url_is_explained_as_by_the_program(herd: Herd, url: str) -> None:
    [told] = program(herd, "shep", "explain", url, "--now", str(NOW))
    found = figures(herd).explain(url)
    assert str(herd.cf) not in json.dumps(found)
    told["filter"]["file"], told["equivalence"]["path"] = "filter", "url-equiv"
    told["verdict"] = told["verdict"].replace(f"{herd.cf}/", "")
    assert found == told


# --- kept for a while -------------------------------------------------------------------------------------------


def test_many_who_ask_at_once_share_one_computation() -> None:
    kept, asked, together = Cache(), list[int](), threading.Barrier(8)

    def ask() -> None:
        together.wait()
        kept.get("a", 3_600, lambda: asked.append(1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [1]


def test_what_takes_long_is_cached_longer() -> None:
    now = [0.0]
    kept = Cache(lambda: now[0])

    def slow() -> float:
        now[0] += 3
        return now[0]

    assert kept.get("a", 1, slow) == 3
    now[0] = 59
    assert kept.get("a", 1, slow) == 3
    now[0] = 61
    assert kept.get("a", 1, slow) == 64
    assert kept.get("a", 1, slow, of="another") == 67
    for n in range(2 * MOST):
        kept.get(n, 1, lambda: None)
    assert len(kept._answers) == MOST


def test_failure_is_not_cached() -> None:
    kept = Cache()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError):
        kept.get("a", 60, fails)
    assert kept.get("a", 60, lambda: 5) == 5


def test_speed_is_that_of_this_reap_and_of_the_last_minute() -> None:
    def progress(pages: int, seconds: float, pid: int = 1) -> dict[str, Any]:
        return {"pid": pid, "since": 0, "figures": {"pages": pages, "wire_bytes": 100 * pages, "seconds": seconds}}

    speed = ReapSpeed()
    assert speed.of(progress(50, 10.0), 10) == {"pages_per_s": 5.0, "bytes_per_s": 500.0}  # nothing to compare with
    assert speed.of(progress(150, 15.0), 15) == {"pages_per_s": 20.0, "bytes_per_s": 2_000.0}
    assert speed.of(progress(150, 60.0), 60) == {"pages_per_s": 2.5, "bytes_per_s": 250.0}  # all of it is too long ago
    assert speed.of(progress(150, 63.0), 63) == {"pages_per_s": 0.0, "bytes_per_s": 0.0}
    assert speed.of(progress(8, 2.0, pid=2), 65) == {"pages_per_s": 4.0, "bytes_per_s": 400.0}
    assert speed.of(None, 66) is None and speed.of({"pid": 3, "figures": "x"}, 67) is None
    assert speed.of(progress(0, 0.0), 68) == {"pages_per_s": 0.0, "bytes_per_s": 0.0}
