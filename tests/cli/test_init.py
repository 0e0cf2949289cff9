"""shep-init as an operator runs it: what it makes, what it refuses, and what it says of a file system that will not do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.store.check import check
from shepherd.store.state.database import Database
from tests.support.page_states import ROOT
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S

CF = ROOT / "cf"


def init(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in `home`, with db and cf as by default."""
    return call("shep-init", *arguments, cwd=home, **environment)


def init_under(strace: tuple[str, ...], home: Path) -> subprocess.CompletedProcess[str]:
    """The same, with system calls that fail."""
    command = [*strace, sys.executable, "-m", "shepherd.cli", "shep-init"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else b"" for p in sorted(path.rglob("*"))}


def modes(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert init(tmp_path, "--db", "a/b/db").returncode == 0
    finally:
        os.umask(before)
    assert [modes(tmp_path / "a"), modes(tmp_path / "a/b"), modes(tmp_path / "a/b/db")] == [0o755, 0o755, 0o700]


def test_directory_that_is_there_keeps_its_group_and_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db").chmod(0o775)
    assert init(tmp_path).returncode == 0
    assert modes(tmp_path / "db") == 0o770
    (tmp_path / "db").chmod(0o750)
    assert "every user" not in call("shepherd", "status", cwd=tmp_path).stderr


def test_database_that_others_may_read_is_reported(tmp_path: Path) -> None:
    assert init(tmp_path).returncode == 0
    for mode in (0o755, 0o711):
        (tmp_path / "db").chmod(mode)
        done = call("shepherd", "status", cwd=tmp_path)
        assert done.returncode == 0 and "chmod o-rwx" in done.stderr
    assert modes(tmp_path / "db") == 0o711


def test_new_database_is_empty_and_sound(tmp_path: Path) -> None:
    done = init(tmp_path)
    assert done.returncode == 0, done
    assert done.stderr.endswith(
        "db: an empty database, state 1; next: shep scope add --db db HOST, then shep insert --db db URL...\n"
    )
    db = Database(tmp_path / "db")
    assert [str(name) for name in db.states()] == ["000001"]
    assert list(check.walk(db)) == []
    assert sorted(p.name for p in db.path.iterdir()) == ["inbox", "lease", "log", "state"]


def test_missing_configuration_is_written_with_commented_defaults(tmp_path: Path) -> None:
    init(tmp_path)
    assert (tmp_path / "cf/shepherd.toml").read_bytes() == (CF / "shepherd.toml").read_bytes()
    assert (tmp_path / "cf/filter").read_bytes() == (CF / "filter").read_bytes()


def test_configuration_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf/shepherd.toml").write_text("# mine\n")
    assert init(tmp_path).returncode == 0
    assert (tmp_path / "cf/shepherd.toml").read_text() == "# mine\n"
    assert (tmp_path / "cf/filter").read_bytes() == (CF / "filter").read_bytes()


def test_directory_with_nothing_but_its_readme_will_do(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db/README.md").write_text("what this is")
    assert init(tmp_path).returncode == 0
    assert (tmp_path / "db/README.md").read_text() == "what this is"


@pytest.mark.parametrize("stranger", ["precious", ".hidden", "lock", "inbox/1-host-7-1.req", "log/notes", "readme.md"])
def test_directory_with_anything_else_is_refused_untouched(tmp_path: Path, stranger: str) -> None:
    (tmp_path / "db" / stranger).parent.mkdir(parents=True)
    (tmp_path / "db" / stranger).write_text("x")
    before = contents(tmp_path)
    done = init(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"shep-init: db: not empty ({stranger.partition('/')[0]} is there); ")
    assert contents(tmp_path) == before


def test_database_that_is_there_is_refused_untouched(tmp_path: Path) -> None:
    init(tmp_path)
    before = contents(tmp_path)
    done = init(tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "shep-init: db: a database is there already; use it, or give --db another directory\n",
    )
    assert contents(tmp_path) == before


def test_every_database_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = set()
    for name in ("one", "two"):
        init(tmp_path, "--db", name)
        keys.add(Database(tmp_path / name).closed().control.key)
    assert len(keys) == 2
    assert all(len(key) == 16 for key in keys)


# --- file systems that will not do ------------------------------------------------------------------------------

LACKING = {
    "make hard links": "link,linkat:error=EPERM",  # vfat, exfat
    "rename directories": "rename,renameat,renameat2:error=EXDEV",  # overlays without redirect_dir
    "make and sync directories": "fsync:error=EINVAL",
    "write and sync files": "fsync:error=EINVAL:when=3+",  # behind those of the directories
    "lock files": "flock:error=ENOLCK",  # NFS without its lock daemon
}


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("what", LACKING)
def test_file_system_that_lacks_something_is_refused_by_name(tmp_path: Path, what: str) -> None:
    (tmp_path / "db").mkdir()
    strace = ("strace", "-f", "-qq", "-o", os.devnull, "-e", f"inject={LACKING[what]}")
    done = init_under(strace, tmp_path)
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"shep-init: db: this file system will not do: it cannot {what} (")
    assert done.stderr.endswith("; give --db a directory on a local one, such as ext4 or xfs\n")
    assert contents(tmp_path) == {"db": b""}


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_file_system_that_grants_one_lock_to_two_is_refused(tmp_path: Path) -> None:
    strace = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=flock:retval=0")
    done = init_under(strace, tmp_path)
    assert done.returncode == 2, done
    assert "it cannot lock files (two programs got the same lock)" in done.stderr


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys")
@pytest.mark.parametrize("db", ["/sys/kernel/db", "/proc/db", "file/db"])
def test_place_that_cannot_be_written_is_refused(tmp_path: Path, db: str) -> None:
    (tmp_path / "file").write_text("x")
    done = init(tmp_path, "--db", db)
    assert done.returncode == 2, done
    assert done.stderr.startswith(f"shep-init: {db}: cannot be made or written (")
    assert sorted(contents(tmp_path)) == ["file"]


@pytest.mark.parametrize(
    ("fail", "status"),
    [
        ("mkdir:db:1=enospc", 12),
        ("write:/a:1=enospc", 12),
        ("create:index/norm.check:1=enospc", 12),
        ("write:.shepherd.toml.tmp:1=enospc", 12),
        ("write:control:1=eio", 13),
        ("sync:.state.tmp:1=eio", 13),
    ],
)
def test_disk_that_fails_half_way_is_reported_and_the_next_run_completes(tmp_path: Path, fail: str, status: int) -> None:
    done = init(tmp_path, SHEPHERD_FAIL=fail)
    assert done.returncode == status, done
    assert done.stderr.startswith("shep-init: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "db/state").exists()
    assert init(tmp_path).returncode == 0
    assert list(check.walk(Database(tmp_path / "db"))) == []
