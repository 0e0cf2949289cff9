"""shepherd check-config: all that is wrong with a configuration, at once; and what differs where nothing is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.programs import call


def check(cf: Path, *args: str) -> tuple[int, str, str]:
    done = call("shepherd", "check-config", "--cf", str(cf), *args)
    return done.returncode, done.stdout, done.stderr


def test_defaults_are_well(tmp_path: Path) -> None:
    status, told, errors = check(tmp_path)
    assert (status, errors) == (0, "")
    assert told.startswith(f"{tmp_path}: all is well, 0 settings not as by default\n")
    assert "identity.contact is not set" in told


def test_all_faults_of_the_settings_are_reported_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text("[plan]\nreap_s = 'long'\n\n[store]\nkeep_state = 3\n")
    status, told, errors = check(tmp_path)
    assert (status, told) == (2, "")
    path = tmp_path / "shepherd.toml"
    lines = errors.splitlines()
    assert lines[0] == f"{path}, line 2: [plan] reap_s: must be a whole number, not 'long'"
    assert lines[1].startswith(f"{path}, line 5: [store] keep_state: unknown key; did you mean keep_states?")
    assert lines[2].endswith("2 faults, listed above; mend them before the next cycle")


@pytest.mark.parametrize(
    ("settings", "name", "content", "named"),
    [
        pytest.param("", "filter", "rejct ext zip\n", "filter", id="filter"),
        pytest.param("", "url-equiv", "www.a.example b.example\n", "url-equiv", id="url_equiv"),
        pytest.param("[network]\nstatic = 'table'\n", "table", "a.example nowhere 80\n", "table: line 1", id="static_table"),
        pytest.param("[network]\nhosts = 'hosts'\n", "hosts", "a.example 127.0.0.1\n", "hosts: line 1", id="hosts_file"),
        pytest.param("[network]\nhosts = 'gone'\n", "other", "", "gone", id="missing_file"),
        pytest.param("[reap]\nkeys = 'key'\n", "key", "no key\n", "key", id="key_file"),
        pytest.param("[fetch]\nca_file = 'ca'\n", "ca", "no certificate\n", "ca", id="authorities"),
    ],
)
def test_fault_in_a_file_that_is_named(tmp_path: Path, settings: str, name: str, content: str, named: str) -> None:
    (tmp_path / "shepherd.toml").write_text(settings)
    (tmp_path / name).write_text(content)
    status, told, errors = check(tmp_path)
    assert (status, told) == (2, "")
    assert errors.startswith(f"{tmp_path / named}")
    assert "1 fault, listed above" in errors


def test_fault_of_the_settings_does_not_hide_those_of_filter_and_url_equiv(tmp_path: Path) -> None:
    for name, text in (("shepherd.toml", "[pan]\n"), ("filter", "rejct ext zip\n"), ("url-equiv", "a.example\n")):
        (tmp_path / name).write_text(text)
    status, _told, errors = check(tmp_path)
    assert status == 2
    assert [line.partition(",")[0] for line in errors.splitlines()[:-1]] == [
        str(tmp_path / name) for name in ("shepherd.toml", "filter", "url-equiv")
    ]


MANY = {
    "filter": "rejct ext zip\nstrip utm_*\nreject ext\nonly site *\ndefault\nset slots 0 host a.example\nreject regex (\n",
    "url-equiv": "a.example\n\napart\nb.example c.example:80\n",
    "shepherd.toml": "[plan]\nreap_s = 'long'\nfrist = 1\n[pan]\n[politeness]\ndelay_s = -1\nmax_backoff = 99\n",
}
LINES = {"filter": [1, 3, 4, 5, 6, 7], "url-equiv": [1, 3, 4], "shepherd.toml": [2, 3, 4, 6, 7]}


@pytest.mark.parametrize("name", MANY)
def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(MANY[name])
    _status, _told, errors = check(tmp_path)
    done = call("shep-plan", "--cf", str(tmp_path), "--db", str(tmp_path / "db"))
    if name == "shepherd.toml":  # the others are read behind the database
        assert done.returncode == 2
        assert lines_of(done.stderr) == LINES[name]
    assert lines_of(errors) == LINES[name]


def test_all_faults_of_a_filter_are_reported_at_once_by_its_readers(tmp_path: Path) -> None:
    (tmp_path / "filter").write_text(MANY["filter"])
    done = call("shep", "filter", "check", "--cf", str(tmp_path), "http://a.example/")
    assert (done.returncode, lines_of(done.stderr)) == (2, LINES["filter"])
    (tmp_path / "filter").write_text("rejct\n" * 30)
    done = call("shep", "filter", "check", "--cf", str(tmp_path), "http://a.example/")
    assert lines_of(done.stderr) == list(range(1, 21))
    assert done.stderr.splitlines()[-1] == "shep: and 10 more: shepherd check-config lists all"


def lines_of(errors: str) -> list[int]:
    return sorted(int(line) for line in re.findall(r", line (\d+)", errors))


def test_what_differs_and_what_is_worth_a_thought(tmp_path: Path) -> None:
    (tmp_path / "filter").write_text("default accept\n")
    (tmp_path / "shepherd.toml").write_text(
        "[identity]\ncontact = 'me@example.org'\n[politeness]\ndelay_s = 0.5\n[network]\nallow = ['10.0.0.0/8']\n"
    )
    status, told, _errors = check(tmp_path, "--json")
    assert status == 0
    found = json.loads(told)
    assert found["changed"] == {
        "identity.contact": "me@example.org",
        "politeness.delay_s": 0.5,
        "network.allow": ["10.0.0.0/8"],
    }
    assert found["faults"] == []
    assert [thought.partition(" ")[0] for thought in found["thoughts"]] == ["politeness.delay_s", "network.allow"]


def test_directory_that_is_not_there(tmp_path: Path) -> None:
    status, _told, errors = check(tmp_path / "nowhere")
    assert status == 2
    assert "is not a directory" in errors
