"""A plan goes by the rules in force: the filter of now, and the `network.allow` of now, whatever rows were judged by before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shepherd.cycle.plan import judgement
from shepherd.filters import load_filter
from shepherd.store.state.database import Database
from tests.support.origin import ok
from tests.support.reaping import Home, planned

CF = '[identity]\ncontact = "me@example.org"\n'


def known(path: Path, urls: dict[str, int], settings: str = "") -> Home:
    """A database that knows these URLs, by their weights, and has asked nobody."""
    (path / "cf").mkdir()
    (path / "cf" / "shepherd.toml").write_text(CF + settings)
    (path / "cf" / "filter").write_text("default accept\n")
    home = Home(path, path / "db", [])
    home.must("shep-init", "-q")
    for weight in sorted(set(urls.values())):
        home.must("shep", "insert", "-q", "--weight", str(weight), *(url for url, its in urls.items() if its == weight))
    for program in ("merge", "select", "record"):
        home.must(f"shep-{program}", "-q")
    return home


def plan_of(home: Home, status: int = 0) -> list[str]:
    done = home.run("shep-plan", "-q")
    assert done.returncode == status, done.stderr
    return [json.loads(line)["url"] for line in home.must("shep-dump", "plan", "--json", "-u").splitlines()] if not status else []


FOREIGN = [f"http://f{number}.example/" for number in range(12)]
OWN = ["http://own.example/", "http://own.example/a.pdf", "http://own.example/docs/"]


@pytest.mark.parametrize(
    ("rules", "pages"),
    [
        ("only site own.example\n", OWN),
        ("accept host own.example\ndefault reject\n", OWN),
        ("only prefix http://own.example/docs/\n", OWN[2:]),
        ("reject glob http://f*\nreject ext pdf\ndefault accept\n", [OWN[0], OWN[2]]),
    ],
)
def test_what_the_filter_rejects_now_is_not_planned_and_nothing_of_its_site(tmp_path: Path, rules: str, pages: list[str]) -> None:
    home = known(tmp_path, dict.fromkeys([*FOREIGN, *OWN], 100))
    (tmp_path / "cf" / "filter").write_text(rules)
    urls = plan_of(home)
    assert sorted(url for url in urls if not url.endswith("/robots.txt")) == pages
    assert {url.split("/")[2] for url in urls} == {"own.example"}


def test_rows_that_are_rejected_give_their_places_to_the_next_best(tmp_path: Path) -> None:
    weights = dict.fromkeys(FOREIGN, 900) | dict.fromkeys(OWN, 100)
    home = known(tmp_path, weights, "[plan]\nmax_pages = 4\n")  # a robots.txt and three pages
    (tmp_path / "cf" / "filter").write_text("reject glob http://f*\ndefault accept\n")
    assert sorted(url for url in plan_of(home) if not url.endswith("/robots.txt")) == OWN


def test_plan_of_nothing_but_rejected_rows_is_nothing(tmp_path: Path) -> None:
    home = known(tmp_path, dict.fromkeys(FOREIGN, 100))
    (tmp_path / "cf" / "filter").write_text("default reject\n")
    assert plan_of(home, 4) == []
    verdict = home.must("shep", "explain", FOREIGN[0]).splitlines()[-1]
    assert "the default of" in verdict and "rejects it now, so no plan takes it" in verdict


def test_texts_are_read_only_until_a_cleanup_has_judged_everything_by_the_same_filter(tmp_path: Path) -> None:
    home = known(tmp_path, dict.fromkeys(OWN, 100))

    def judges() -> bool:
        database, filters = Database(home.db), load_filter(tmp_path / "cf" / "filter")
        return judgement.filter_to_judge_by(database, database.furthest(), filters) is not None

    assert judges()
    assert home.run("shep-cleanup", "-q").returncode in (0, 4)
    assert not judges()
    (tmp_path / "cf" / "filter").write_text("reject ext pdf\ndefault accept\n")
    assert judges()


def test_damaged_bucket_does_not_stop_a_plan(tmp_path: Path) -> None:
    home = known(tmp_path, dict.fromkeys(OWN, 100))
    (segment,) = (home.db / "state" / "000002" / "objects").iterdir()
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.chmod(0o644)
    segment.write_bytes(data)
    segment.chmod(0o444)
    assert home.run("shep-plan", "-q").returncode == 0


# --- network.allow

ROUTES = {"a.example/": ok(b"<p>hello", "Content-Type: text/html")}


def allow(home: Home, *ranges: str) -> None:
    path = home.path / "cf" / "shepherd.toml"
    lines = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("allow")]
    lines.insert(lines.index("[network]\n") + 1, f"allow = {json.dumps(ranges)}\n")
    path.write_text("".join(lines))


def reap(home: Home) -> None:
    for program in ("reap", "cork"):
        home.must(f"shep-{program}", "-q")


def test_what_the_guard_refused_is_due_once_when_other_addresses_are_allowed(tmp_path: Path) -> None:
    with planned(tmp_path, ROUTES, ["http://a.example/"], []) as home:
        allow(home)
        reap(home)
        assert home.fates()["http://a.example/"] == ("error", "guard")
        assert plan_of(home, 4) == []
        allow(home, "10.0.0.0/8")  # which does not help
        assert "http://a.example/" in plan_of(home)
        reap(home)
        assert home.fates()["http://a.example/"] == ("error", "guard")
        for _ in range(50):  # as long as all that is in one second, which is as fine as the columns are
            if home.run("shep-plan", "-q").returncode == 4:
                break
            reap(home)
        assert plan_of(home, 4) == []
        allow(home, "127.0.0.0/8")
        assert "http://a.example/" in plan_of(home)
        reap(home)
        assert home.fates()["http://a.example/"] == ("gathered", "gathered")


def test_refresh_has_a_name_without_an_address_looked_up_again(tmp_path: Path) -> None:
    with planned(tmp_path, ROUTES, ["http://a.example/"], []) as home:
        allow(home)
        reap(home)
        assert plan_of(home, 4) == []
        home.must("shep", "refresh", "http://a.example/")
        for program in ("merge", "select", "record"):
            home.must(f"shep-{program}", "-q")
        assert "http://a.example/" in plan_of(home)


def test_refresh_says_which_documents_must_wait(tmp_path: Path) -> None:
    routes = {"a.example/robots.txt": b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", **ROUTES}
    with planned(tmp_path, routes, ["http://a.example/"], []) as home:
        reap(home)
        done = home.run("shep", "refresh", "http://a.example/")
        assert "1 URL must wait: no robots.txt of their sites can be reached; it is asked for again by 20" in done.stderr


def test_refresh_leaves_out_what_the_filter_rejects_and_says_so(tmp_path: Path) -> None:
    home = known(tmp_path, dict.fromkeys(OWN, 100))
    (tmp_path / "cf" / "filter").write_text("reject ext pdf\ndefault accept\n")
    done = home.run("shep", "refresh", "--site", "own.example")
    assert "skipped: 1 rejected by the filter" in done.stderr, done.stderr
