"""What gather derives before anything is fetched: configuration, scope, contact."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shepherd import config, urls
from shepherd.cli.gather import cf as gather_cf
from shepherd.cli.gather import summary as gather_summary
from shepherd.cli.gather.cf import ANY, SITE, SUBDOMAINS, CfDraft
from shepherd.cli.gather.run import COMPLETE, MINUTES, PAGES, Ending
from shepherd.cli.gather.run import ending_in_words as in_words
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


def draft(filter_text: str = "") -> CfDraft:
    return CfDraft(Path("cf"), config.Config(), "", filter_text, "")


def scoped(kind: str, *hrefs: str, filter_text: str = "") -> str:
    return draft(filter_text).with_scope([urls.parse(href) for href in hrefs], kind).filter_text


def test_scope_is_the_sites_of_the_urls() -> None:
    text = scoped(SITE, "https://www.example.org/a", "http://example.com:8080/", "http://[2001:db8::1]/", "http://example.org/b")
    assert text == "only site example.org\nonly site example.com:8080\nonly site [2001:db8::1]\n"
    filters = parse_filter(text)
    assert filters.judge("http://example.org/").accepted and not filters.judge("http://sub.example.org/").accepted


def test_scope_of_subdomains_has_their_hosts_and_addresses_have_none() -> None:
    hrefs = ("http://www.example.org/", "http://shop.example:81/", "http://127.0.0.1:80/", "http://[::1]/")
    assert (
        scoped(SUBDOMAINS, *hrefs) == "only host example.org\nonly host shop.example:81\nonly site 127.0.0.1\nonly site [::1]\n"
    )


def test_scope_grows_and_says_nothing_twice() -> None:
    text = scoped(SITE, "http://a.example/", filter_text="# mine\nreject ext zip\n")
    assert text == "only site a.example\n# mine\nreject ext zip\n"
    more = scoped(SITE, "http://b.example/", "http://a.example/", filter_text=text)
    assert more == "only site a.example\nonly site b.example\n# mine\nreject ext zip\n"


def test_rejects_of_the_user_apply_within_the_scope() -> None:
    user = (
        "accept prefix http://example.org/private/open/\nreject prefix http://example.org/private/\nreject ext zip\nstrip utm_*\n"
    )
    filters = parse_filter(scoped(SITE, "http://example.org/", filter_text=user))
    assert filters.clean("http://example.org/?utm_source=x") == "http://example.org/"
    assert filters.clean("http://example.org/private/open/a") is not None
    assert filters.clean("http://example.org/private/a") is None
    assert filters.clean("http://example.org/a.zip") is None
    assert filters.clean("http://other.example/") is None


def test_default_reject_of_the_user_applies_within_the_scope() -> None:
    text = scoped(SITE, "http://a.example/", filter_text="accept prefix http://a.example/x/\ndefault reject\n")
    assert parse_filter(text).judge("http://a.example/x/1").accepted
    assert not parse_filter(text).judge("http://a.example/y/1").accepted


def test_scope_of_anywhere_is_said_on_purpose() -> None:
    text = scoped(ANY, "http://a.example/", filter_text="only site b.example\nreject ext zip\n")
    assert text == "reject ext zip\ndefault accept\n"
    assert scoped(ANY, "http://a.example/", filter_text="default reject\n") == "default reject\n"


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


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '[fetch]\nca_file = "/x"\n'),
        ("# mine\n[plan]\nreap_s = 1\n", '# mine\n[plan]\nreap_s = 1\n\n[fetch]\nca_file = "/x"\n'),
        ("[fetch]  # limits\n# ca_file = ''  # why\n", '[fetch]  # limits\nca_file = "/x"\n'),
        ("[reap]\nca_file = 1\n[fetch]\nca_file = 'old'\n[plan]\n", '[reap]\nca_file = 1\n[fetch]\nca_file = "/x"\n[plan]\n'),
        ("[fetch]\nin_flight = 3\n", '[fetch]\nca_file = "/x"\nin_flight = 3\n'),
    ],
)
def test_one_setting_is_changed_and_every_other_line_stays(text: str, changed: str) -> None:
    assert cf_files.with_setting(text, "fetch", "ca_file", "/x") == changed


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
    (tmp_path / "cf" / "shepherd.toml").write_text(
        '[identity]\nname = "mine"\n[network]\nallow = ["127.0.0.0/8"]\n[plan]\nmax_pages = 7\n'
    )
    (tmp_path / "cf" / "url-equiv").write_text("a.example b.example\n")
    for number in (1, 2):
        gather("--minutes", NO_MINUTES, "-q", f"http://127.0.9.{number}:1/", cwd=tmp_path)
    own = tmp_path / "db" / "cf"
    assert (own / "filter").read_text() == "only site 127.0.9.1:1\nonly site 127.0.9.2:1\n"
    assert config.load(own).identity.name == "mine"
    assert (own / "url-equiv").read_text() == "a.example b.example\n"
    assert sorted(p.name for p in (tmp_path / "cf").iterdir()) == ["shepherd.toml", "url-equiv"]
    assert Database(tmp_path / "db").states()


def test_limits_of_a_run_are_not_kept_and_what_the_database_says_itself_is(tmp_path: Path) -> None:
    url, own = "http://127.0.9.1:1/", tmp_path / "db" / "cf"
    gather("--pages", "4", "--minutes", NO_MINUTES, url, cwd=tmp_path)
    assert config.load(own).plan == config.Plan()
    (own / "shepherd.toml").write_text("# by hand\n[plan]\nmax_pages = 9\n")
    (own / "filter").write_text("# by hand\nonly site 127.0.9.1:1\nreject ext pdf\n")
    gather("--pages", "4", "--minutes", NO_MINUTES, url, cwd=tmp_path)
    assert (own / "shepherd.toml").read_text() == "# by hand\n[plan]\nmax_pages = 9\n"
    assert (own / "filter").read_text() == "# by hand\nonly site 127.0.9.1:1\nreject ext pdf\n"


def test_limits_and_places_of_an_earlier_version_are_taken_out(tmp_path: Path) -> None:
    own = tmp_path / "db" / "cf"
    gather("--minutes", NO_MINUTES, "http://127.0.9.1:1/", cwd=tmp_path)
    (own / "scope").write_text("127.0.9.1:1\n*.a.example\n")
    (own / "shepherd.toml").write_text("# Written by gather\n\n[plan]\nmax_pages = 4\nreap_s = 1\nretry_s = 5\n")
    (own / "filter").write_text(
        "# Written by gather: only 127.0.9.1:1; then what the user's filter says.\nreject regex ^https?://(?:x)/\n\n"
        "reject ext zip\n"
    )
    gather("--db", "db", "--minutes", NO_MINUTES, cwd=tmp_path)
    assert not (own / "scope").exists()
    assert (own / "filter").read_text() == "only site 127.0.9.1:1\nonly host a.example\nreject ext zip\n"
    assert config.load(own).plan == config.Plan(retry_s=5)


def test_scope_that_the_user_has_written_is_not_widened(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "filter").write_text("only prefix http://127.0.9.1:1/a/\n")
    refused = gather("--minutes", NO_MINUTES, "http://127.0.9.1:1/b/", cwd=tmp_path)
    assert (refused.returncode, "outside the scope" in refused.stderr) == (2, True), refused.stderr
    gather("--minutes", NO_MINUTES, "http://127.0.9.1:1/a/", cwd=tmp_path)
    assert (tmp_path / "db" / "cf" / "filter").read_text() == "only prefix http://127.0.9.1:1/a/\n"


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


def test_places_of_an_earlier_version_that_are_not_ascii_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "db" / "cf").mkdir(parents=True)
    (tmp_path / "db" / "cf" / "shepherd.toml").touch()
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
    for number in (1, 2):
        for program in ("shep-merge", "shep-select", "shep-record"):
            assert run(program, "-q", cwd=tmp_path).returncode == 0
        if number == 1:
            assert gather("--minutes", NO_MINUTES, "http://127.0.0.1:1/", cwd=tmp_path).returncode == 4
    assert run("shep-plan", "-q", cwd=tmp_path).returncode == 0
    planned = run("shep-dump", "plan", "--json", "-u", cwd=tmp_path).stdout
    assert "http://127.0.0.1:1/" in planned and "other.example" not in planned


# --- the summary ------------------------------------------------------------------------------------------------

NOTHING = GatherSummary(3, 0, 0, 0, 0, 0, 0, 0, 0, 0, {"address refused by the guard": 1}, 1, 0, 0.0, "", "")
ONE = GatherSummary(3, 1, 0, 1, 1, 0, 1, 1, 0, 1, {}, 0, 10, 10.0, "http://a.example/", "")


def test_one_is_not_many(capsys: pytest.CaptureFixture[str]) -> None:
    gather_summary.show(ONE, Path("db/cf"), "why", 1, 1.0, refreshed=False)
    text = capsys.readouterr().out
    assert "1 page of 1 site; redirects: 0\n" in text
    assert "1 URL by links\n" in text and "1 request in" in text
    assert not any(f"1 {noun}s" in text for noun in ("page", "site", "URL", "request "))


def test_summary_says_how_to_pass_the_guard_and_what_to_try(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHEPHERD_CF", raising=False)
    monkeypatch.chdir(ROOT)
    gather_summary.show(NOTHING, Path("db/cf"), "why", 0, 1.0, refreshed=False)
    gather_summary.show_next(NOTHING, Path("db"), Path("db/cf"), "http://10.0.0.1/")
    text = capsys.readouterr().out
    assert "set allow in [network] of db/cf/shepherd.toml to let Shepherd reach it\n" in text
    commands = text.split("Try next:\n")[1].splitlines()
    assert commands[0].endswith("shep stats --db db")
    assert commands[1].endswith("shep explain --db db http://10.0.0.1/")
    assert len(commands) == 2
    monkeypatch.setenv("SHEPHERD_CF", str(ROOT / "cf"))
    gather_summary.show_next(NOTHING, Path("db"), Path("db/cf"), "http://10.0.0.1/")
    assert "shep explain --db db --cf db/cf http://10.0.0.1/" in capsys.readouterr().out


# --- what a run may not do to a database of others


def test_toy_web_is_not_gathered_into_a_database_of_real_sites(tmp_path: Path) -> None:
    assert run("shep-init", "--db", "db", cwd=tmp_path).returncode == 0
    done = gather("--db", "db", "--minutes", "0.1", cwd=tmp_path)
    assert (done.returncode, "not a database of the toy web" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "db" / "cf").exists()


def test_gather_without_a_url_continues_with_the_sites_of_the_database(tmp_path: Path) -> None:
    url, own = "http://127.0.0.1:9/", tmp_path / "db" / "cf"  # nobody listens there
    assert gather("--db", "db", "--minutes", NO_MINUTES, url, cwd=tmp_path).returncode == 4
    before = {path: path.read_bytes() for path in own.iterdir()}
    done = gather("--db", "db", "--minutes", NO_MINUTES, cwd=tmp_path)
    assert "toy" not in done.stderr, done.stderr
    assert {path: path.read_bytes() for path in own.iterdir()} == before


def test_gather_that_brings_no_page_says_why_and_does_not_call_it_success(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "shepherd.toml").write_text('[network]\nallow = ["127.0.0.0/8"]\nhosts = "hosts"\n')
    (tmp_path / "cf" / "hosts").write_text("127.0.0.1 other.example\n")
    hrefs = ("http://10.0.0.1/", "http://127.0.0.1:9/", "http://no.example/")
    done = gather("--contact", "me@example.org", "--minutes", "1", *hrefs, cwd=tmp_path)
    assert done.returncode == 4
    why = done.stderr.splitlines()[-1].removeprefix("gather: no page came: ").split(", ")
    assert sorted(why) == [
        "1 page whose robots.txt cannot be reached",
        "1 page: address does not resolve",
        "1 page: address refused by the guard",
    ]


@pytest.mark.parametrize(
    ("ending", "ungathered", "why"),
    [
        (COMPLETE, 0, "nothing more is due"),
        (COMPLETE, 475, "no server may be asked now for what is still to come: run the same command again later"),
        (PAGES, 475, "the page limit is reached: to go on run the same command again, or give more with --pages"),
        (MINUTES, 1, "the time limit is reached: to go on run the same command again, or give more with --minutes"),
        (PAGES, 0, "the page limit is reached"),
        (Ending("killed as asked", 143), 475, "killed as asked"),
    ],
)
def test_ending_says_what_is_left_and_how_to_continue(ending: Ending, ungathered: int, why: str) -> None:
    assert in_words(ending, ungathered) == why


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


def test_fault_in_the_databases_own_configuration_is_named(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/"
    gather("--minutes", NO_MINUTES, url, cwd=tmp_path)
    (tmp_path / "db" / "cf" / "shepherd.toml").write_text("[identity]\ncontact = 3\n")
    done = gather("--minutes", NO_MINUTES, url, cwd=tmp_path)
    assert (done.returncode, "db/cf/shepherd.toml, line 2" in done.stderr) == (2, True), done.stderr


def test_filter_fault_names_the_line_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "filter").write_text("refuse everything\n")
    done = gather("http://127.0.0.1:9/", cwd=tmp_path)
    assert done.returncode == 2
    assert "cf/filter, line 1, column 1" in done.stderr
