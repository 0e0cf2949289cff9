"""Which waiting refresh requests a reap takes up: beside a loop that judges each by itself; and lines that are no requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.config import Politeness
from shepherd.dispatch import refreshes
from shepherd.dispatch.items import Item, Items
from shepherd.dispatch.plan_source import PlanSource
from shepherd.dispatch.refreshes import Refreshes
from shepherd.dispatch.sites import SiteBook
from shepherd.dispatch.source import SourceDesk
from shepherd.filters import parse_filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JOURNAL, NO_ROW, PLAN, Flag, JournalFlag, Kind, Reason, Records, RowType
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.store.state.inbox import Inbox
from shepherd.urls import parse
from tests.support import sampling
from tests.support.page_states import Herd, Page, make_herd
from tests.worlds import NOW

FATES = (
    (RowType.GATHERED, Reason.GATHERED, 0),
    (RowType.UNGATHERED, Reason.LINK, 0),
    (RowType.ERROR, Reason.SERVER_ERROR, 0),
    (RowType.ERROR, Reason.ROBOTS_DENIED, 0),
    (RowType.SLEEPING, Reason.BELOW_BAR, 0),
    (RowType.FORGOTTEN, Reason.DELETED, 0),
    (RowType.GATHERED, Reason.GATHERED, Flag.ROBOTS),
)
LATER = NOW + 1_000  # when somebody looks
CHECKED = (0, NOW - 10, NOW, NOW + 10)
PAGES = [
    Page(f"http://a.example/{n}", type_, reason, columns={"flags": flags, "checked": checked})
    for n, ((type_, reason, flags), checked) in enumerate(itertools.product(FATES, CHECKED))
]
STRIPPING = parse_filter("strip utm_*\n")
_COUNTER = itertools.count()


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    roots = [Page("http://www.b.example/"), Page("http://b.example/page")]
    return make_herd(tmp_path_factory.mktemp("herd"), [*PAGES, *roots], sites=(), links=())


@pytest.fixture
def state(herd: Herd) -> Iterator[State]:
    for item in herd.store.inbox.items():
        item.path.unlink()
    with herd.store.reading("test", NOW * 1_000) as one:
        yield one


def drop(state: State, second: int, *requests: dict[str, object]) -> Path:
    return Inbox(state.path.parents[1] / "inbox").drop(f"{second * 1000:013d}-here-1-{next(_COUNTER):09d}", requests)


def refresh(url: str) -> dict[str, object]:
    return {"op": "refresh", "url": url}


def row_of(state: State, url: str) -> int:
    row = lookup.row_of(state, *state.prints.of(parse(url)))
    assert row is not None
    return row


def plan_of(state: State, urls: list[str]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    plan = np.zeros(len(urls), PLAN)
    for number, url in enumerate(urls):
        plan[number]["row"] = row_of(state, url)
    return plan


def entry(state: State, url: str, plan_row: int, **told: int) -> Entry:
    norm, path, site = state.prints.of(parse(url))
    return Entry(norm=norm, path=path, site=site, plan_row=plan_row, kind=Kind.PAGE, **told)


def planned_item(state: State, url: str, number: int) -> Item:
    norm, path, site = state.prints.of(parse(url))
    return Item(Kind.PAGE, norm, path, site, site, site, plan_row=number)


def refreshes_of(state: State, planned: list[str]) -> Refreshes:
    return Refreshes(state, PlanSource(plan_of(state, planned)), STRIPPING)


def desk_of(state: State, journalled: Records) -> SourceDesk:
    book = SiteBook(state, Politeness(), STRIPPING, NOW)
    return SourceDesk(1, state.prints, lambda: None, journalled, book, Items(state))


def look(one: Refreshes, second: int = LATER) -> list[Item]:
    return one.look(second * 1000)


@settings(max_examples=sampling.examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_requests_are_chosen_as_by_a_loop(state: State, data: st.DataObject) -> None:
    for path in (state.path.parents[1] / "inbox").glob("*.req"):
        path.unlink()
    urls = [page.url for page in PAGES]
    planned = data.draw(st.lists(st.sampled_from(urls), unique=True, max_size=10), "plan")
    begun = data.draw(st.dictionaries(st.sampled_from(planned), st.sampled_from((NOW - 5, NOW + 5))), "begun") if planned else {}
    asked = data.draw(
        st.lists(st.tuples(st.sampled_from(urls), st.sampled_from((NOW - 20, NOW, NOW + 20, LATER))), max_size=12), "asked"
    )

    one = refreshes_of(state, planned)
    for url, second in begun.items():
        number = planned.index(url)
        one._plan.handed_out(planned_item(state, url, number), second * 1000)
        if data.draw(st.booleans(), "settled"):
            one._plan.settled(planned_item(state, url, number), entry(state, url, number))
    for url, second in asked:
        drop(state, second, refresh(url))
    found = [(state.objects.head(item.oid).url, item.plan_row, item.again) for item in look(one)]

    queued: set[str] = set()
    expected = []
    for url, second in sorted(asked, key=lambda pair: pair[1]):
        page = PAGES[urls.index(url)]
        gatherable = page.type in refreshes.GATHERABLE and page.reason != Reason.ROBOTS_DENIED and not page.columns["flags"]
        since = max(page.columns["checked"], begun.get(url, 0))
        if gatherable and url not in queued and since <= second < LATER:
            queued.add(url)
            expected.append((url, planned.index(url) if url in planned and url not in begun else NO_ROW, url in begun))
    assert found == expected and one.count == len(expected)
    assert look(one) == []


def test_request_of_a_page_that_is_being_fetched_waits_for_its_end(state: State) -> None:
    """What the server sends by then may be older than the request."""
    url = PAGES[0].url
    one = refreshes_of(state, [url])
    one._plan.handed_out(planned_item(state, url, 0), NOW * 1000)
    drop(state, NOW - 1, refresh(url))
    assert look(one) == []  # it was not begun yet then
    drop(state, NOW, refresh(url))
    drop(state, NOW + 1, refresh(url))
    (item,) = look(one)
    assert (item.plan_row, item.again) == (NO_ROW, True)
    one._plan.settled(planned_item(state, url, 0), entry(state, url, 0))
    drop(state, NOW + 2, refresh(url))
    assert look(one) == []  # it waits for its turn
    one.handed_out(item, (NOW + 3) * 1000)
    drop(state, NOW + 2, refresh(url))
    assert look(one) == []
    drop(state, NOW + 3, refresh(url))
    assert len(look(one)) == 1


def test_request_is_not_read_before_its_second_is_over(state: State) -> None:
    """Of what was fetched in the same second it would be unclear whether it came before or after."""
    url = PAGES[0].url
    one = refreshes_of(state, [])
    drop(state, NOW, refresh(url))
    assert look(one, NOW) == [] and not one.more
    assert len(look(one, NOW + 1)) == 1


def test_page_that_the_filter_rejects_now_is_not_asked_for(state: State) -> None:
    kept, rejected = PAGES[0].url, PAGES[4].url
    one = Refreshes(state, PlanSource(plan_of(state, [])), parse_filter(f"reject prefix {rejected}\n"))
    drop(state, NOW, refresh(rejected), refresh(kept))
    assert [item.path for item in look(one)] == [state.prints.of(parse(kept))[1]]


def test_page_that_was_given_up_with_its_site_can_be_refreshed(state: State) -> None:
    """It was never handed out, but is in no queue any more: it has no place that the refresh could take."""
    planned, other = PAGES[0].url, PAGES[4].url
    one = refreshes_of(state, [planned])
    one._plan.settled(planned_item(state, planned, 0), entry(state, planned, 0))
    drop(state, NOW, refresh(planned), refresh(other))
    assert [(item.plan_row, item.again) for item in look(one)] == [(NO_ROW, True), (NO_ROW, False)]
    one.settled(planned_item(state, other, NO_ROW), entry(state, other, NO_ROW))
    drop(state, NOW + 1, refresh(other))
    assert [item.again for item in look(one)] == [True]


def test_page_of_a_site_that_is_shut_can_be_requested_again(state: State) -> None:
    planned, other = PAGES[0].url, PAGES[4].url
    one = refreshes_of(state, [planned])
    drop(state, NOW, refresh(planned), refresh(other))
    for item in look(one):
        assert one.takes_back(item)
    assert one.count == 0
    drop(state, NOW + 1, refresh(planned), refresh(other))
    assert len(look(one)) == 2


def test_request_that_an_interrupted_run_has_fulfilled_is_not_repeated(state: State) -> None:
    planned, other, dropped = PAGES[0].url, PAGES[4].url, PAGES[8].url
    plan = PlanSource(plan_of(state, [planned, dropped]))
    one = Refreshes(state, plan, STRIPPING)
    told = {"start_ms": NOW * 1000 + 5_000, "flags": int(JournalFlag.CONTACTED)}
    records = [entry(state, planned, 0, **told), entry(state, other, NO_ROW, **told)]
    records += [entry(state, dropped, 1, start_ms=told["start_ms"])]
    desk = desk_of(state, np.frombuffer(b"".join(record.pack() for record in records), JOURNAL))
    plan.open(desk)
    one.open(desk)
    drop(state, NOW, refresh(planned), refresh(other), refresh(dropped))
    assert [item.plan_row for item in look(one)] == [NO_ROW]  # the one that nobody was asked for
    drop(state, NOW + 6, refresh(planned), refresh(other))
    assert len(look(one)) == 2


def test_lines_that_ask_for_no_refresh_are_ignored(state: State) -> None:
    url = PAGES[0].url
    others: list[dict[str, object]] = [
        {"op": "delete", "url": url},
        {"op": "insert", "url": url},
        {"op": "set", "url": url, "weight": 1},
        {"op": "refresh", "url": "http://a.example/nobody"},
        {"op": "refresh", "url": "not a url"},
        {"op": "refresh", "url": f"{url}?utm_source=x", "exact": True},
        {"op": "refresh", "url": "http://b.example/"},  # the root page of another site of its class
    ]
    path = drop(state, NOW, *others)
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"nonsense\n[]\n\xff\n" + b"x" * 200_000 + b"\n")
    one = refreshes_of(state, [])
    assert look(one) == []
    drop(state, NOW, refresh(f"{url}?utm_source=x"), refresh("https://www.b.example/page"), refresh("http://www.b.example/"))
    assert [state.objects.head(item.oid).url for item in look(one)] == [url, "http://b.example/page", "http://www.b.example/"]


def test_many_requests_are_read_in_portions(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshes, "AT_ONCE", 3)
    monkeypatch.setattr(refreshes, "MOST", 7)
    urls = [page.url for page in PAGES[:12] if page.columns["checked"] < NOW + 10]
    one = refreshes_of(state, [])
    drop(state, NOW + 1, *map(refresh, urls[:5]))
    drop(state, NOW + 1, *map(refresh, urls[5:]))
    looks = [(len(look(one)), one.more) for _ in range(5)]
    assert looks == [(3, True), (3, True), (1, False), (0, False), (0, False)]


def test_many_lines_of_other_kinds_are_read_in_portions(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshes, "AT_ONCE_BYTES", 1_000)
    inserts: list[dict[str, object]] = [{"op": "insert", "url": f"http://a.example/new/{n}"} for n in range(50)]
    drop(state, NOW, *inserts, refresh(PAGES[0].url))
    one = refreshes_of(state, [])
    looks: list[int] = []
    while not looks or one.more:
        looks.append(len(look(one)))
    assert sum(looks) == 1 and len(looks) >= 8


def test_item_that_waits_is_returned_once(state: State) -> None:
    """Every look sees what still waits, and what has come: items stay until a merge takes them."""
    one = refreshes_of(state, [])
    for n in range(0, 12, 4):
        drop(state, NOW, refresh(PAGES[n].url))
        assert [state.objects.head(item.oid).url for item in look(one)] == [PAGES[n].url]
    assert one.count == 3


def test_inbox_that_is_gone_is_logged_once_and_does_not_end_the_reap(state: State, caplog: pytest.LogCaptureFixture) -> None:
    one = refreshes_of(state, [])
    inbox = state.path.parents[1] / "inbox"
    aside = inbox.rename(inbox.with_name("aside"))
    try:
        assert look(one) == [] == look(one)
    finally:
        aside.rename(inbox)
    assert caplog.text.count("refresh requests cannot be read") == 1
