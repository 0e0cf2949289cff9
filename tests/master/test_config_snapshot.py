"""The copy of cf/ that a daemon goes by: whole, unmoved by edits, and restored when somebody deletes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shepherd import config
from shepherd.equiv import load_equiv
from shepherd.errors import NoSpace
from shepherd.filters import load_filter
from shepherd.master.config_snapshot import ConfigSnapshot
from shepherd.store.disk import fsio

TOML = '[network]\nstatic = "../hosts"\nallow = ["127.0.0.0/8"]\n[plan]\nreap_s = 7\n[hooks]\nafter = \'say "it" \\x\'\n'


@pytest.fixture
def frozen(tmp_path: Path) -> ConfigSnapshot:
    (tmp_path / "cf").mkdir()
    (tmp_path / "db" / "log").mkdir(parents=True)
    (tmp_path / "hosts").write_text("a.example 127.0.0.1 80\n")
    (tmp_path / "cf" / "shepherd.toml").write_text(TOML)
    (tmp_path / "cf" / "filter").write_text("reject ext zip\ndefault accept\n")
    (tmp_path / "cf" / "url-equiv").write_text("a.example b.example\n")
    made = ConfigSnapshot(tmp_path / "cf", tmp_path / "db" / "log")
    assert made.read() == []
    return made


def test_copy_says_the_same_as_the_original(frozen: ConfigSnapshot, tmp_path: Path) -> None:
    ours, theirs = config.load(tmp_path / "cf"), config.load(tmp_path / "db" / "log" / "cf")
    assert frozen.config == theirs and theirs.directory != ours.directory
    assert (theirs.plan, theirs.hooks, theirs.network.allow) == (ours.plan, ours.hooks, ours.network.allow)
    assert theirs.static_path is not None and theirs.static_path.read_text() == "a.example 127.0.0.1 80\n"
    assert load_filter(theirs.filter_path).version == load_filter(ours.filter_path).version
    assert load_equiv(theirs.equiv_path) == load_equiv(ours.equiv_path)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("shepherd.toml", "[plan]\nreap_s = -1\n", "reap_s"),
        ("filter", "fly away\n", "filter"),
        ("filter", "reject ext zip\n", "where to stop"),
        ("url-equiv", "one.example\n", "url-equiv"),
        ("shepherd.toml", '[network]\nstatic = "nowhere"\n', "nowhere"),
    ],
)
def test_mistake_does_not_reach_the_copy(frozen: ConfigSnapshot, tmp_path: Path, name: str, text: str, word: str) -> None:
    before = frozen.config
    (tmp_path / "cf" / name).write_text(text)
    complaints = frozen.read()
    assert complaints and word in complaints[0]
    assert frozen.config == before == config.load(tmp_path / "db" / "log" / "cf")
    assert load_filter(frozen.config.filter_path).text == "reject ext zip\ndefault accept\n"


def test_deleted_copy_is_restored_as_it_was(frozen: ConfigSnapshot, tmp_path: Path) -> None:
    (tmp_path / "cf" / "filter").write_text("reject ext exe\ndefault accept\n")
    shutil.rmtree(tmp_path / "db" / "log")
    frozen.keep()
    assert load_filter(frozen.config.filter_path).text == "reject ext zip\ndefault accept\n"
    assert frozen.read() == []
    assert load_filter(frozen.config.filter_path).text == "reject ext exe\ndefault accept\n"


def test_full_disk_does_not_keep_a_master_from_making_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "filter").write_text("default accept\n")

    def refuse(path: Path, _data: object) -> None:
        raise NoSpace(f"{path}: no space left")

    monkeypatch.setattr(fsio, "replace_file", refuse)
    made = ConfigSnapshot(tmp_path / "cf", tmp_path)
    assert made.read() == []
    assert made.config.directory == tmp_path / "cf"
