"""shep-init writes every commented default that there is, and overwrites nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.page_states import ROOT
from tests.support.waiting import PATIENCE_S


def init(db: Path, cf: Path) -> subprocess.CompletedProcess[bytes]:
    call = [sys.executable, "-m", "shepherd.cli", "shep-init", "--db", str(db), "--cf", str(cf)]
    return subprocess.run(call, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False)


def test_every_default_file_is_copied(tmp_path: Path) -> None:
    done = init(tmp_path / "db", tmp_path / "cf")
    assert done.returncode == 0, done
    shipped = {path.name: path.read_bytes() for path in (ROOT / "cf").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "cf").iterdir()} == shipped
    assert shipped.keys() == {"shepherd.toml", "filter", "url-equiv"}


def test_file_of_the_user_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "url-equiv").write_text("a.example b.example\n")
    assert init(tmp_path / "db", tmp_path / "cf").returncode == 0
    assert (tmp_path / "cf" / "url-equiv").read_text() == "a.example b.example\n"
    assert (tmp_path / "cf" / "filter").exists()
