"""The table of an answer's fate, row by row; and that docs/protocol.md shows it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.dispatch.fate import (
    FAILURES,
    FATES,
    Case,
    Next,
    RecordForm,
    Redirect,
    at_a_dead_worker,
    case_of,
    refused,
    unanswered,
)
from shepherd.dispatch.items import MOVES, Item, ItemState
from shepherd.dispatch.verify import Answer
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result

CONTACTED, STALE = int(JournalFlag.CONTACTED), int(JournalFlag.STALE)
PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


def item(kind: Kind = Kind.PAGE, **more: object) -> Item:
    return Item(kind, 1, 2, 3, 3, 3, **more)  # type: ignore[arg-type]


def answer(result: Result, reason: Reason, flags: int = 0, retry_after_s: int = 0) -> Answer:
    return Answer(Entry(result=result, reason=reason, flags=flags, retry_after_s=retry_after_s), b"", None, "", b"", 0)


OLD = answer(Result.SOFT, Reason.CONNECTION, CONTACTED | STALE)
NO_RULES = answer(Result.SOFT, Reason.ROBOTS_UNREACHABLE)
GONE = answer(Result.SOFT, Reason.NO_ADDRESS)
LATE = answer(Result.SOFT, Reason.DEADLINE)
TIMEOUT = answer(Result.SOFT, Reason.DEADLINE, CONTACTED)
BUSY = answer(Result.SOFT, Reason.SERVER_ERROR, CONTACTED, retry_after_s=60)
BUSY_FOR_LONG = answer(Result.SOFT, Reason.SERVER_ERROR, CONTACTED, retry_after_s=61)
ERROR = answer(Result.SOFT, Reason.SERVER_ERROR, CONTACTED)
STORED = answer(Result.STORED, Reason.GATHERED, CONTACTED)
MOVED = answer(Result.REDIRECT, Reason.GATHERED, CONTACTED)


@pytest.mark.parametrize(
    ("what", "how", "expected"),
    [
        (item(), OLD, Case.OLD_CONNECTION),
        (item(attempts=1), OLD, Case.OLD_CONNECTION),
        (item(Kind.ROBOTS), OLD, Case.OLD_CONNECTION),
        (item(fresh=True), OLD, Case.PAGE),
        (item(), NO_RULES, Case.RULES_MISSING),
        (item(attempts=1), NO_RULES, Case.RULES_MISSING_AGAIN),
        (item(Kind.ROBOTS), NO_RULES, Case.ROBOTS),
        (item(), GONE, Case.ADDRESS_GONE),
        (item(Kind.ROBOTS), GONE, Case.ADDRESS_GONE),
        (item(attempts=1), GONE, Case.PAGE),
        (item(Kind.ROBOTS, attempts=1), GONE, Case.ROBOTS),
        (item(), LATE, Case.TOO_LATE),
        (item(attempts=1), LATE, Case.PAGE),
        (item(), TIMEOUT, Case.PAGE),
        (item(), BUSY, Case.COME_BACK_SOON),
        (item(attempts=1), BUSY, Case.PAGE),
        (item(Kind.ROBOTS), BUSY, Case.ROBOTS),
        (item(), BUSY_FOR_LONG, Case.PAGE),
        (item(), ERROR, Case.PAGE),
        (item(), STORED, Case.PAGE),
        (item(Kind.ROBOTS), STORED, Case.ROBOTS),
    ],
)
def test_case_of_an_answer(what: Item, how: Answer, expected: Case) -> None:
    assert case_of(what, how, Redirect.NOT_FOLLOWED, site_is_open=True, is_ending=False) is expected


@pytest.mark.parametrize("how", [OLD, NO_RULES, GONE, LATE, BUSY])
def test_nothing_is_tried_again_when_the_reap_is_ending(how: Answer) -> None:
    assert case_of(item(), how, Redirect.NOT_FOLLOWED, site_is_open=True, is_ending=True) is Case.PAGE


def test_rules_are_not_sent_again_for_a_page_of_a_site_that_is_not_open() -> None:
    assert case_of(item(), NO_RULES, Redirect.NOT_FOLLOWED, site_is_open=False, is_ending=False) is Case.RULES_MISSING_AGAIN


@pytest.mark.parametrize("is_ending", [False, True])
@pytest.mark.parametrize(
    ("kind", "redirect", "expected"),
    [
        (Kind.PAGE, Redirect.NOT_FOLLOWED, Case.PAGE),
        (Kind.PAGE, Redirect.FOLLOWED, Case.MOVE),
        (Kind.PAGE, Redirect.DEAD_END, Case.MOVES_ON),
        (Kind.ROBOTS, Redirect.FOLLOWED, Case.ROBOTS_LEADS_ON),
        (Kind.ROBOTS, Redirect.DEAD_END, Case.ROBOTS_LEADS_NOWHERE),
    ],
)
def test_case_of_a_redirect(kind: Kind, redirect: Redirect, expected: Case, is_ending: bool) -> None:
    assert case_of(item(kind), MOVED, redirect, site_is_open=True, is_ending=is_ending) is expected


def test_case_of_a_request_without_an_answer() -> None:
    assert (unanswered(item()), unanswered(item(attempts=1))) == (Case.NO_ANSWER, Case.NO_ANSWER_AGAIN)
    assert (refused(item()), refused(item(attempts=1))) == (Case.BAD_ANSWER, Case.BAD_ANSWER_AGAIN)
    assert (at_a_dead_worker(item(attempts=1)), at_a_dead_worker(item(alone=True))) == (Case.WORKER_DIED, Case.WORKER_DIED_AGAIN)


def test_what_settles_has_a_record_and_what_does_not_is_a_hop() -> None:
    assert set(FATES) == set(Case)
    for case, fate in FATES.items():
        assert (fate.item is Next.SETTLED) == (fate.journal in (RecordForm.RECORD, RecordForm.FAILURE)), case
    assert set(FAILURES) == {case for case, fate in FATES.items() if fate.journal is RecordForm.FAILURE}


def rows_of(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of docs/protocol.md."""
    lines = PROTOCOL.read_text().partition(f"## {heading}\n")[2].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def test_documentation_shows_the_table_of_fates() -> None:
    shown = [[case.value, f.journal.value, f.group.value, f.item.value, f.site.value] for case, f in FATES.items()]
    assert rows_of("The outcome of a request") == shown


def test_documentation_shows_the_states_of_an_item() -> None:
    def word(state: ItemState) -> str:
        return state.name.lower().replace("_", " ")

    shown = [[word(state), ", ".join(word(to) for to in ItemState if to in MOVES[state]) or "-"] for state in ItemState]
    assert [[row[0], row[2]] for row in rows_of("The states of an item")] == shown
