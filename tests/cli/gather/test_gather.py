"""What gather derives before anything is fetched: configuration, scope, contact."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd import config, urls
from shepherd.cli.gather import cf as gather_cf
from shepherd.cli.gather import summary as gather_summary
from shepherd.cli.gather.scope import ANY, SITE, SUBDOMAINS, Scope
from shepherd.cli.gather.summary import GatherSummary
from shepherd.console import cf_files
from shepherd.filters import parse_filter
from shepherd.store.disk import locks
from shepherd.store.state import database
from shepherd.store.state.database import Database
from tests.support.programs import call

ROOT = Path(__file__).resolve().parents[3]
NO_MINUTES = "0.001"  # less than a second: everything is set up, and no cycle begins


def gather(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("gather", *arguments, cwd=cwd)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return call(*arguments, cwd=cwd, SHEPHERD_DB="", SHEPHERD_CF="")


# --- scope ------------------------------------------------------------------------------------------------------

NORMS = ["example.org", "example.com:8080", "localhost", "[2001:db8::1]"]


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("http://example.org/", True),
        ("https://www.example.org/a?b=c", True),
        ("https://www.example.com:8080/", True),
        ("http://localhost/x", True),
        ("http://[2001:db8::1]/x", True),
        ("https://example.com/", False),
        ("http://example.com:808/", False),
        ("http://example.org:8080/", False),
        ("http://example.or/", False),
        ("http://example.orgx/", False),
        ("http://example.org.evil.example/", False),
        ("http://sub.example.org/", False),
        ("http://www.www.example.org/", False),
        ("http://www.localhost/", False),
        ("http://w/", False),
        ("http://other.example/?u=http://example.org/", False),
        ("http://other.example/example.org/", False),
    ],
)
def test_url_outside_the_scope_is_rejected(url: str, accepted: bool) -> None:
    filters = parse_filter(Scope(tuple(NORMS)).filter_text(""))
    assert filters.judge(urls.parse(url).href).accepted is accepted


def test_rejects_of_the_user_apply_within_the_scope() -> None:
    user = (
        "accept prefix http://example.org/private/open/\nreject prefix http://example.org/private/\nreject ext zip\nstrip utm_*\n"
    )
    filters = parse_filter(Scope(("example.org",)).filter_text(user))
    assert filters.clean("http://example.org/?utm_source=x") == "http://example.org/"
    assert filters.clean("http://example.org/private/open/a") is not None
    assert filters.clean("http://example.org/private/a") is None
    assert filters.clean("http://example.org/a.zip") is None
    assert filters.clean("http://other.example/") is None


def test_default_reject_of_the_user_applies_within_the_scope() -> None:
    filters = parse_filter(Scope(("a.example",)).filter_text("accept prefix http://a.example/x/\ndefault reject\n"))
    assert filters.judge("http://a.example/x/1").accepted
    assert not filters.judge("http://a.example/y/1").accepted


def test_long_names_and_many_of_them_make_a_filter() -> None:
    norms = [f"{'x' * 60}.{'y' * 60}.site{number}.example" for number in range(60)]
    filters = parse_filter(Scope(tuple(norms)).filter_text(""))
    assert all(filters.judge(f"https://www.{norm}/").accepted for norm in norms)
    assert not filters.judge(f"https://{norms[0]}x/").accepted


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("http://example.org/", True),
        ("https://www.example.org/", True),
        ("https://blog.example.org/a", True),
        ("http://a.b.example.org/", True),
        ("http://.example.org/", True),
        ("http://xexample.org/", False),
        ("http://example.org.evil.example/", False),
        ("http://example.org:8080/", False),
        ("http://blog.example.org:8080/", False),
        ("http://org/", False),
        ("http://other.example/?u=http://blog.example.org/", False),
        ("http://sub.shop.example:81/", True),
        ("http://sub.shop.example/", False),
        ("http://lone.example/", True),
        ("http://www.lone.example/", True),
        ("http://sub.lone.example/", False),
        ("http://alone.example/", False),
    ],
)
def test_scope_of_subdomains_is_no_wider_and_no_narrower(url: str, accepted: bool) -> None:
    scope = Scope().with_sites(["example.org", "shop.example:81"], SUBDOMAINS).with_sites(["lone.example"], SITE)
    assert scope.places == ("*.example.org", "*.shop.example:81", "lone.example")
    assert parse_filter(scope.filter_text("")).judge(url).accepted is accepted
    assert scope.has(urls.norm_of(url.removesuffix("/").partition("/?")[0].removesuffix("/a"))) is accepted


NAMES = st.lists(st.sampled_from(["a", "b", "www", "ab"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(st.tuples(NAMES, st.sampled_from([SITE, SUBDOMAINS])), min_size=1, max_size=4), NAMES)
def test_filter_line_of_a_scope_says_what_the_scope_says(places: list[tuple[str, str]], host: str) -> None:
    scope = Scope()
    for name, kind in places:
        scope = scope.with_sites([urls.norm_of(f"http://{name}")], kind)
    accepted = parse_filter(scope.filter_text("")).judge(f"http://{host}/").accepted
    assert accepted == scope.has(urls.norm_of(f"http://{host}"))


def test_scope_of_anywhere_keeps_the_users_filter() -> None:
    assert Scope().with_sites(["example.org"], ANY).filter_text("reject ext zip\n") == "reject ext zip\n"


def test_address_has_no_subdomains() -> None:
    assert Scope().with_sites(["127.0.0.1:80", "[::1]"], SUBDOMAINS).places == ("127.0.0.1:80", "[::1]")


# --- settings ---------------------------------------------------------------------------------------------------


def test_settings_survive_being_written_as_toml(tmp_path: Path) -> None:
    tree: dict[str, dict[str, Any]] = {
        "identity": {"contact": 'a "quoted" \\ name <me@example.org>'},
        "politeness": {"delay_s": 0.02, "max_backoff": 3},
        "fetch": {"verify_tls": False},
        "network": {"allow": ["127.0.0.0/8", "10.0.0.0/8"], "static": "/a\tb\x7f/ü"},
    }
    cf_files.write(tmp_path / "cf", tree, "default reject\n", "why")
    assert tomllib.loads((tmp_path / "cf" / "shepherd.toml").read_text()) == tree
    assert config.load(tmp_path / "cf").politeness.delay_s == 0.02
    assert cf_files.read_tree(tmp_path / "cf") == tree
    assert cf_files.read_filter(tmp_path / "cf") == "default reject\n"


def test_overlay_keeps_what_it_does_not_name() -> None:
    assert gather_cf.overlay({"plan": {"reap_s": 1, "retry_s": 2}}, {"plan": {"reap_s": 3}, "reap": {"workers": 2}}) == {
        "plan": {"reap_s": 3, "retry_s": 2},
        "reap": {"workers": 2},
    }


def test_only_this_machine_is_loopback(tmp_path: Path) -> None:
    (tmp_path / "static").write_text("toy.example 127.1.0.1 8080\nfar.example 192.0.2.1 80\n")
    known = config.Config(network=config.Network(static="static"), directory=tmp_path)
    assert gather_cf.is_loopback("http://localhost:8000", known)
    assert gather_cf.is_loopback("http://127.0.0.1", known)
    assert gather_cf.is_loopback("https://[::1]:8443", known)
    assert gather_cf.is_loopback("http://toy.example", known)
    assert not gather_cf.is_loopback("http://far.example", known)
    assert not gather_cf.is_loopback("http://localhost.example", known)
    assert not gather_cf.is_loopback("http://[2001:db8::1]", known)


# --- refusals ---------------------------------------------------------------------------------------------------


def test_foreign_servers_are_not_contacted_without_a_contact_address(tmp_path: Path) -> None:
    done = gather("https://example.org/", cwd=tmp_path)
    assert done.returncode == 2
    assert "--contact" in done.stderr and "[identity]" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bad_url_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = gather("example.org", cwd=tmp_path)
    assert done.returncode == 2
    assert "example.org: not an absolute URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_url_that_the_users_filter_rejects_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "filter").write_text("reject ext pdf\n")
    done = gather("http://127.0.0.1/a.pdf", cwd=tmp_path)
    assert done.returncode == 2
    assert "reject ext pdf" in done.stderr
    assert not (tmp_path / "db").exists()


def test_earlier_sites_stay_in_scope_and_the_users_configuration_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "shepherd.toml").write_text('[identity]\nname = "mine"\n[network]\nallow = ["127.0.0.0/8"]\n')
    (tmp_path / "cf" / "url-equiv").write_text("a.example b.example\n")
    for number, minutes in ((1, NO_MINUTES), (2, "0.05")):  # nobody listens there
        gather("--minutes", minutes, "-q", f"http://127.0.9.{number}:1/", cwd=tmp_path)
    own = tmp_path / "db" / "cf"
    assert (own / "scope").read_text().split() == ["127.0.9.1:1", "127.0.9.2:1"]
    filters = parse_filter((own / "filter").read_text())
    assert filters.judge("http://127.0.9.1:1/x").accepted and filters.judge("http://127.0.9.2:1/x").accepted
    assert config.load(own).identity.name == "mine"
    assert config.load(own).plan.max_pages <= 200
    assert (own / "url-equiv").read_text() == "a.example b.example\n"
    assert sorted(p.name for p in (tmp_path / "cf").iterdir()) == ["shepherd.toml", "url-equiv"]
    assert Database(tmp_path / "db").states()


@pytest.mark.parametrize("urls", [["http://127.0.0.1:1/"], []])
def test_second_gather_is_locked_out_before_it_writes_anything(tmp_path: Path, urls: list[str]) -> None:
    db = tmp_path / "db"
    database.create(db, bytes(16), 1, 0)
    held = locks.lock(db / "lock", "the first gather")
    done = gather("--db", str(db), *urls, cwd=tmp_path)
    held.release()
    assert done.returncode == 3
    assert "the first gather" in done.stderr
    assert not (db / "cf").exists()
    assert Database(db).inbox.items() == []


@pytest.mark.parametrize("minutes", ["nan", "inf", "1e300", "0"])
def test_invalid_time_limit_is_refused(tmp_path: Path, minutes: str) -> None:
    done = gather("--minutes", minutes, "http://127.0.0.1:1/", cwd=tmp_path)
    assert done.returncode == 2
    assert "--minutes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_scope_that_is_not_ascii_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "db" / "cf").mkdir(parents=True)
    (tmp_path / "db" / "cf" / "scope").write_bytes(b"example.org\n\xff\n")
    done = gather("http://127.0.0.1:1/", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gather: db/cf/scope: not ASCII at byte 12; ")


@pytest.mark.parametrize("version", [b"one", b"\xff", b"-1", b""])
def test_version_that_is_no_number_is_one_sentence(tmp_path: Path, version: bytes) -> None:
    web = tmp_path / "db" / "cf" / "web"
    web.mkdir(parents=True)
    (web / "version").write_bytes(version)
    done = gather("--db", "db", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gather: db/cf/web/version: not the number of a version")


def test_password_in_a_refused_url_is_not_shown(tmp_path: Path) -> None:
    done = gather("https://me:secret@example.org/", cwd=tmp_path)
    assert done.returncode == 2
    assert "https://me:...@example.org/: userinfo" in done.stderr
    assert "secret" not in done.stderr


def test_pages_of_other_sites_are_not_gathered_by_the_way(tmp_path: Path) -> None:
    database.create(tmp_path / "db", bytes(16), 1, 0)
    run("shep", "insert", "http://other.example/", cwd=tmp_path)
    for program in ("shep-merge", "shep-select", "shep-record"):
        assert run(program, cwd=tmp_path).returncode == 0
    done = gather("http://127.0.0.1:1/", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 page of other sites" in done.stderr and "--db" in done.stderr
    assert not (tmp_path / "db" / "cf").exists()


# --- the summary ------------------------------------------------------------------------------------------------

NOTHING = GatherSummary(3, 0, 0, 0, 0, 0, 0, 0, 0, {"address refused by the guard": 1}, 1, 0, 0.0, "", "")
ONE = GatherSummary(3, 1, 0, 1, 1, 0, 1, 1, 1, {}, 0, 10, 10.0, "http://a.example/", "")


def test_one_is_not_many(capsys: pytest.CaptureFixture[str]) -> None:
    gather_summary.show(ONE, "why", 1, 1.0, refreshed=False)
    text = capsys.readouterr().out
    assert "1 page of 1 site; redirects: 0\n" in text
    assert "1 URL by links\n" in text and "1 request in" in text
    assert not any(f"1 {noun}s" in text for noun in ("page", "site", "URL", "request "))


def test_summary_says_how_to_pass_the_guard_and_what_to_try(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHEPHERD_CF", str(ROOT / "cf"))
    monkeypatch.chdir(ROOT)
    gather_summary.show(NOTHING, "why", 0, 1.0, refreshed=False)
    gather_summary.show_next(NOTHING, Path("db"), Path("db/cf"), "http://10.0.0.1/")
    text = capsys.readouterr().out
    assert "set allow in [network] of cf/shepherd.toml to let Shepherd reach it\n" in text
    commands = text.split("Try next:\n")[1].splitlines()
    assert commands[0].endswith("shep stats --db db")
    assert commands[1].endswith("shep explain --db db --cf db/cf http://10.0.0.1/")
    assert len(commands) == 2


# --- what a run may not do to a database of others


def test_toy_web_is_not_gathered_into_a_database_of_real_sites(tmp_path: Path) -> None:
    assert run("shep-init", "--db", "db", cwd=tmp_path).returncode == 0
    done = gather("--db", "db", "--minutes", "0.1", cwd=tmp_path)
    assert (done.returncode, "not a database of the toy web" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "db" / "cf").exists()


def test_gather_without_a_url_continues_with_the_sites_of_the_database(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/"  # nobody listens there
    assert gather("--db", "db", "--minutes", NO_MINUTES, url, cwd=tmp_path).returncode == 0
    before = (tmp_path / "db" / "cf" / "scope").read_text()
    done = gather("--db", "db", "--minutes", "0.1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1:9" in done.stderr
    assert (tmp_path / "db" / "cf" / "scope").read_text() == before == "127.0.0.1:9\n"


@pytest.mark.parametrize("contact", ["j\u00f6rg@example.org", "two\nlines@example.org"])
def test_contact_that_cannot_be_sent_is_refused_before_anything_is_made(contact: str, tmp_path: Path) -> None:
    done = gather("--contact", contact, "http://a.example/", cwd=tmp_path)
    assert (done.returncode, "plain ASCII" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("contact", ["foo", "example.org", "@", "https://", "me @ example.org"])
def test_contact_that_is_no_address_is_refused(contact: str, tmp_path: Path) -> None:
    done = gather("--contact", contact, "http://a.example/", cwd=tmp_path)
    assert (done.returncode, "mail address or the URL of a page" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "db").exists()


def test_broken_configuration_of_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/"
    gather("--minutes", NO_MINUTES, url, cwd=tmp_path)
    (tmp_path / "db" / "cf" / "shepherd.toml").write_text("[identity]\ncontact = 3\n")
    assert gather("--minutes", "0.1", url, cwd=tmp_path).returncode == 0


def test_filter_fault_names_the_line_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "filter").write_text("refuse everything\n")
    done = gather("http://127.0.0.1:9/", cwd=tmp_path)
    assert done.returncode == 2
    assert "cf/filter, line 1, column 1" in done.stderr
