"""An answer's fate as a table: what came of a request -> how it is journalled, and what its group, its item and its site do.

`case_of` names the case and `FATES` has its fate; both are pure. outcome.py carries it out. docs/protocol.md shows the table, and
a test reads it there.

Soft errors are left for a later reap, unless the server says: come back soon. Nothing is tried more than once again, but for a
kept connection that had died, which is no attempt of the server's. When the reap is ending nothing is tried again at all.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shepherd.dispatch.items import Item
from shepherd.dispatch.verify import Answer
from shepherd.formats.tables import Kind, Reason, Result

SOON_S: Final = 60  # a Retry-After within this is waited for in the same reap


class Case(enum.Enum):
    """What came of a request, as the table of docs/protocol.md has it."""

    OLD_CONNECTION = "a kept connection had died before the answer"
    RULES_MISSING = "the worker does not have the rules of the site"
    RULES_MISSING_AGAIN = "the same, a second time"
    ADDRESS_GONE = "the name has another address now; nobody was asked"
    TOO_LATE = "it could not begin in time; nobody was asked"
    COME_BACK_SOON = "the server is busy, and free again within 60 s"
    ROBOTS_LEADS_ON = "a robots.txt leads to another URL"
    ROBOTS_LEADS_NOWHERE = "a robots.txt leads nowhere, or leads on after 5 hops"
    ROBOTS = "any other answer to a robots.txt"
    MOVE = "a page leads to its own equivalent on another site"
    MOVES_ON = "a page leads to its own equivalent on its own site, or after 3 moves"
    PAGE = "any other answer to a page"
    NO_ANSWER = "no answer came while the lease lasted"
    NO_ANSWER_AGAIN = "no answer came, a second time"
    BAD_ANSWER = "an answer does not hold"
    BAD_ANSWER_AGAIN = "an answer does not hold, a second time"
    WORKER_DIED = "a worker died at the page"
    WORKER_DIED_AGAIN = "a worker died at the page, alone with it"


class RecordForm(enum.Enum):
    """How it is journalled."""

    RECORD = "its record"
    HOP = "a hop"  # a contact, if it was one, that settles nothing
    HOP_WITH_CONTACT = "a hop with a contact"  # the server may have seen it
    FAILURE = "its record, with a contact"  # likewise, and it is given up


class Release(enum.Enum):
    """How the group is released."""

    AS_ANSWERED = "with a delay if it was contacted"
    AS_CONTACTED = "with its delay"
    EXPIRED = "it was by its deadline, with its delay"


class Next(enum.Enum):
    """Where the item goes."""

    SETTLED = "settled"
    AGAIN = "queued again"
    AGAIN_FRESH = "queued again, for a new connection"
    AGAIN_LATER = "queued again, after the Retry-After"
    AGAIN_ALONE = "queued again, to be parsed alone"
    ELSEWHERE = "waits at the site where it leads"


class Lesson(enum.Enum):
    """What the site learns."""

    NOTHING = "nothing"
    RULES_TO_SEND = "that worker needs its rules"
    NEW_ADDRESS = "its name is looked up again"
    RULES = "its rules and Crawl-delay"
    NO_RULES = "it has no rules"
    HEALTH = "whether it fails: after three in a row the rest of it is dropped"
    SHUT = "if that was its robots.txt, it is shut"


@dataclass(frozen=True)
class Fate:
    journal: RecordForm
    item: Next
    site: Lesson = Lesson.NOTHING
    group: Release = Release.AS_ANSWERED


FATES: Final[Mapping[Case, Fate]] = {
    Case.OLD_CONNECTION: Fate(RecordForm.HOP, Next.AGAIN_FRESH),
    Case.RULES_MISSING: Fate(RecordForm.HOP, Next.AGAIN, Lesson.RULES_TO_SEND),
    Case.RULES_MISSING_AGAIN: Fate(RecordForm.RECORD, Next.SETTLED, Lesson.RULES_TO_SEND),
    Case.ADDRESS_GONE: Fate(RecordForm.HOP, Next.AGAIN, Lesson.NEW_ADDRESS),
    Case.TOO_LATE: Fate(RecordForm.HOP, Next.AGAIN),
    Case.COME_BACK_SOON: Fate(RecordForm.HOP, Next.AGAIN_LATER),
    Case.ROBOTS_LEADS_ON: Fate(RecordForm.HOP, Next.ELSEWHERE),
    Case.ROBOTS_LEADS_NOWHERE: Fate(RecordForm.RECORD, Next.SETTLED, Lesson.NO_RULES),
    Case.ROBOTS: Fate(RecordForm.RECORD, Next.SETTLED, Lesson.RULES),
    Case.MOVE: Fate(RecordForm.HOP, Next.ELSEWHERE),
    Case.MOVES_ON: Fate(RecordForm.RECORD, Next.SETTLED),
    Case.PAGE: Fate(RecordForm.RECORD, Next.SETTLED, Lesson.HEALTH),
    Case.NO_ANSWER: Fate(RecordForm.HOP_WITH_CONTACT, Next.AGAIN, group=Release.EXPIRED),
    Case.NO_ANSWER_AGAIN: Fate(RecordForm.FAILURE, Next.SETTLED, Lesson.SHUT, Release.EXPIRED),
    Case.BAD_ANSWER: Fate(RecordForm.HOP_WITH_CONTACT, Next.AGAIN, group=Release.AS_CONTACTED),
    Case.BAD_ANSWER_AGAIN: Fate(RecordForm.FAILURE, Next.SETTLED, Lesson.SHUT, Release.AS_CONTACTED),
    Case.WORKER_DIED: Fate(RecordForm.HOP_WITH_CONTACT, Next.AGAIN_ALONE, group=Release.AS_CONTACTED),
    Case.WORKER_DIED_AGAIN: Fate(RecordForm.FAILURE, Next.SETTLED, Lesson.SHUT, Release.AS_CONTACTED),
}
# With what a FAILURE is journalled.
FAILURES: Final[Mapping[Case, tuple[Result, Reason]]] = {
    Case.NO_ANSWER_AGAIN: (Result.SOFT, Reason.REAPER_LOST),
    Case.BAD_ANSWER_AGAIN: (Result.SOFT, Reason.REAPER_LOST),
    Case.WORKER_DIED_AGAIN: (Result.HARD, Reason.PARSER),
}
UNASKED: Final = {Reason.NO_ADDRESS: Case.ADDRESS_GONE, Reason.DEADLINE: Case.TOO_LATE}


class Redirect(enum.Enum):
    """Where an answer leads."""

    NOT_FOLLOWED = enum.auto()  # nowhere; or it is an answer like others, and what it leads to is a contribution
    FOLLOWED = enum.auto()  # the item is asked for there, in this reap
    DEAD_END = enum.auto()  # it should be, and cannot


def case_of(item: Item, answer: Answer, redirect: Redirect, *, site_is_open: bool, is_ending: bool) -> Case:
    """What came of a request that was answered, with an answer that holds."""
    case = None if is_ending else _another_try(item, answer, site_is_open)
    if case is not None:
        return case
    if item.kind == Kind.ROBOTS:
        return _CASE_OF_ROBOTS[redirect]
    return _CASE_OF_PAGE[redirect]


_CASE_OF_ROBOTS: Final = {
    Redirect.NOT_FOLLOWED: Case.ROBOTS,
    Redirect.FOLLOWED: Case.ROBOTS_LEADS_ON,
    Redirect.DEAD_END: Case.ROBOTS_LEADS_NOWHERE,
}
_CASE_OF_PAGE: Final = {Redirect.NOT_FOLLOWED: Case.PAGE, Redirect.FOLLOWED: Case.MOVE, Redirect.DEAD_END: Case.MOVES_ON}


def _another_try(item: Item, answer: Answer, site_is_open: bool) -> Case | None:
    if answer.stale and not item.fresh:
        return Case.OLD_CONNECTION
    is_page = item.kind == Kind.PAGE
    if is_page and answer.reason == Reason.ROBOTS_UNREACHABLE and not answer.contacted:
        return Case.RULES_MISSING if site_is_open and not item.attempts else Case.RULES_MISSING_AGAIN
    if item.attempts:
        return None
    if is_page and answer.reason == Reason.SERVER_ERROR:
        return Case.COME_BACK_SOON if 0 < answer.record.retry_after_s <= SOON_S else None
    return None if answer.contacted else UNASKED.get(answer.reason)


def unanswered(item: Item) -> Case:
    """A request that nobody answered while its lease lasted. The server may have seen it."""
    return Case.NO_ANSWER_AGAIN if item.attempts else Case.NO_ANSWER


def refused(item: Item) -> Case:
    """A request with an answer that does not hold."""
    return Case.BAD_ANSWER_AGAIN if item.attempts else Case.BAD_ANSWER


def at_a_dead_worker(item: Item) -> Case:
    """A request at whose page a worker has died: its exchange was over."""
    return Case.WORKER_DIED_AGAIN if item.alone else Case.WORKER_DIED
