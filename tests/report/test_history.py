"""What `shep explain` says of one record of a journal."""

from __future__ import annotations

from shepherd.formats.tables import JournalFlag, Reason, Result
from shepherd.report.history import CycleEntry, FetchRecord


def phrases(result: Result, reason: Reason, flags: int) -> str:
    record = FetchRecord(start_ms=1_000, result=result, reason=reason, status=200, download_ms=7, hops=0, flags=flags)
    entry = CycleEntry("000003", "cork", 2, None, (record,), journal=True)
    return entry.line()[1]


def test_contact_is_called_a_fetch() -> None:
    assert "; fetched: stored (gathered) at 1970-01-01T00:00:01.000Z, status 200, 7 ms" in phrases(
        Result.STORED, Reason.GATHERED, JournalFlag.CONTACTED
    )


def test_record_without_a_contact_is_not_called_a_fetch() -> None:
    assert "; not fetched: denied (robots-denied) at 1970-01-01T00:00:01.000Z, nobody was asked" in phrases(
        Result.DENIED, Reason.ROBOTS_DENIED, 0
    )


def test_page_that_cost_its_parser_much_is_called_costly() -> None:
    assert phrases(Result.STORED, Reason.GATHERED, JournalFlag.CONTACTED | JournalFlag.COSTLY).endswith("7 ms, costly")
