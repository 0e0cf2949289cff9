"""A purge from the request to the last byte: what comes again is erased again, and what was never known is kept out."""

from __future__ import annotations

from pathlib import Path

from shepherd.config import load
from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.rebuild import recover
from shepherd.errors import NothingToDo
from shepherd.formats.tables import Reason, RowType
from shepherd.store.check import check
from shepherd.store.state import lookup
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.urls import parse
from tests.crash import cycle_steps
from tests.support.harvests import NOW, PRINTS, Page, begin, harvest, reap, run

URL = "http://a.example/secret"
SECRET = "which nobody may keep"
OTHERS = tuple(Page(f"http://a.example/{n}", f"a page {n} " * 20) for n in range(3))
DAY = 86_400
RARELY = "[store]\nkeep_states = 1\n[cleanup]\nreserve_bytes = 0\nsparse = 1\nsmall = 0\n"  # nothing is rewritten by chance


def clean(db: Path, now: int) -> State | None:
    with Database(db).writing("a test") as writer:
        try:
            return cleanup.run(writer, load(cycle_steps.cf_of(db)), now, lambda _rows: None)
        except NothingToDo:
            return None


def ask(db: Path, number: int, **request: object) -> None:
    Database(db).inbox.drop(cycle_steps.ITEM.format(number), [{"url": URL} | request])


def anew() -> list[Page]:
    """What makes the segments of a harvest worth keeping."""
    return [Page(page.url, f"{page.body} anew", NOW + 2 * DAY) for page in OTHERS]


def bring(db: Path, number: int, *pages: Page, end: int) -> None:
    """Apply a harvest from elsewhere."""
    source = harvest(db.parent / f"source{number}", pages, end=end)
    Database(db).inbox.drop_harvest(cycle_steps.ITEM.format(number), source)
    run(db, "cork", now=end)


def holds(db: Path, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in (Database(db).closed().path / "objects").iterdir())


def row_of(db: Path, url: str = URL) -> dict[str, int]:
    state = Database(db).closed()
    (row,) = lookup.rows_of(state, *PRINTS.of(parse(url))[:2])
    return {name: int(column[0]) for name, column in state.index.slice(row, row + 1).items()}


def purged(tmp_path: Path) -> Path:
    """A database in which the page was gathered, purged and erased, and nothing is left to clean."""
    db = begin(tmp_path / "db", [URL, *(page.url for page in OTHERS)])
    (cycle_steps.cf_of(db) / "shepherd.toml").write_text(RARELY)
    reap(db, ("reap", [Page(URL, SECRET), *OTHERS], {}))
    run(db, "cork")
    assert holds(db, SECRET)
    ask(db, 2, op="delete", purge=True)
    run(db, "merge", "select", "record", now=NOW + 99)
    assert clean(db, NOW + DAY) is not None
    assert not holds(db, SECRET)
    return db


def test_purged_bytes_that_a_harvest_brings_again_are_erased_by_the_next_cleanup(tmp_path: Path) -> None:
    db = purged(tmp_path)
    bring(db, 3, Page(URL, f"{SECRET}, again", NOW + 2 * DAY), *anew(), end=NOW + 2 * DAY)
    assert holds(db, SECRET)
    assert clean(db, NOW + 3 * DAY) is not None
    assert not holds(db, SECRET)
    assert row_of(db)["reason"] == Reason.PURGED


def test_purged_bytes_that_come_under_an_equivalent_name_are_erased_by_the_next_cleanup(tmp_path: Path) -> None:
    db = purged(tmp_path)
    bring(db, 3, Page("https://www.a.example/secret", SECRET, NOW + 2 * DAY), *anew(), end=NOW + 2 * DAY)
    assert holds(db, SECRET)
    clean(db, NOW + 3 * DAY)
    assert not holds(db, SECRET)


def test_cleanup_after_the_log_was_lost_erases_purged_bytes(tmp_path: Path) -> None:
    db = purged(tmp_path)
    bring(db, 3, Page(URL, SECRET, NOW + 2 * DAY), *anew(), end=NOW + 2 * DAY)
    (db / "log" / "cleanups.jsonl").unlink()
    clean(db, NOW + 3 * DAY)
    assert not holds(db, SECRET)


def test_purge_without_news_makes_no_cleanup_scan_everything(tmp_path: Path) -> None:
    """Old segments are looked at once: damage in a header there is not even met."""
    db = purged(tmp_path)
    state = Database(db).closed()
    path = state.path / "objects" / f"{state.segments()[0]:08d}"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)
    assert clean(db, NOW + 3 * DAY) is None


def test_purge_of_what_was_deleted_before_erases_its_bytes(tmp_path: Path) -> None:
    """The deletion has left a tombstone already, which cleanups have seen since."""
    db = begin(tmp_path / "db", [URL, *(page.url for page in OTHERS)])
    (cycle_steps.cf_of(db) / "shepherd.toml").write_text(RARELY)
    reap(db, ("reap", [Page(URL, SECRET), *OTHERS], {}))
    run(db, "cork")
    ask(db, 2, op="delete")
    run(db, "merge", "select", "record", now=NOW + 99)
    clean(db, NOW + DAY)
    assert holds(db, SECRET)  # out of reach, and not worth a copy
    ask(db, 3, op="delete", purge=True)
    run(db, "merge", "select", "record", now=NOW + 2 * DAY)
    clean(db, NOW + 3 * DAY)
    assert not holds(db, SECRET)


def test_purge_of_an_unknown_url_outlasts_a_link_to_it(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", [page.url for page in OTHERS])
    unknown = ("http://a.example/secret", "http://other.example/secret")
    for number, url in enumerate(unknown, 2):
        ask(db, number, op="delete", purge=True, url=url)
    merged = run(db, "merge", now=NOW + 99).report()
    assert (merged["purge requests"], merged["purged before they were known"]) == (2, 2)
    run(db, "select", "record", now=NOW + 99)
    reap(db, ("reap", list(OTHERS), dict.fromkeys((*unknown, "https://www.other.example/secret"), 60_000)), now=NOW + 100)
    run(db, "cork", "merge", "select", "record", now=NOW + 100)
    for url in unknown:
        row = row_of(db, url)
        assert (row["type"], row["reason"], row["flags"]) == (RowType.FORGOTTEN, Reason.PURGED, 0)
        assert Database(db).closed().objects.head(row["oid"]).url == url
    assert [str(fault) for fault in check.walk(Database(db)) if not fault.note] == []


def test_purge_of_a_known_url_is_not_counted_as_unknown(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", [URL])
    before = row_of(db)
    ask(db, 2, op="delete", purge=True)
    assert run(db, "merge", now=NOW + 99).report()["purged before they were known"] == 0
    run(db, "select", "record", now=NOW + 99)
    assert row_of(db)["weight"] == before["weight"]


def test_requests_change_nothing_of_deleted_and_purged_rows(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", [URL, OTHERS[0].url])
    ask(db, 2, op="delete", purge=True)
    ask(db, 3, op="delete", url=OTHERS[0].url)
    run(db, "merge", "select", "record", now=NOW + 99)
    before = [row_of(db, url) for url in (URL, OTHERS[0].url)]
    for number, url in enumerate((URL, OTHERS[0].url)):
        ask(db, 10 + 2 * number, op="set", pinned=True, weight=65_535, url=url)
        ask(db, 11 + 2 * number, op="refresh", url=url)
    ask(db, 20, op="insert", pinned=True, weight=65_535)
    report = run(db, "merge", now=NOW + 199).report()
    assert (report["requests of deleted URLs"], report["requests of purged URLs"]) == (3, 3)
    assert report["inserts of purged URLs"] == 1
    run(db, "select", "record", now=NOW + 199)
    assert [row_of(db, url) for url in (URL, OTHERS[0].url)] == before


def test_rebuild_keeps_what_was_purged_purged(tmp_path: Path) -> None:
    """All that is left of the index are the buckets; a harvest from elsewhere has brought a newer one than the tombstone."""
    db = purged(tmp_path)
    bring(db, 3, Page(URL, SECRET, NOW + 3 * DAY), end=NOW + 3 * DAY + 9)
    for path in (db / "state").glob("*/index/*"):
        path.unlink()
    with Database(db).writing("a test", tidy=False) as writer:
        recover.recover(writer, recover.Recovery(load(cycle_steps.cf_of(db)), NOW + 4 * DAY, lambda _count: None), True)
    row = row_of(db)
    assert (row["type"], row["reason"]) == (RowType.FORGOTTEN, Reason.PURGED)
