"""One spelling of every value: the programs with --json over one small database that has every word of every vocabulary."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shepherd import sections
from shepherd.formats import kinds, tables, vocabulary
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import Deferred, Flag, JournalFlag, Kind, Reason, Result, RowType, Why
from shepherd.formats.vocabulary import word
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from tests.support.page_states import PAGES, Herd, Page, add_state, make_herd
from tests.support.unfinished_states import GONE, START_MS, journal_record, plan_records, run
from tests.worlds import DAY, NOW

URL = "http://a.example/"
BODY = next(page.body for page in PAGES if page.url == URL) or b""
WHOLE = hashlib.sha256(BODY).digest()
ROWS = ("type", "reason", "flags", "deferred")  # columns of words
VOCABULARIES = (RowType, Reason, Flag, Deferred, Kind, Result, JournalFlag, Why)
SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MILLISECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def pages() -> Iterator[Page]:
    """Those of the herd, one of them with its digest, and one for each word that a row can have."""
    for page in PAGES:
        if page.url == URL:
            digested = {"digest": int.from_bytes(WHOLE[:8], "little"), "section": sections.Section.HTML}
            yield dataclasses.replace(page, attributes=page.attributes | {"D": WHOLE}, columns=page.columns | digested)
        else:
            yield page
    for reason in Reason:
        deferred = Deferred(int(reason) % len(Deferred))
        columns = {"status": 404, "checked": NOW - DAY, "deferred": deferred, "section": 1 + reason % 5}
        yield Page(f"http://a.example/reason/{word(reason)}", RowType.ERROR, reason, columns=columns)
    for flag in Flag:
        yield Page(f"http://a.example/flag/{word(flag)}", columns={"flags": int(flag)})


def records() -> Iterator[bytes]:
    """One journal record of each result, kind, flag and reason; those of pages are of one URL, so that `explain` has them."""
    for result in Result:
        yield journal_record(URL, result=result, flags=JournalFlag.CONTACTED)
    for flag in JournalFlag:
        yield journal_record(URL, flags=flag)
    for reason in Reason:
        yield journal_record(URL, reason=reason, start_ms=START_MS + 5, status=404)
    for kind in Kind:
        yield journal_record(URL, kind=kind)


@pytest.fixture(scope="module")
def every_word(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """Two closed states, the second with a journal, and a reap with a plan, each with every word."""
    herd = make_herd(tmp_path_factory.mktemp("words"))
    number = add_state(herd, list(pages()), journal=list(records()))
    with herd.store.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(number + 1, "reap"), NOW)
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        plan = np.repeat(plan_records(parent), len(Why))[: len(Why)]
        plan["why"], plan["kind"] = np.array(Why, np.uint8), Kind.PAGE
        builder.write_records(names.PLAN, FrameKind.PLAN, plan)
        writer.publish(builder, {"phase": "plan"})
    return herd


COMMANDS = (
    "shep list --json",
    "shep stats --json",
    f"shep explain --deep --json {URL}",
    f"shep explain --json {GONE}",
    "shep explain --json http://nobody.example/",
    "shep explain --json --why-not http://a.example/",
    "shep sites --json",
    "shep servers --json",
    "shep top --by size --json",
    "shep top --by errors --json",
    "shep diff 2 3 --json",
    f"shep at 3 {URL} --json",
    f"shep url --db {{db}} --json {URL}",
    f"shep robots --json {URL}",
    f"shep cat --json {URL}",
    "shep states --json",
    "shep-dump index -u --json",
    "shep-dump sites --json",
    "shep-dump servers --json",
    "shep-dump journal --state 3 --json",
    "shep-dump plan --json",
    "shep-dump contrib --json",
    "shep-dump buckets --json",
    f"shep-dump bucket --json {URL}",
    "shep-export --format jsonl --robots --redirects -o -",
)


@pytest.fixture(scope="module")
def printed(every_word: Herd) -> dict[str, list[dict[str, Any]]]:
    """What each command prints, object by object."""
    found = {}
    for command in COMMANDS:
        program, *arguments = command.format(db=every_word.db).split()
        given = ["--cf", str(every_word.cf), *arguments] if program == "shep-export" else arguments
        done = run(every_word.db, program, *given)
        assert done.returncode == 0, (command, done)
        found[command] = [json.loads(line) for line in done.stdout.splitlines()]
    return found


def values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value in some JSON with the key that it stands under; a key of a count is a value, too."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield "", name
            yield from values(below, name)
    elif isinstance(value, list):
        for below in value:
            yield from values(below, key)
    else:
        yield key, value


def all_values(printed: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str, Any]]:
    for command, objects in printed.items():
        for one in objects:
            yield from ((command, key, value) for key, value in values(one))


@pytest.mark.parametrize("words", VOCABULARIES, ids=lambda words: words.__name__)
def test_each_word_has_one_spelling(printed: dict[str, list[dict[str, Any]]], words: type[IntEnum]) -> None:
    spelt = {word(member) for member in words}
    meanings = {*vocabulary.REASON_TEXT.values(), *vocabulary.DEFERRED_TEXT.values()} - {
        word(member) for vocabulary_ in VOCABULARIES for member in vocabulary_
    }
    for command, key, value in all_values(printed):
        if isinstance(value, str) and value.lower().replace("_", "-").replace(" ", "-") in spelt:
            assert value in spelt, (command, key, value)
        assert value not in meanings, (command, key, value)


@pytest.mark.parametrize(
    ("column", "words", "commands"),
    [
        ("type", RowType, ("shep list --json", "shep-dump index -u --json")),
        ("reason", Reason, ("shep list --json", "shep-dump index -u --json", "shep-dump journal --state 3 --json")),
        ("flags", Flag, ("shep list --json", "shep-dump index -u --json")),
        ("deferred", Deferred, ("shep-dump index -u --json", "shep explain --json --why-not http://a.example/")),
        ("result", Result, ("shep-dump journal --state 3 --json", f"shep explain --deep --json {URL}")),
        ("flags", JournalFlag, ("shep-dump journal --state 3 --json", f"shep explain --deep --json {URL}")),
        ("kind", Kind, ("shep-dump journal --state 3 --json",)),
        ("why", Why, ("shep-dump plan --json",)),
    ],
)
def test_every_word_is_printed(
    printed: dict[str, list[dict[str, Any]]], column: str, words: type[IntEnum], commands: tuple[str, ...]
) -> None:
    for command in commands:
        found = {value for one in printed[command] for key, value in values(one) if key == column}
        assert {word(member) for member in words if word(member) != "not"} <= found, command


def rows_by_url(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of the index among some objects, wherever they stand, with their URLs."""
    for one in objects:
        if "url" in one and {"type", "reason"} <= one.keys():
            yield one
        yield from rows_by_url([below for below in one.values() if isinstance(below, dict)])
        if isinstance(one.get("new"), dict):
            yield one["new"] | {"url": one["url"]}


def test_same_row_has_the_same_values_in_every_command(printed: dict[str, list[dict[str, Any]]]) -> None:
    dumped = {one["url"]: one for one in printed["shep-dump index -u --json"] if one["url"]}
    seen = set()
    for command, objects in printed.items():
        for row in rows_by_url(objects):
            if row["url"] not in dumped:
                continue
            known = dumped[row["url"]]
            for name in row.keys() & tables.INDEX.keys() - {"digest"}:
                assert row[name] == known[name], (command, row["url"], name)
            assert str(row.get("digest") or known["digest"]).startswith(str(known["digest"])), (command, row["url"])
            seen.add(command)
    assert {"shep list --json", "shep diff 2 3 --json", f"shep at 3 {URL} --json", f"shep explain --json {GONE}"} <= seen


def test_digest_is_as_sha256sum_prints_it(printed: dict[str, list[dict[str, Any]]]) -> None:
    sha256sum = subprocess.run(["sha256sum"], input=BODY, capture_output=True, check=True).stdout.decode().split()[0]
    found = {command for command, key, value in all_values(printed) if key in ("digest", "sha256") and value == sha256sum}
    assert {f"shep at 3 {URL} --json", f"shep cat --json {URL}", f"shep-dump bucket --json {URL}"} <= found
    row = next(one for one in printed["shep-dump index -u --json"] if one["url"] == URL)
    assert row["digest"] == sha256sum[:16]
    exported = next(one for one in printed["shep-export --format jsonl --robots --redirects -o -"] if one["url"] == URL)
    assert exported["sha256"] == sha256sum


def test_times_have_one_spelling(printed: dict[str, list[dict[str, Any]]]) -> None:
    columns = {name: kind for known in tables.KINDS.values() for name, kind in known.items()}
    spelt = {kinds.TIME_S: SECONDS, kinds.TIME_MS: MILLISECONDS}
    counted = {"gathered"}  # of a site that is a number of pages
    checked = 0
    for command, key, value in all_values(printed):
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
            assert SECONDS.fullmatch(value) or MILLISECONDS.fullmatch(value), (command, key, value)
        pattern = spelt.get(columns.get(key, kinds.NUMBER))
        if pattern is not None and value is not None and not (key in counted and isinstance(value, int)):
            assert isinstance(value, str) and pattern.fullmatch(value), (command, key, value)
            checked += 1
    assert checked > 100


def test_reasons_that_are_printed_are_those_that_select(every_word: Herd, printed: dict[str, list[dict[str, Any]]]) -> None:
    listed = sorted({one["reason"] for one in printed["shep list --json"]})
    flags = [flag for reason in listed for flag in ("--reason", reason)]
    done = run(every_word.db, "shep", "list", "--json", *flags)
    assert done.returncode == 0, done
    assert len(done.stdout.splitlines()) == len(printed["shep list --json"])


def test_text_has_the_spelling_of_json(every_word: Herd, printed: dict[str, list[dict[str, Any]]]) -> None:
    text = run(every_word.db, "shep", "list").stdout.splitlines()[1:]
    for line, one in zip(text, printed["shep list --json"], strict=True):
        type_, status, _weight, checked, reason = line.split()[:5]
        assert [type_, status, checked, reason] == [str(one[name] or "-") for name in ("type", "status", "checked", "reason")]
    dumped = run(every_word.db, "shep-dump", "index").stdout.splitlines()
    titles = dumped[0].split()
    for line, one in zip(dumped[1:], printed["shep-dump index -u --json"], strict=True):
        cells = dict(zip(titles, line.split(), strict=True))
        for name, cell in cells.items():
            value = ",".join(one[name]) if isinstance(one[name], list) else one[name]
            assert cell == ("-" if value in (None, "") else str(value)), name


@pytest.mark.parametrize("reason", vocabulary.RESERVED_REASONS)
def test_reserved_reason_of_an_old_row_is_shown_as_its_number(tmp_path: Path, reason: int) -> None:
    herd = make_herd(tmp_path, [Page(URL, RowType.ERROR, columns={"reason": reason, "checked": NOW - DAY})], sites=())
    cf = ("--cf", str(herd.cf))
    for command in (
        ["shep", "list"],
        ["shep-dump", "index"],
        ["shep", "stats"],
        ["shep", "explain", *cf, URL],
        ["shep", "at", "2", URL],
    ):
        done = run(herd.db, *command)
        assert done.returncode == 0 and str(reason) in done.stdout, done
    assert "reason" not in run(herd.db, "shep-check").stdout
