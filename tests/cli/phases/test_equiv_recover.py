"""A database with equivalences is as sound as any other: their text is not mistaken for a damaged log."""

from __future__ import annotations

from pathlib import Path

from shepherd.store.state.database import Database
from tests.cli.phases.test_equiv import PAGES, cycle, declare, documents
from tests.support import programs
from tests.support.page_states import make_herd
from tests.worlds import NOW


def test_recover_keeps_the_equivalences_of_a_sound_state(tmp_path: Path) -> None:
    herd = make_herd(tmp_path, PAGES, (), ())
    declare(herd, "a.example b.example\n")
    cycle(herd)
    states, found = Database(herd.db).states(), documents(herd)
    assert programs.call("shep-check", "--db", str(herd.db), "--quick").returncode == 0
    done = programs.call("shep-recover", "--db", str(herd.db), "--now", str(NOW))
    assert done.returncode == 0, done.stderr
    assert "nothing to recover" in done.stderr
    assert (Database(herd.db).states(), documents(herd)) == (states, found)


def test_damaged_equivalences_are_made_again_from_the_file(tmp_path: Path) -> None:
    herd = make_herd(tmp_path, PAGES, (), ())
    declare(herd, "a.example b.example\n")
    cycle(herd)
    path = Database(herd.db).closed().path / "equiv"
    path.chmod(0o644)
    path.write_bytes(b"x" + path.read_bytes()[1:])
    found = documents(herd)
    done = programs.call("shep-check", "--db", str(herd.db))
    assert (done.returncode, str(path) in done.stdout) == (11, True)
    (herd.cf / "url-equiv").rename(herd.cf / "kept")
    done = programs.call("shep-recover", "--db", str(herd.db), "--cf", str(herd.cf), "--now", str(NOW))
    assert done.returncode == 11
    assert "put the url-equiv of that time into" in done.stderr
    (herd.cf / "kept").rename(herd.cf / "url-equiv")
    done = programs.call("shep-recover", "--db", str(herd.db), "--cf", str(herd.cf), "--now", str(NOW))
    assert done.returncode == 0, done.stderr
    assert programs.call("shep-check", "--db", str(herd.db)).returncode == 0
    assert documents(herd) == found
