"""What a reap counts: by result, status, error and server, and the time in which hardly any server had something to do."""

from __future__ import annotations

from shepherd.dispatch.statistics import Figures, ReapStatistics
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.urls import qkey_of_address

CONTACTED = int(JournalFlag.CONTACTED)
HOP = int(JournalFlag.HOP)


def record(address: str, result: Result, reason: Reason, status: int = 200, flags: int = CONTACTED, ms: int = 100) -> Entry:
    return Entry(
        qkey=qkey_of_address(address),
        kind=Kind.PAGE,
        result=result,
        reason=reason,
        status=status,
        flags=flags,
        download_ms=ms,
        wire_bytes=10,
    )


def test_report_by_result_status_error_and_server() -> None:
    tally = ReapStatistics(1_000)
    tally.count(record("10.0.0.1", Result.STORED, Reason.GATHERED), "http://a.example")
    tally.count(record("10.0.0.1", Result.REDIRECT, Reason.REDIRECT, 301, CONTACTED | HOP), "http://a.example")
    tally.count(record("10.0.0.2", Result.SOFT, Reason.SERVER_ERROR, 503, ms=900), "http://b.example")
    tally.count(record("10.0.0.3", Result.DENIED, Reason.ROBOTS_DENIED, 0, 0), "http://c.example")
    report = tally.report(3_000)
    assert report["results"] == {"stored": 1, "soft": 1, "denied": 1}
    assert report["statuses"] == {"200": 1, "301": 1, "503": 1}
    assert report["errors"] == {"server-error": 1, "robots-denied": 1}
    assert (report["pages"], report["wire_bytes"], report["servers"], report["seconds"]) == (3, 30, 2, 2.0)
    assert [one["server"] for one in report["busiest"]] == ["10.0.0.1", "10.0.0.2"]
    assert report["slowest"][0] == {
        "server": "10.0.0.2",
        "site": "http://b.example",
        "contacts": 1,
        "errors": 1,
        "wire_bytes": 10,
        "average_ms": 900,
    }


def test_tail_is_the_time_with_less_than_a_tenth_of_the_servers() -> None:
    tally = ReapStatistics(0)
    for now_ms, active in ((0, 20), (1_000, 20), (2_000, 2), (3_000, 1), (4_000, 1)):
        tally.sample(now_ms, active)
    report = tally.report(5_000)
    assert report["tail_s"] == 2.0
    assert report["utilisation_permille"] == 1000 * (20 + 20 + 2 + 1 + 1) // (5 * 20)


def test_report_of_a_reap_that_did_nothing() -> None:
    assert ReapStatistics(5).report(5)["utilisation_permille"] == 0
    assert str(ReapStatistics(5).figures(5)) == "0 pages (0.0/s), 0.0 MB, 0 errors, 0 servers active"


def test_figures_behind_a_bar_are_short() -> None:
    assert Figures(1, 182_400_000, 53, 26, 1.0).short() == "182 MB, 53 err, 26 srv"
    for count in (0, 9_999, 10_000, 999_999, 12_345_678, 9_999_999_999):
        short = Figures(count, count * 10**6, count, count, 1.0).short()
        assert len(short) <= 28 and short.endswith(" srv"), short


def test_every_server_is_in_the_report_by_class_and_in_the_table() -> None:
    tally = ReapStatistics(0)
    for number in range(30):  # the first was asked once, the second twice, and so on; the first of each failed
        address = f"10.0.0.{number + 1}"
        tally.count(record(address, Result.HARD, Reason.CLIENT_ERROR, 404, ms=5_000), "http://a.example")
        for _ in range(number):
            tally.count(record(address, Result.STORED, Reason.GATHERED, ms=10), "http://a.example")
    tally.count(record("10.0.1.1", Result.STORED, Reason.GATHERED, ms=10), "http://b.example")
    report, table = tally.report(1_000), list(tally.servers())
    assert report["servers_by_contacts"] == {"1": 2, "2-9": 8, "10-99": 21}
    assert report["servers_by_errors_percent"] == {"0": 1, "1-9": 20, "10-49": 8, "50-99": 1, "100": 1}
    assert report["servers_by_average_ms"] == {"under 100": 1, "100-999": 25, "1000-9999": 5}
    assert all(sum(report[f"servers_by_{name}"].values()) == 31 for name in ("contacts", "errors_percent", "average_ms"))
    assert len(report["failing"]) == 10 and "10.0.1.1" not in {one["server"] for one in report["failing"]}
    assert [one["server"] for one in table] == [f"10.0.0.{number + 1}" for number in range(30)] + ["10.0.1.1"]
    assert (sum(one["contacts"] for one in table), sum(one["errors"] for one in table)) == (466, 30)
