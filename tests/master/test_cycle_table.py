"""The master's table of moves, and what it makes of exit statuses, as docs/cycle.md has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shepherd.errors import NoSpace
from shepherd.formats.control import PHASES
from shepherd.master.cycle_table import (
    CLEANUP,
    CORK,
    EQUIV,
    FEEDBACK,
    MERGE,
    PLAN,
    RANK,
    REAP,
    RECORD,
    RECOVER,
    SELECT,
    CyclePosition,
    Move,
    after,
    is_passing,
    next_step,
)

ROOT = Path(__file__).resolve().parents[2]


# --- the table --------------------------------------------------------------------------------------------------


def moves_of_the_page() -> dict[str, str]:
    """`state` -> `move` of the table in docs/cycle.md."""
    text = (ROOT / "docs" / "cycle.md").read_text(encoding="utf-8")
    table = text[text.index("| state | what happened | move |") : text.index("The order of one number's")]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    return {cells[0].strip(): cells[2].strip() for cells in rows}


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("`N` closed", CyclePosition("000002", "closed", waiting=True)),
        ("`N` closed", CyclePosition("000002", "closed")),
        ("`N` closed", CyclePosition("000002", "closed", feedback=True)),
        ("`N` closed", CyclePosition("000002", "closed", waiting=True, cleanup_requested=True)),
        ("`N` closed", CyclePosition("000002", "closed", full="the disk is full")),
        ("`N.reap`, no harvest", CyclePosition("000002.reap", "reap")),
        ("`N.reap`, harvest without `end`", CyclePosition("000002.reap", "reap")),
        ("`N.reap`, every harvest has `end`", CyclePosition("000002.reap", "reap", harvested=True)),
        ("`N.merged`", CyclePosition("000002.merged", "merged", waiting=True)),
        ("`N.merged`, and `cf/url-equiv` has changed", CyclePosition("000002.merged", "merged", unequal=True)),
        ("`N.equiv`", CyclePosition("000002.equiv", "equiv")),
        ("`N.selected`", CyclePosition("000002.selected", "selected", waiting=True)),
    ],
)
def test_move_is_the_documented_one(row: str, found: CyclePosition) -> None:
    step = next_step(found, [])
    assert step is not None
    assert re.search(rf"\b{step.removeprefix('shep-')}\b", moves_of_the_page()[row])


def test_every_phase_has_a_move() -> None:
    for phase in PHASES:
        assert next_step(CyclePosition("x", phase), []) in (PLAN, REAP, SELECT, RECORD)


def walk(start: CyclePosition, after: dict[str, CyclePosition]) -> list[str]:
    """The programs of one cycle, when each leaves what `after` says."""
    position, steps_run = start, list[str]()
    while (step := next_step(position, steps_run)) is not None:
        assert len(steps_run) < 20, f"the cycle does not end: {steps_run}"
        steps_run.append(step)
        position = after.get(step, position)
    return steps_run


CLOSED, WAITING = CyclePosition("2", "closed"), CyclePosition("2", "closed", waiting=True)
USUAL = {
    PLAN: CyclePosition("3.reap", "reap"),
    REAP: CyclePosition("3.reap", "reap", harvested=True),
    CORK: CyclePosition("3", "closed", waiting=True),
    MERGE: CyclePosition("4.merged", "merged"),
    SELECT: CyclePosition("4.selected", "selected"),
    RECORD: CyclePosition("4", "closed"),
}


def test_cycle_begins_with_what_was_inserted() -> None:
    assert walk(WAITING, USUAL) == [MERGE, SELECT, RECORD, PLAN, REAP, CORK, MERGE, SELECT, RECORD]
    assert walk(CLOSED, USUAL) == [PLAN, REAP, CORK, MERGE, SELECT, RECORD]


def test_killed_cycle_is_continued_and_then_complete() -> None:
    assert walk(USUAL[PLAN], USUAL) == [REAP, CORK, MERGE, SELECT, RECORD]
    assert walk(USUAL[REAP], USUAL) == [CORK, MERGE, SELECT, RECORD]


def test_killed_merge_of_an_insert_is_continued_and_then_planned() -> None:
    assert walk(USUAL[MERGE], USUAL) == [SELECT, RECORD, PLAN, REAP, CORK, MERGE, SELECT, RECORD]
    assert walk(USUAL[SELECT], USUAL)[:2] == [RECORD, PLAN]


def test_feedback_is_applied_between_merge_and_plan_and_only_once() -> None:
    after = USUAL | {FEEDBACK: CyclePosition("3", "closed")}
    usual = [PLAN, REAP, CORK, MERGE, SELECT, RECORD]
    assert walk(CyclePosition("2", "closed", feedback=True), after) == [FEEDBACK, *usual]
    both = after | {RECORD: CyclePosition("4", "closed", feedback=True)}
    assert walk(CyclePosition("2", "closed", waiting=True, feedback=True), both) == [MERGE, SELECT, RECORD, FEEDBACK, *usual]
    damaged = USUAL | {FEEDBACK: CyclePosition("2", "closed", feedback=True)}  # it found nothing that it could take
    assert walk(CyclePosition("2", "closed", feedback=True), damaged) == [FEEDBACK, *usual]


def test_harvest_in_the_inbox_is_corked_when_nothing_is_due() -> None:
    left = CyclePosition("2", "closed", harvests=True)
    assert walk(left, USUAL | {PLAN: left}) == [PLAN, CORK, MERGE, SELECT, RECORD]
    assert walk(left, USUAL | {PLAN: left, CORK: left}) == [PLAN, CORK]  # it could not be taken
    assert walk(CLOSED, {PLAN: CLOSED}) == [PLAN]
    assert walk(left, USUAL) == [PLAN, REAP, CORK, MERGE, SELECT, RECORD]


def test_equivalences_that_changed_are_applied_between_merge_and_select() -> None:
    changed = USUAL | {MERGE: CyclePosition("4.merged", "merged", unequal=True), EQUIV: CyclePosition("4.equiv", "equiv")}
    assert walk(CLOSED, changed) == [PLAN, REAP, CORK, MERGE, EQUIV, SELECT, RECORD]


def test_reap_that_contributed_nothing_ends_the_cycle() -> None:
    assert walk(CLOSED, USUAL | {CORK: CyclePosition("3", "closed")}) == [PLAN, REAP, CORK]


def test_requests_that_keep_coming_do_not_delay_the_cycle() -> None:
    always = USUAL | {RECORD: WAITING, CORK: WAITING}
    assert walk(WAITING, always) == [MERGE, SELECT, RECORD, PLAN, REAP, CORK, MERGE, SELECT, RECORD]
    assert walk(WAITING, always | {MERGE: WAITING}) == [MERGE, PLAN, REAP, CORK, MERGE]  # a merge that found nothing


# --- rounds and cleanups ----------------------------------------------------------------------------------------


def rounds(start: CyclePosition, after: dict[str, CyclePosition], count: int) -> list[str]:
    """As `walk`, with so many rounds before a merge."""
    found, done = start, list[str]()
    while (step := next_step(found, done, count)) is not None:
        assert len(done) < 30, f"the cycle does not end: {done}"
        done.append(step)
        found = after.get(step, found)
    return done


def test_plan_reap_and_cork_are_repeated_before_a_merge() -> None:
    one = [PLAN, REAP, CORK]
    assert rounds(CLOSED, USUAL, 3) == [*one, *one, *one, MERGE, SELECT, RECORD]
    assert rounds(WAITING, USUAL, 2) == [MERGE, SELECT, RECORD, *one, *one, MERGE, SELECT, RECORD]
    assert rounds(USUAL[REAP], USUAL, 2) == [CORK, *one, MERGE, SELECT, RECORD]


def test_changed_weights_or_limits_are_selected_by_also_if_nothing_is_due() -> None:
    quiet = CyclePosition("3", "closed", unselected=True)
    selected = USUAL | {PLAN: quiet, FEEDBACK: quiet}
    assert walk(quiet, selected) == [PLAN, MERGE, SELECT, RECORD]
    assert walk(CyclePosition("2", "closed", feedback=True), selected) == [FEEDBACK, PLAN, MERGE, SELECT, RECORD]
    assert walk(quiet, USUAL | {CORK: quiet}) == [PLAN, REAP, CORK, MERGE, SELECT, RECORD]  # a reap that contributed nothing
    assert walk(quiet, {PLAN: quiet, MERGE: quiet}) == [PLAN, MERGE]


def test_round_in_which_nothing_is_due_is_the_last() -> None:
    corked, found, done = USUAL[CORK], CLOSED, list[str]()
    while (step := next_step(found, done, 5)) is not None:
        done.append(step)
        found = corked if done.count(PLAN) == 3 and step == PLAN else USUAL.get(step, found)
    assert done == [PLAN, REAP, CORK, PLAN, REAP, CORK, PLAN, MERGE, SELECT, RECORD]


def test_request_ends_the_rounds_before_a_merge() -> None:
    asked = USUAL | {CORK: CyclePosition("3", "closed", waiting=True, has_requests=True)}
    assert rounds(CLOSED, asked, 5) == [PLAN, REAP, CORK, MERGE, SELECT, RECORD]


def test_wanted_cleanup_comes_first_and_once() -> None:
    wanted = CyclePosition("2", "closed", waiting=True, cleanup_requested=True)
    assert rounds(wanted, USUAL | {CLEANUP: WAITING}, 1)[:2] == [CLEANUP, MERGE]
    assert rounds(wanted, USUAL | {CLEANUP: wanted}, 1).count(CLEANUP) == 1
    half_way = CyclePosition("2.merged", "merged", cleanup_requested=True)
    assert next_step(half_way, []) == SELECT  # what is half way is finished first
    assert next_step(CyclePosition("2.reap", "reap", harvested=True, full="x"), []) == CORK


def test_full_disk_stops_the_master_if_a_cleanup_did_not_help() -> None:
    """From a plan there is no way back to a closed state but a reap, and that could store nothing."""
    full = CyclePosition("2", "closed", full="the disk is full")
    assert next_step(full, []) == CLEANUP
    with pytest.raises(NoSpace, match="the disk is full; a cleanup has freed what it could"):
        next_step(full, [CLEANUP])
    assert next_step(CyclePosition("2", "closed", waiting=True, full="x"), [CLEANUP]) == MERGE  # that may still fit
    assert next_step(full, [PLAN, REAP, CORK, CLEANUP]) is None


# --- exit statuses ----------------------------------------------------------------------------------------------

REAPED, UNFINISHED = CyclePosition("3.reap", "reap", harvested=True), CyclePosition("3.reap", "reap")


def statuses_of_the_page() -> dict[tuple[str, str], str]:
    """(status, of) -> what the master does."""
    text = (ROOT / "docs" / "cycle.md").read_text(encoding="utf-8")
    table = text[text.index("| status | of |") : text.index("`shep-recover` needs no decision")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")][2:]
    return {(row[0], row[1]): row[2] for row in rows}


@pytest.mark.parametrize(
    ("row", "move", "cases"),
    [
        (("0", "any, and something has changed"), Move.CONTINUE, [(MERGE, 0, CLOSED, [MERGE])]),
        (
            ("4", "feedback, merge, plan, cleanup"),
            Move.CONTINUE,
            [(step, 4, CLOSED, [step]) for step in (FEEDBACK, MERGE, PLAN, CLEANUP)],
        ),
        (
            ("10", "any, for the first time in a cycle"),
            Move.MEND,
            [(REAP, 10, UNFINISHED, [REAP]), (MERGE, 10, CLOSED, [PLAN, MERGE])],
        ),
        (("any", "rank"), Move.CONTINUE, [(RANK, status, CLOSED, [RANK]) for status in (0, 1, 4, 10, 11, 12, 13, 137)]),
        (("11", "cork of the inbox alone"), Move.CONTINUE, [(CORK, 11, CLOSED, [PLAN, CORK])]),
        (
            ("12", "a program that began at a closed state, or a reap that ended in good order"),
            Move.CLEAN,
            [(MERGE, 12, CLOSED, [MERGE]), (PLAN, 12, CLOSED, [PLAN]), (REAP, 12, REAPED, [PLAN, REAP])],
        ),
        (
            ("12", "any other, or after a cleanup"),
            Move.STOP,
            [
                (REAP, 12, UNFINISHED, [REAP]),
                (CORK, 12, REAPED, [REAP, CORK]),
                (SELECT, 12, CyclePosition("4.merged", "merged"), [SELECT]),
                (MERGE, 12, CLOSED, [CLEANUP, MERGE]),
                (CLEANUP, 12, CLOSED, [CLEANUP]),
            ],
        ),
        (
            ("any other", "any"),
            Move.STOP,
            [(MERGE, status, CLOSED, [MERGE]) for status in (1, 2, 3, 11, 13, 20, 21, 30, 130, 137, 143)]
            + [(SELECT, 4, CLOSED, [SELECT]), (CORK, 11, REAPED, [CORK]), (MERGE, 10, CLOSED, [RECOVER, MERGE])]
            + [(RECOVER, 10, CLOSED, [RECOVER])],
        ),
    ],
)
def test_exit_status_means_what_is_documented(
    row: tuple[str, str], move: Move, cases: list[tuple[str, int, CyclePosition, list[str]]]
) -> None:
    assert re.match(move.value, statuses_of_the_page()[row])
    for step, status, now, done in cases:
        assert after(step, status, now, done) is move, (step, status, now, done)


def test_every_row_about_exit_statuses_is_tested() -> None:
    assert len(statuses_of_the_page()) == 9  # eight above; nothing has changed: see below


def test_recovery_that_is_switched_off_does_not_run() -> None:
    assert after(MERGE, 10, CLOSED, [MERGE], recover=False) is Move.STOP


def test_statuses_that_may_pass_are_the_documented_ones() -> None:
    text = (ROOT / "docs" / "cycle.md").read_text(encoding="utf-8")
    named = re.search(r"with status ([0-9, ]+) or above 128", text)
    assert named is not None
    assert {status for status in range(129) if is_passing(status)} == {int(one) for one in named[1].split(",")}
    assert is_passing(137)
