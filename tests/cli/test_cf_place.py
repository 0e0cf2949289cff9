"""Which configuration programs take: all of them by one rule; and what they say where it is another than before."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shepherd.cli.__main__ import PROGRAMS
from shepherd.config import last_cf
from tests.cli.test_bad_input import ARGUMENTS
from tests.support.programs import call
from tests.test_docs import commands

FAULT = "[plan]\nreap_s = 'long'\n"
MORE = {  # of what test_bad_input need not call
    "shep filter check": ("http://a.example/",),
    "shep scope add": ("a.example",),
    "shep scope remove": ("a.example",),
    "shep-mirror": ("--from", "http://127.0.0.1:9", "--token-file", "token"),
    "shep-serve token add": ("me", "--role", "read"),
    "shep-serve token remove": ("me",),
}
NO_PLAN = "shep-reap: nothing is planned (the newest state is 000001); run shep-plan"
OWN = "configuration: data/cf (the database's own)"
MAKES_ITS_OWN = {"gather"}  # tests/cli/gather


def configured_commands() -> Iterator[str]:
    """Every command of every program that takes something from a configuration."""
    for program in sorted(PROGRAMS):
        module = importlib.import_module(PROGRAMS[program].partition(":")[0])
        for path, command in commands(program, module.command):
            options = {name: parameter for parameter in command.params for name in parameter.opts}
            is_group = isinstance(command, click.Group) and not command.invoke_without_command
            cf = options.get("--cf")
            if isinstance(cf, click.Option) and not is_group and "not needed" not in (cf.help or ""):
                yield path


def run(*words: str, cwd: Path, SHEPHERD_CF: str = "", SHEPHERD_DB: str = "") -> subprocess.CompletedProcess[str]:
    return call(*words, cwd=cwd, SHEPHERD_CF=SHEPHERD_CF, SHEPHERD_DB=SHEPHERD_DB)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good cf/ beside what only looks like a database, whose own cf/ has a fault: so nothing runs for long that meets it."""
    home = tmp_path_factory.mktemp("home")
    for directory, text in ((home / "cf", ""), (home / "data" / "cf", FAULT)):
        directory.mkdir(parents=True)
        (directory / "shepherd.toml").write_text(text)
    (home / "token").write_text("t" * 43)
    (home / "token").chmod(0o600)
    return home


@pytest.mark.parametrize("path", list(configured_commands()))
def test_every_program_takes_the_configuration_of_its_database(path: str, home: Path) -> None:
    words = [*path.split(), *ARGUMENTS.get(path, MORE.get(path, ()))]
    done = run(*words, "--db", "data", "-v", cwd=home)
    assert "data/cf/shepherd.toml, line 2" in done.stderr or OWN in done.stderr, done.stderr


def test_database_named_by_the_environment_brings_its_configuration(home: Path) -> None:
    done = run("shep", "filter", "check", "-v", "http://a.example/", cwd=home, SHEPHERD_DB="data")
    assert "data/cf/shepherd.toml, line 2" in done.stderr


def test_every_program_with_a_configuration_is_walked() -> None:
    paths = set(configured_commands())
    assert {path.partition(" ")[0] for path in paths} == set(PROGRAMS) - MAKES_ITS_OWN - {
        *("reapd", "shep-keys", "shep-toyweb"),  # have neither database nor configuration
        *("shep-check", "shep-dump", "shep-upgrade"),  # need none
    }
    assert len(paths) > 30


@pytest.mark.parametrize("order", ["database first", "configuration first"])
def test_named_configuration_comes_before_that_of_the_database(home: Path, order: str) -> None:
    options = [["--db", "data"], ["--cf", "cf"]]
    words = [word for option in (options if order == "database first" else options[::-1]) for word in option]
    assert run("shepherd", "check-config", *words, cwd=home).stdout.startswith("cf: all is well")
    assert run("shepherd", "check-config", "--db", "data", cwd=home, SHEPHERD_CF="cf").stdout.startswith("cf: all is well")


def test_database_given_to_a_group_is_that_of_its_command(home: Path) -> None:
    done = run("shep-serve", "--db", "nowhere", "token", "list", "-v", cwd=home)
    assert "configuration: cf (the default)" in done.stderr, done.stderr


def test_missing_configuration_is_said_with_verbose(tmp_path: Path) -> None:
    done = run("shep", "filter", "check", "-v", "http://a.example/", cwd=tmp_path)
    assert "configuration: cf (the default); it is not there, so all is as by default" in done.stderr


# --- the one that it was last run with


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A database that was run with `mine`, in a directory where another cf/ is."""
    for name, text in (("mine", "[plan]\nreap_s = 5\n"), ("cf", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shepherd.toml").write_text(text)
        (tmp_path / name / "filter").write_text("default accept\n")
    assert run("shep-init", "--db", "data", "--cf", "mine", cwd=tmp_path).returncode == 0
    assert reap(tmp_path, "--cf", "mine") == NO_PLAN
    return tmp_path


def reap(home: Path, *options: str) -> str:
    """The last line of a reap that has nothing to do: it is the cheapest program that notes with which configuration it ran."""
    return run("shep-reap", *options, *(() if "--db" in options else ("--db", "data")), cwd=home).stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [("shepherd", "cycle"), ("shepherd", "run"), ("shep-reap",)], ids=" ".join)
def test_configuration_that_nobody_named_is_refused_where_it_is_not_the_last(ran: Path, words: tuple[str, ...]) -> None:
    before = (ran / "data" / "last-cf").read_bytes()
    done = run(*words, "--db", "data", cwd=ran)
    assert done.returncode == 2
    assert f"data was last run with the configuration in {ran}/mine, and this is cf (the default); say which" in done.stderr
    assert (ran / "data" / "last-cf").read_bytes() == before


def test_configuration_that_is_named_is_warned_of_once_and_then_the_last(ran: Path) -> None:
    for warns in (True, False):
        done = run("shep-reap", "--db", "data", "--cf", "cf", cwd=ran)
        assert done.stderr.splitlines()[-1] == NO_PLAN
        assert ("was last run with" in done.stderr) is warns
    assert reap(ran) == NO_PLAN


def test_reader_with_another_configuration_is_warned_and_answers(ran: Path) -> None:
    done = run("shep", "explain", "--db", "data", "http://a.example/", cwd=ran)
    assert "was last run with" in done.stderr and "verdict" in done.stdout
    same = run("shep", "explain", "--db", "data", "--cf", "mine", "http://a.example/", cwd=ran)
    assert "was last run with" not in same.stderr and "verdict" in same.stdout


def test_copy_of_the_last_configuration_is_the_same(ran: Path) -> None:
    for name in ("shepherd.toml", "filter", "url-equiv"):
        (ran / "cf" / name).write_bytes((ran / "mine" / name).read_bytes())
    assert reap(ran) == NO_PLAN


def test_edited_configuration_is_still_the_last(ran: Path) -> None:
    before = (ran / "data" / "last-cf").read_bytes()
    with (ran / "mine" / "filter").open("a") as file:
        file.write("reject ext pdf\n")
    done = run("shep-reap", "--db", "data", cwd=ran, SHEPHERD_CF="mine")
    assert done.stderr == NO_PLAN + "\n"
    assert (ran / "data" / "last-cf").read_bytes() != before


def test_database_that_is_moved_keeps_its_own_configuration(ran: Path) -> None:
    (ran / "mine").rename(ran / "data" / "cf")
    assert reap(ran) == NO_PLAN
    assert json.loads((ran / "data" / "last-cf").read_bytes())["cf"] == "cf"
    (ran / "data").rename(ran / "moved")
    with (ran / "moved" / "cf" / "filter").open("a") as file:
        file.write("reject ext pdf\n")
    assert reap(ran, "--db", "moved") == NO_PLAN


@pytest.mark.parametrize("content", ["nonsense", "[1]", '{"cf": 3, "digest": 4}', "directory", "link", "fifo"])
def test_note_that_is_not_ours_says_nothing(ran: Path, content: str) -> None:
    path = ran / "data" / "last-cf"
    path.unlink()
    if content == "directory":
        path.mkdir()
    elif content == "link":
        path.symlink_to(ran / "mine" / "shepherd.toml")
    elif content == "fifo":
        os.mkfifo(path)
    else:
        path.write_text(content)
    assert last_cf.read(ran / "data") is None
    done = run("shep", "explain", "--db", "data", "http://a.example/", cwd=ran)
    assert (done.returncode, "bug" in done.stderr) == (0, False)


def test_states_show_the_configuration_and_the_last_one(ran: Path) -> None:
    shown = run("shep", "states", "--db", "data", "--cf", "mine", cwd=ran).stdout
    assert re.search(r"^configuration: mine \(--cf\)$", shown, re.MULTILINE)
    shown = run("shep", "states", "--db", "data", cwd=ran).stdout
    assert f"configuration: cf (the default); last run with {ran}/mine\n" in shown
