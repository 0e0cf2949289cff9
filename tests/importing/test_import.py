"""shep-import as an operator meets it: a crawl is imported from WARC files, once, and bad records cost only themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.formats.bucket import Codec
from shepherd.formats.tables import Flag, Reason, RowType
from shepherd.store.check import check
from shepherd.store.state import lookup
from shepherd.urls import parse
from tests.importing.crawl import GATHERED_S, NOW, ONE, PLAIN, ROBOTS, RULES, Home, crawl, made
from tests.support.programs import ROOT
from tests.support.waiting import children, wait_until
from tests.support.warcs import HTML, PAGE, Warc


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return made(tmp_path)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """For tests that change nothing."""
    home = made(tmp_path_factory.mktemp("imported"))
    home.run(home.write(crawl().data))
    return home


# --- what is taken over -----------------------------------------------------------------------------------------


def test_status_headers_body_time_and_address_are_imported(home: Home) -> None:
    (told,) = home.json_lines(home.write(crawl(packed=False, version="1.1").data))
    assert told["taken"] == {"stored": 3, "robots files": 1, "failed": 1, "redirect": 1}
    assert (told["bad"], told["new"], told["left_out"]) == (0, 5, {})
    assert told["records"] == {"warcinfo": 1, "request": 1, "response": 6, "metadata": 1}
    one = home.document(ONE)
    attributes = one.bucket.attributes
    assert attributes["S"] == b"HTTP/1.1 200 OK"
    assert attributes["H"] == f"Content-Type: {HTML}\r\nX-Odd: a  b\r\n".encode()
    assert (attributes["A"], attributes["t"], attributes["P"]) == (b"192.0.2.7", b"One", b"WARC file x.warc.gz")
    assert (one.body(), one.bucket.header.time_ms) == (PAGE, GATHERED_S * 1000)
    row = home.row(ONE)
    assert (row["gathered"], row["checked"], row["status"], row["type"]) == (GATHERED_S, GATHERED_S, 200, RowType.GATHERED)
    assert not row["flags"] & Flag.INITIAL  # limits hold for it as for what a link led to
    packed_one = home.document("http://b.example/packed")
    assert (packed_one.bucket.header.codec, packed_one.body()) == (Codec.GZIP_SENT, PAGE)
    assert home.row("http://b.example/cut")["flags"] & Flag.TRUNCATED
    gone = home.row("http://a.example/gone")
    assert (gone["type"], gone["reason"], gone["status"]) == (RowType.ERROR, Reason.CLIENT_ERROR, 404)
    assert home.row("http://a.example/moved")["flags"] & Flag.REDIRECT
    assert [fault for fault in check.walk(home.db) if not fault.note] == []


def test_robots_file_becomes_the_rules_of_its_site(imported: Home) -> None:
    state = imported.db.furthest()
    at = lookup.site_row(state, state.prints.half("http://a.example"))
    assert at is not None
    site = {name: state.sites[name].value(at) for name in ("robots_status", "robots_checked", "crawl_delay_ms", "robots_oid")}
    assert (site["robots_status"], site["robots_checked"], site["crawl_delay_ms"]) == (200, GATHERED_S, 3000)
    assert state.objects.get(site["robots_oid"]).body() == RULES
    assert imported.row(ROBOTS)["flags"] & Flag.ROBOTS
    assert "denied" in imported.shep("robots", "http://a.example/x/y")


def test_import_keeps_a_state_that_a_cursor_has_not_exported(home: Home) -> None:
    (home.path / "cf" / "shepherd.toml").write_text('[store]\nkeep_states = 1\n[export]\ncursors = ["archive"]\n')
    home.run(home.write(crawl().data))
    assert home.db.states()[0].number == 1


def test_imported_contacts_delay_no_server(imported: Home) -> None:
    state = imported.db.furthest()
    assert (state.servers.rows, state.control.unsure) == (0, 0)


def test_links_are_imported_only_if_wanted(home: Home, tmp_path: Path) -> None:
    name = home.write(crawl().data)
    (told,) = home.json_lines(name)
    assert told["links"] > 0
    home.merge()
    assert home.row("http://a.example/two")["weight"] == home.row(ONE)["weight"] - 1_000
    assert home.row("https://other.example/x")["reason"] == Reason.LINK
    assert home.row("http://b.example/new")["type"] == RowType.UNGATHERED  # where the redirect leads
    without = made(tmp_path / "without")
    without.run("--no-links", without.write(crawl().data))
    assert without.db.furthest().numbered("contrib") == []
    without.run(program="shep-merge", status=4)


def test_robots_file_of_a_site_without_a_page_is_reported_as_left_out(home: Home) -> None:
    """Its site has no page, so it has no row."""
    warc = Warc()
    warc.response(ONE, headers=(("Content-Type", HTML),))
    warc.response("http://empty.example/robots.txt", RULES, headers=PLAIN)
    file = home.write(warc.data)
    (told,) = home.json_lines("--no-links", file)
    assert (told["taken"]["stored"], told["taken"]["robots files"]) == (1, 0)
    assert told["left_out"] == {"robots files of sites without a page": 1}
    states = home.db.states()
    (told,) = home.json_lines("--no-links", file, status=4)
    assert (told["states"], home.db.states()) == ([], states)  # a second import finds nothing to do


def test_second_import_of_a_file_changes_nothing(imported: Home) -> None:
    before, states = imported.facts(), imported.db.states()
    (told,) = imported.json_lines("x.warc.gz", status=4)
    assert (told["taken"], told["left_out"]) == ({}, {"known already": 6})
    assert (imported.facts(), imported.db.states()) == (before, states)
    assert os.listdir(imported.path / "db" / "inbox") == []


# --- several records of a document --------------------------------------------------------------------------------


@pytest.mark.parametrize("round_records", ["1000", "5"])
def test_newest_record_wins_in_any_order(home: Home, round_records: str) -> None:
    warc = Warc()
    orders = (0, 1, 2), (2, 1, 0), (1, 2, 0)
    for order in orders:
        for n in order:
            warc.response(f"{ONE}?{order}", b"version %d" % n, f"2020-02-0{n + 1}T00:00:00Z", headers=PLAIN)
    home.run("--round", round_records, home.write(warc.data))
    for order in orders:
        assert home.document(parse(f"{ONE}?{order}").href).body() == b"version 2"


def test_failure_does_not_hide_the_body_that_came_before_it(home: Home) -> None:
    warc = Warc()
    warc.response(ONE, date="2020-03-01T00:00:00Z", status="503 Busy", body=b"")
    warc.response(ONE, date="2020-02-01T00:00:00Z")
    home.run(home.write(warc.data))
    row = home.row(ONE)
    assert (row["type"], row["reason"], row["retry"]) == (RowType.GATHERED, Reason.SERVER_ERROR, 1)
    assert home.document(ONE).body() == PAGE


def test_revisit_means_unchanged_since_what_it_refers_to(home: Home) -> None:
    first, second = "2020-02-01T00:00:00Z", "2020-03-01T00:00:00Z"
    warc = Warc()
    warc.revisit(ONE, second, ONE, first)  # before what it refers to
    warc.response(ONE, date=first)
    lost = warc.revisit("http://a.example/never", second, "http://a.example/never", first)
    other = warc.revisit("http://a.example/other", second, ONE, first)
    home.write(warc.data)
    said = home.run("-v", "x.warc.gz")
    assert f"x.warc.gz at {lost}: skipped: revisits of what is not known" in said
    assert f"x.warc.gz at {other}: skipped: revisits of another document" in said
    row = home.row(ONE)
    assert (row["reason"], row["gathered"], row["checked"]) == (Reason.UNCHANGED, 1_580_515_200, 1_583_020_800)
    assert home.document(ONE).body() == PAGE
    later = Warc()
    later.revisit(ONE, "2020-04-01T00:00:00Z", ONE, second)  # of a document that the database knows
    wrong = later.revisit(ONE, "2020-05-01T00:00:00Z", ONE, "2020-04-20T00:00:00Z")  # of one that it does not
    assert f"at {wrong}: skipped" in home.run("-v", home.write(later.data))
    assert home.row(ONE)["checked"] == 1_585_699_200


def test_redirect_to_its_equivalent_is_left_out(home: Home) -> None:
    warc = Warc()
    moved = (("Location", "https://www.a.example/one"),)
    warc.response("http://a.example/one", b"", "2020-03-01T00:00:00Z", "301 Moved", moved)  # newer than the document
    warc.response("https://www.a.example/one", PAGE, "2020-02-01T00:00:00Z")
    warc.response("http://a.example/later", b"", "2020-03-01T00:00:00Z", "301 Moved", (("Location", "https://a.example/later"),))
    (told,) = home.json_lines(home.write(warc.data))
    assert told["left_out"] == {"moves to their equivalent": 2}
    assert home.document("https://www.a.example/one").body() == PAGE
    assert home.row("https://a.example/later")["type"] == RowType.UNGATHERED


# --- what is left out ---------------------------------------------------------------------------------------------


def test_rejected_or_deleted_document_is_left_out(home: Home) -> None:
    warc = Warc()
    warc.response("http://a.example/private/x")
    warc.response("http://a.example/x.zip")
    warc.response("http://a.example/deleted")
    warc.response("dns:a.example", b"")
    for change in ("insert", "delete"):
        home.shep(change, "http://a.example/deleted")
        home.merge()
    rows = home.db.furthest().index.rows
    (told,) = home.json_lines(home.write(warc.data), status=4)
    assert told["left_out"] == {"rejected by the filter": 2, "deleted by an operator": 1, "not of http or https": 1}
    assert home.db.furthest().index.rows == rows


def hostile() -> tuple[Warc, dict[int, str]]:
    """A sound page first and last, and between them what is bad, by offset."""
    warc = Warc()
    warc.response("http://a.example/first")
    bad = {
        warc.response("http://a.example/nodate", date="yesterday"): "no WARC-Date",
        warc.response("http://a.example/future", date="2099-01-01T00:00:00Z"): "in the future",
        warc.response("http://a.example/" + "x" * 3_000): "its URL cannot be used",
        warc.response("http://:80/\x1b[31m"): "its URL cannot be used",
        warc.response("", date="2020-02-03T04:05:06Z"): "no WARC-Target-URI",
        warc.response(
            "http://a.example/coded", b"\x1f\x8b\x08 broken", headers=(("Content-Encoding", "gzip"),)
        ): "cannot be decoded",
        warc.response("http://a.example/304", b"", status="304 Not Modified"): "not an HTTP answer",
    }
    bad[warc.raw(b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 99\r\n\r\nshort\r\n\r\n")] = "before its block does"
    warc.other("request")
    bad[warc.raw(b"no record")] = "no record begins here"
    warc.other("request")
    bad[warc.broken("http://a.example/broken")] = "gzip"
    warc.response("http://a.example/last")
    return warc, bad


def test_bad_records_are_reported_and_cost_no_neighbour(home: Home) -> None:
    warc, bad = hostile()
    name = home.write(warc.data)
    *lines, told = home.json_lines(name)
    assert {line["offset"]: line["file"] for line in lines} == dict.fromkeys(bad, name)
    for line in lines:
        assert bad[line["offset"]] in line["bad"], line
    assert (told["bad"], told["taken"]) == (len(bad), {"stored": 2})
    for url in ("http://a.example/first", "http://a.example/last"):
        assert home.document(url).body() == PAGE


def test_strict_import_fails_on_bad_records(home: Home) -> None:
    warc, bad = hostile()
    said = home.run("--strict", "--dry-run", home.write(warc.data), status=2)
    assert f"{len(bad)} records could not be used" in said
    assert "\x1b" not in said


def test_file_of_beginnings_is_given_up_and_the_others_are_taken_in(home: Home) -> None:
    hostile_file = home.write(b"WARC/1.0\r\nContent-Length: 99999999999999\r\n\r\n" * 50_000, "hostile.warc")
    warc = Warc()
    warc.response(ONE)
    said = home.run(hostile_file, home.write(warc.data), status=2)
    assert "1 file not read to the end, because too much is damaged: hostile.warc; get it anew" in said
    assert home.document(ONE).body() == PAGE


def test_what_is_no_warc_file_makes_no_state(home: Home) -> None:
    for data in (b"", b"\0" * 100_000, b"PK\3\4 no WARC file", crawl().data[:300]):
        home.run(home.write(data), status=4)
    assert [state.number for state in home.db.states()] == [1]


# --- how it is run ------------------------------------------------------------------------------------------------


def test_dry_run_counts_the_same_and_writes_nothing(home: Home) -> None:
    name = home.write(crawl().data)
    before = set((home.path / "db").rglob("*"))
    (rehearsed,) = home.json_lines("--dry-run", name)
    assert set((home.path / "db").rglob("*")) - before <= {home.path / "db" / "lease" / "lock"}
    (told,) = home.json_lines(name)
    for key in ("records", "taken", "left_out", "bad", "new", "links"):
        assert rehearsed[key] == told[key], key


def test_stdin_is_read(home: Home) -> None:
    home.run("-", stdin=crawl().data)
    assert home.document(ONE).bucket.attributes["P"] == b"WARC file stdin"


def test_import_is_refused_while_another_has_the_lock(home: Home) -> None:
    name = home.write(crawl().data)
    with home.db.writing("a cycle"):
        assert "a cycle" in home.run(name, status=3)


def test_import_is_refused_in_the_middle_of_a_reap(home: Home) -> None:
    home.shep("insert", "http://a.example/new")
    home.merge()
    home.run(program="shep-plan")
    assert "shep-reap comes next" in home.run(home.write(crawl().data), status=4)


def test_import_that_is_asked_to_stop_keeps_what_it_has_read(home: Home) -> None:
    whole, more = crawl().data, Warc()
    for n in range(50):
        more.response(f"http://a.example/more/{n}")
    command = [sys.executable, "-m", "shepherd.cli", "shep-import", "--db", "db", "--cf", "cf", "--now", str(NOW), "-"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=home.path, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(whole)
        process.stdin.flush()
        wait_until(lambda: len(children(process.pid)) == 2)  # beside the reader its reapd is there, so it has read a record
        process.send_signal(signal.SIGTERM)
        while b"asked to stop" not in process.stderr.readline():
            assert process.poll() is None
        process.stdin.write(more.data)
        process.stdin.close()
        process.stderr.read()
    assert process.returncode == 0
    assert home.document(ONE).body() == PAGE
    home.run("-", stdin=whole + more.data)  # the rest
    assert home.document("http://a.example/more/49").body() == PAGE


def test_no_file_or_a_missing_one_is_a_usage_error(home: Home) -> None:
    assert "give WARC files" in home.run(status=2)
    home.run("nowhere.warc", status=2)
