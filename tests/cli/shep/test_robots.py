"""shep robots, run as a user runs it: the file, group and line that decide, from the database and from a local file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.formats.tables import Flag, Reason, RowType
from tests.support.page_states import GATHERED, Herd, Page, Run, Site, make_herd, objects, stdout_of
from tests.worlds import DAY, NOW

ROBOTS = b"""# of a.example
User-agent: other
Disallow: /

User-agent: first
User-agent: Shepherd
Disallow: /private
Allow: /private/press
Crawl-delay: 12
Sitemap: http://a.example/sitemap.xml
Sitemap: http://a.example/\x1b]0;steer\x07

User-agent: *
Disallow: /nothing-for-us
"""
MOVED = {"S": b"HTTP/1.1 301 Moved", "E": b"http://b.example/\x1b[2J"}
IS_ROBOTS = GATHERED | {"flags": Flag.ROBOTS}


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """A site for each thing that a database can know of a robots.txt."""
    pages = [
        Page("http://a.example/robots.txt", RowType.GATHERED, Reason.GATHERED, ROBOTS, {}, IS_ROBOTS),
        Page("http://moved.example/robots.txt", RowType.GATHERED, Reason.REDIRECT, None, MOVED, IS_ROBOTS),
        *(Page(f"http://{host}.example/") for host in ("new", "none", "down", "ignored")),
    ]
    asked = {"robots_checked": NOW - DAY, "robots_next": NOW + DAY, "robots_status": 200}
    sites = [
        Site("http://none.example", asked | {"robots_status": 404}),
        Site("http://down.example", {"robots_since": NOW - DAY, "robots_next": NOW}),
    ]
    herd = make_herd(tmp_path_factory.mktemp("fold"), pages, sites, stored_robots={"a": asked, "moved": asked})
    with (herd.cf / "filter").open("a") as file:
        file.write("set robots ignore host ignored.example\n")
    return herd


@pytest.mark.parametrize(
    ("path", "verdict", "line"),
    [
        ("/private/x", "denied", {"number": 7, "text": "Disallow: /private"}),
        ("/private/press/1", "allowed", {"number": 8, "text": "Allow: /private/press"}),
        ("/nothing-for-us", "allowed", None),
    ],
)
def test_line_and_group_that_decide(fold: Herd, shep: Run, path: str, verdict: str, line: object) -> None:
    (found,) = objects(shep(fold, "robots", "--json", f"http://a.example{path}"))
    assert (found["verdict"], found["line"]) == (verdict, line)
    assert found["group"] == {"number": 6, "text": "User-agent: Shepherd"}
    assert (found["crawl_delay_s"], found["file"]["status"], found["file"]["url"]) == (12, 200, "http://a.example/robots.txt")
    assert found["sitemaps"] == ["http://a.example/sitemap.xml", "http://a.example/\\x1b]0;steer\\x07"]
    assert len(found["file"]["digest"]) == 64


def test_other_agent_is_judged_by_its_own_group(fold: Herd, shep: Run) -> None:
    (found,) = objects(shep(fold, "robots", "--json", "--agent", "other", "http://a.example/x"))
    assert (found["verdict"], found["group"]["number"], found["line"]["number"]) == ("denied", 2, 3)
    (found,) = objects(shep(fold, "robots", "--json", "--agent", "third", "http://a.example/nothing-for-us"))
    assert (found["verdict"], found["group"]["text"], found["line"]["number"]) == ("denied", "User-agent: *", 14)


@pytest.mark.parametrize(
    ("host", "verdict", "why"),
    [
        ("www.a", "not-asked", "its site is not known"),
        ("new", "not-asked", "it was not fetched yet"),
        ("none", "allowed", "status 404 counts as no robots.txt"),
        ("down", "denied", "it has been unreachable since"),
        ("moved", "not-known", "it redirects to http://b.example/\\x1b[2J, which each reap fetches anew"),
        ("ignored", "allowed", "line 5 of the filter ignores its robots.txt: set robots ignore"),
    ],
)
def test_site_without_rules_of_its_own(fold: Herd, shep: Run, host: str, verdict: str, why: str) -> None:
    last = stdout_of(shep(fold, "robots", f"http://{host}.example/x")).splitlines()[-2]
    assert last.startswith(f"verdict      {verdict}: {why}")


def test_text_of_a_robots_file_steers_no_terminal(fold: Herd, shep: Run) -> None:
    answer = shep(fold, "robots", "http://a.example/private", "http://moved.example/")
    assert answer.returncode == 0
    assert b"\x1b" not in answer.stdout + answer.stderr
    assert b"\\x1b]0;steer\\x07" in answer.stdout


def test_local_file_needs_no_database(tmp_path: Path, shep: Run) -> None:
    file = tmp_path / "robots.txt"
    file.write_bytes(b"User-agent: bot\r\nDisallow: /*.pdf$\r\n")
    nowhere = Herd(tmp_path / "nowhere", tmp_path, NOW)
    call = ("robots", "--json", "--file", str(file), "--agent", "Bot/2.0")
    denied, allowed, bad = objects(shep(nowhere, *call, "https://x.example/a.pdf", "https://x.example/a.pdf?x", "mailto:x"), 2)
    assert (denied["verdict"], denied["line"]) == ("denied", {"number": 2, "text": "Disallow: /*.pdf$"})
    assert (allowed["verdict"], allowed["line"], allowed["why"]) == ("allowed", None, "no line of its group matches")
    assert bad["given"] == "mailto:x"
    (found,) = objects(shep(nowhere, *call[:-1], "stranger", "-", stdin=b"https://x.example/a.pdf\n"))
    assert (found["verdict"], found["group"], found["why"]) == ("allowed", None, "no group speaks to this agent")


@pytest.mark.parametrize("agent", ["", "a b", "/2.0", "bot/", "b\u00f6t"])
def test_agent_that_no_robots_file_could_name_is_refused(tmp_path: Path, shep: Run, agent: str) -> None:
    nowhere = Herd(tmp_path / "nowhere", tmp_path, NOW)
    (tmp_path / "robots.txt").write_bytes(b"User-agent: *\nDisallow: /\n")
    done = shep(nowhere, "robots", "--file", str(tmp_path / "robots.txt"), "--agent", agent, "http://x.example/")
    assert (done.returncode, b"product token" in done.stderr) == (2, True), done
