"""shep explain, run as a user runs it: classes, robots lines, ranks, what each cycle made of a URL, and --why-not."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.filters import parse_filter
from shepherd.formats.tables import JOURNAL, Deferred, Flag, JournalFlag, Reason, Result, RowType
from shepherd.report.find import seek
from shepherd.report.history import SMALL_BYTES, ReadBudget, cycles
from tests.support import unfinished_states as reaping
from tests.support.page_states import GATHERED, Herd, Page, Run, Site, add_state, make_herd, objects, stdout_of
from tests.support.programs import call
from tests.support.unfinished_states import journal_record, start_reap
from tests.worlds import DAY, NOW

ASKED = {"robots_checked": NOW - DAY, "robots_next": NOW + DAY, "robots_status": 200}


def lines(text: str) -> dict[str, str]:
    return {line[:12].rstrip(): line[14:] for line in text.splitlines()}


# --- the class of its site --------------------------------------------------------------------------------------


def test_class_by_its_line_of_url_equiv(own_herd: Herd, shep: Run) -> None:
    """As soon as shep-equiv has gone by the file; until then explain announces the change."""
    (own_herd.cf / "url-equiv").write_text("# mirrors\na.example b.example\n")
    url = "https://www.b.example/page"
    coming = lines(stdout_of(shep(own_herd, "explain", url)))
    assert coming["class"] == "b.example: http and https, with and without www., are one"
    assert coming["next class"] == f"a.example: {own_herd.cf}/url-equiv has changed, and the next shep-equiv goes by it"
    for program in ("shep-merge", "shep-equiv", "shep-select", "shep-record"):
        done = call(program, "--db", str(own_herd.db), "--cf", str(own_herd.cf), "--now", str(NOW))
        assert done.returncode == 0, done
    then = lines(stdout_of(shep(own_herd, "explain", url)))
    assert then["class"] == f"a.example: {own_herd.cf}/url-equiv, line 2: a.example b.example"
    assert "next class" not in then
    assert then["known"].startswith("gathered (state 3")
    (found,) = objects(shep(own_herd, "explain", "--json", url))
    assert found["equivalence"] == {
        "norm": "a.example",
        "line": 2,
        "text": "a.example b.example",
        "path": f"{own_herd.cf}/url-equiv",
        "next": None,
    }


# --- robots.txt -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """A site with a robots.txt and a soft limit of 3, which has five pages of different weights."""
    robots = b"User-agent: *\nDisallow: /no\n"
    flags = GATHERED | {"flags": Flag.ROBOTS}
    pages = [
        Page("http://a.example/robots.txt", RowType.GATHERED, Reason.GATHERED, robots, {}, flags),
        *(Page(f"http://a.example/{weight}", columns={"weight": weight}) for weight in (100, 200, 300, 400)),
        Page("http://a.example/no", columns={"weight": 50}),
        Page("http://a.example/out", RowType.FORGOTTEN, Reason.SITE_HARD, columns={"weight": 900}),
    ]
    limits = [Site("http://a.example", {"soft_limit": 3, "hard_limit": 10})]
    return make_herd(tmp_path_factory.mktemp("fold"), pages, limits, (), stored_robots={"a": ASKED})


def test_robots_version_group_and_line(fold: Herd, shep: Run) -> None:
    (found,) = objects(shep(fold, "explain", "--json", "--now", str(NOW), "http://a.example/no/way"))
    robots = found["robots"]
    assert (robots["verdict"], robots["line"]) == ("denied", {"number": 2, "text": "Disallow: /no"})
    assert robots["group"] == {"number": 1, "text": "User-agent: *"}
    assert (robots["file"]["status"], robots["file"]["checked"]) == (200, "2026-09-20T14:13:20Z")
    assert len(robots["file"]["digest"]) == 64
    assert "the stored robots.txt denies it (line 2: Disallow: /no)" in found["outlook"]
    text = lines(stdout_of(shep(fold, "explain", "--now", str(NOW), "http://a.example/no")))
    assert (text["its group"], text["its line"]) == ("line 1: User-agent: *", "line 2: Disallow: /no")
    assert text["verdict"].endswith("it is due, and the stored robots.txt, line 2, denies it.")


# --- ranks and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "rank"), [("400", 1), ("300", 2), ("100", 4), ("no", 5)])
def test_rank_in_its_site_goes_by_weight(fold: Herd, shep: Run, page: str, rank: int) -> None:
    (found,) = objects(shep(fold, "explain", "--json", f"http://a.example/{page}"))
    (site,) = (one for one in found["standings"] if one["of"] == "site")
    assert (site["rank"], site["count"], site["soft"], site["hard"]) == (rank, 5, 3, 10)
    assert (site["bar"], site["exact"]) == (200, True)


@pytest.mark.parametrize("page", ["out", "robots.txt"])
def test_row_without_a_place_has_no_rank(fold: Herd, shep: Run, page: str) -> None:
    (found,) = objects(shep(fold, "explain", "--json", f"http://a.example/{page}"))
    assert [one["rank"] for one in found["standings"]] == [None] * len(found["standings"])


def test_outlook_of_a_url_whose_site_is_full(fold: Herd, shep: Run) -> None:
    text = lines(stdout_of(shep(fold, "explain", "http://a.example/new")))
    assert text["in site"].endswith("soft limit 3, hard limit 10, full: what is to be gathered must weigh more than 200")
    assert "found by a link it would sleep unless it weighs more than 200 in its site" in text["if it came"]


def test_ranks_in_section_and_total(fold: Herd, shep: Run, tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text("[select]\ngathered = 4\n[sections]\nnone = 2\n")
    (found,) = objects(shep(fold, "explain", "--json", "--cf", str(tmp_path), "http://a.example/300"))
    stands = {one["of"]: (one["rank"], one["count"], one["soft"], one["hard"], one["exact"]) for one in found["standings"]}
    assert stands["section"] == (2, 5, 2, 4, True)
    assert stands["all"] == (2, 5, 4, None, True)


# --- what each cycle made of it ---------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> Herd:
    """State 3 fetched /x and left out /y; state 4 fetched /x again, in vain."""
    first = (Page("http://a.example/x"), Page("http://a.example/y"))
    herd = make_herd(tmp_path, first, (), ())
    got = journal_record("http://a.example/x", status=200, download_ms=70, flags=JournalFlag.CONTACTED, reason=Reason.GATHERED)
    left = Page("http://a.example/y", columns={"deferred": Deferred.SERVER_QUOTA})
    add_state(herd, (Page("http://a.example/x", RowType.GATHERED, Reason.GATHERED, b"x", {}, GATHERED), left), journal=[got])
    lost = {"result": Result.SOFT, "reason": Reason.SERVER_ERROR, "status": 503, "flags": JournalFlag.CONTACTED}
    second = journal_record("http://a.example/x", **lost)
    failed = Page("http://a.example/x", RowType.GATHERED, Reason.SERVER_ERROR, b"x", {}, GATHERED | {"retry": 1})
    add_state(herd, (failed, left), journal=[second, second])
    return herd


def test_every_cycle_is_listed_with_its_outcome(history: Herd, shep: Run) -> None:
    text = lines(stdout_of(shep(history, "explain", "--deep", "http://a.example/x")))
    assert text["state 1"].endswith("not known")
    assert text["state 2"].endswith("ungathered, link, weight 0")
    assert text["state 3"].endswith("fetched: stored (gathered) at 2026-09-21T14:13:20.005Z, status 200, 70 ms")
    assert text["state 4"].count("fetched: soft (server-error) at 2026-09-21T14:13:20.005Z, status 503, 0 ms") == 2
    text = lines(stdout_of(shep(history, "explain", "--deep", "http://a.example/y")))
    assert text["state 3"].endswith("left out by the plan: server-quota")


def test_journals_of_deleted_states_are_read(history: Herd, shep: Run) -> None:
    with history.store.writing("test") as writer:
        assert writer.prune(1, NOW, keep_journals=5) == [1, 2, 3]
    (found,) = objects(shep(history, "explain", "--deep", "--json", "http://a.example/x"))
    assert [(one["state"], one["known"], one["journal"]) for one in found["cycles"]] == [
        ("3", None, "looked through"),
        ("4", True, "looked through"),
    ]
    assert [one["result"] for one in found["cycles"][0]["fetches"]] == ["stored"]


def test_small_journals_are_looked_through_whatever_the_budget(history: Herd) -> None:
    position = seek(history.store.closed(), parse_filter(""), "http://a.example/x")
    found = cycles(history.store, position, "test", 0, ReadBudget(0))
    assert [len(one.fetches or ()) for one in found] == [0, 0, 1, 2]


def test_journal_beyond_the_budget_is_marked_and_older_small_ones_are_not(history: Herd) -> None:
    other = journal_record("http://a.example/y", status=200, flags=JournalFlag.CONTACTED)
    records = SMALL_BYTES // JOURNAL.itemsize + 1
    add_state(history, (Page("http://a.example/x"),), journal=[other] * records)
    position = seek(history.store.closed(), parse_filter(""), "http://a.example/x")
    found = cycles(history.store, position, "test", 0, ReadBudget(SMALL_BYTES))
    assert [one.as_object()["journal"] for one in found][2:] == ["looked through", "looked through", "not looked through"]
    assert found[-1].line()[1].endswith("its journal was not looked through (--deep does)")
    (whole,) = cycles(history.store, position, "test", 0, ReadBudget(float("inf")))[-1:]
    assert whole.fetches == ()


def test_reap_under_way(own_herd: Herd, shep: Run) -> None:
    start_reap(own_herd)
    text = lines(stdout_of(shep(own_herd, "explain", "--deep", reaping.NEW)))
    assert "planned as number 1: new, priority 0; fetched: stored (gathered) at " in text["state 3.reap"]
    text = lines(stdout_of(shep(own_herd, "explain", "--deep", reaping.GONE)))
    assert text["state 3.reap"].endswith("planned as number 2: retry, priority 0; not fetched")
    text = lines(stdout_of(shep(own_herd, "explain", "--deep", "http://a.example/asleep")))
    assert text["state 3.reap"].endswith("not among the 2 that are planned; not fetched")


# --- why not ----------------------------------------------------------------------------------------------------


def test_why_not_counts_by_reason_with_examples(herd: Herd, shep: Run) -> None:
    (found,) = objects(shep(herd, "explain", "--why-not", "https://www.a.example/", "--json"))
    assert (found["urls"], found["text_gone"], found["state"]) == (9, 0, 2)
    counted = {(one["type"], one["reason"]): (one["urls"], one["examples"]) for one in found["by_reason"]}
    assert counted["error", "client-error"] == (1, ["http://a.example/gone"])
    assert counted["gathered", "gathered"][0] == 3
    assert counted["forgotten", "deleted"][1][0].startswith("http://a.example (path ")


def test_why_not_below_a_path_reads_the_texts(herd: Herd, shep: Run) -> None:
    text = stdout_of(shep(herd, "explain", "--why-not", "http://a.example/priv"))
    assert stdout_of(shep(herd, "explain", "--why-not", "a.example/priv")) == text  # a host is enough, as for --site
    assert text.splitlines() == [
        "         1  gathered: gathered",
        "              http://a.example/private/old",
        "         1  under http://a.example/priv in state 2; 1 more of the site lost their text",
    ]


def test_why_not_lists_what_the_plan_left_out(history: Herd, shep: Run) -> None:
    text = stdout_of(shep(history, "explain", "--why-not", "http://a.example/"))
    assert "ungathered: link; left out by the last plan: server-quota" in text


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--why-not", "http://nowhere.example/"), 4),
        (("--why-not", "http://a.example/none"), 4),
        (("--why-not", "http://"), 2),
        (("--why-not", "http://a.example/", "http://a.example/"), 2),
        ((), 2),
    ],
)
def test_why_not_of_nothing(herd: Herd, shep: Run, arguments: tuple[str, ...], status: int) -> None:
    assert stdout_of(shep(herd, "explain", *arguments), status) == ""
