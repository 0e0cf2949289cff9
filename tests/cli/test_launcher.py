"""bin/: a program on a fresh clone sets itself up, once, and says in one sentence what is missing where it cannot.

The trees are small but real: the launcher and its set-up, an empty lock, and a program that prints how it was called.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from shepherd.cli import lock_files
from shepherd.cli.__main__ import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import os, sys\nprint(os.getcwd(), *sys.argv[1:], sep='|')\n"
SETTING_UP = "shep: setting up .venv from requirements.lock, once"


def clone(root: Path) -> Path:
    """A tree with one program, `shep`, and nothing installed."""
    (root / "shepherd" / "cli").mkdir(parents=True)
    (root / "bin").mkdir()
    for name in ("bin/.launch", "bin/.setup", "shepherd/cli/install.py"):
        shutil.copy2(ROOT / name, root / name)
    (root / "bin" / "shep").symlink_to(".launch")
    (root / "shepherd" / "__init__.py").touch()
    (root / "shepherd" / "cli" / "__init__.py").touch()
    (root / "shepherd" / "cli" / "__main__.py").write_text(PROGRAM)
    (root / "requirements.lock").write_text("# nothing is needed\n")
    return root


def environment(**more: str) -> dict[str, str]:
    python = os.path.realpath(sys.executable)  # the one that made .venv: it has a pip
    return {"PATH": os.defpath, "PYTHON": python, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def call(program: Path, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run([program, *arguments], cwd=cwd, env=env or environment(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree whose first two programs were started at the same moment, under a path with blanks."""
    root = clone(tmp_path_factory.mktemp("a path with blanks") / "the tree")
    both = [
        subprocess.Popen(
            [root / "bin" / "shep", "x"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    output = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], output
    assert sum(SETTING_UP in stderr for _, stderr in output) == 1, output
    return root


def test_later_call_is_silent_and_keeps_directory_and_arguments(ready: Path, tmp_path: Path) -> None:
    status, stdout, stderr = call(ready / "bin" / "shep", "a b", "", "*", "--now=1", cwd=tmp_path)
    assert (status, stdout, stderr) == (0, f"{tmp_path.resolve()}|shep|a b||*|--now=1\n", "")


def test_link_from_elsewhere_runs_the_program_it_means(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "first").symlink_to(ready / "bin" / "shep")
    (tmp_path / "mine").symlink_to("first")
    assert call(tmp_path / "mine", "x", cwd=tmp_path)[1] == f"{tmp_path.resolve()}|shep|x\n"


def test_files_of_the_callers_directory_are_not_imported(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "shepherd").mkdir()
    (tmp_path / "shepherd" / "__init__.py").write_text("raise SystemExit('imported from the wrong place')\n")
    status, _, stderr = call(ready / "bin" / "shep", cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)))
    assert (status, stderr) == (0, "")


def test_moved_tree_still_runs_its_own_code(ready: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(ready, moved, symlinks=True)
    (moved / "shepherd" / "cli" / "__main__.py").write_text("print('moved')\n")
    assert call(moved / "bin" / "shep") == (0, "moved\n", "")


def source_package(directory: Path) -> str:
    """A package without a wheel, whose set-up code leaves a trace; its hash."""
    directory.mkdir()
    file, code = directory / "only-source-1.0.tar.gz", f"open({str(directory / 'was run')!r}, 'w')\n".encode()
    with tarfile.open(file, "w:gz") as archive:
        for name, data in (("setup.py", code), ("PKG-INFO", b"Metadata-Version: 2.1\nName: only-source\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"only-source-1.0/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return hashlib.sha256(file.read_bytes()).hexdigest()


def wheel(directory: Path) -> str:
    """A package of one module; its hash."""
    file = directory / "one_module-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("one_module.py", "")
        archive.writestr("one_module-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: one-module\nVersion: 1.0\n")
        archive.writestr("one_module-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("one_module-1.0.dist-info/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_only_what_has_the_hash_of_the_lock_is_installed_and_nothing_beside_it(ready: Path, tmp_path: Path) -> None:
    root, links = tmp_path / "tree", environment(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    shutil.copytree(ready, root, symlinks=True)
    digest = wheel(tmp_path)
    (root / "requirements.lock").write_text(f"one-module==1.0 --hash=sha256:{'0' * 64}\n")
    status, _stdout, stderr = call(root / "bin" / "shep", env=links)
    assert status == 1 and "pip could not install what requirements.lock lists" in stderr
    (root / "requirements.lock").write_text(f"one-module==1.0 --hash=sha256:{digest}\n")
    assert call(root / "bin" / "shep", env=links)[0] == 0
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    there = {path.name for path in packages.iterdir()} - {"__pycache__"}
    assert there == {"shepherd.pth", "one_module.py", "one_module-1.0.dist-info"}
    assert not [path.name for path in (root / ".venv" / "bin").iterdir() if "pip" in path.name]


def test_failed_set_up_says_why_and_is_redone(ready: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(ready, root, symlinks=True)
    before = (root / "requirements.lock").read_text()
    (root / ".venv" / "left-over").touch()

    (root / "requirements.lock").write_text(f"only-source==1.0 --hash=sha256:{source_package(tmp_path / 'links')}\n")
    links = environment(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "links"))
    status, stdout, stderr = call(root / "bin" / "shep", env=links)
    assert (status, stdout) == (1, "")
    first, last = stderr.splitlines()
    assert SETTING_UP in first
    assert re.match(r"shep: pip could not install what requirements.lock lists \(.*only-source.*\): connect to the network", last)
    assert not (root / ".venv" / "left-over").exists()
    assert not (tmp_path / "links" / "was run").exists(), "the set-up code of a source package was run"

    # The half-made .venv must not pass for the one that was there before.
    (root / "requirements.lock").write_text(before)
    status, stdout, stderr = call(root / "bin" / "shep", "x")
    assert (status, SETTING_UP in stderr, stdout.endswith("|shep|x\n")) == (0, True, True)
    assert call(root / "bin" / "shep")[2] == ""


def test_python_that_is_too_old_says_what_to_install(tmp_path: Path) -> None:
    root = clone(tmp_path / "tree")
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # what any older Python answers to the question for its version
    old.chmod(0o755)
    status, stdout, stderr = call(root / "bin" / "shep", env=environment(PYTHON=str(old)))
    assert (status, stdout) == (1, "")
    assert re.fullmatch(r"shep: Python 3\.11 or newer is needed, and none of .* is: install it .*\n", stderr)


def test_no_python_at_all_says_what_to_install(tmp_path: Path) -> None:
    root = clone(tmp_path / "tree")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "readlink", "cat"):
        found = shutil.which(tool)
        assert found
        (tools / tool).symlink_to(found)
    status, _, stderr = call(root / "bin" / "shep", env={"PATH": str(tools)})
    assert status == 1
    assert re.fullmatch(r"shep: Python 3\.11 or newer is needed, and none of python3\.13 .* is: install it .*\n", stderr)


def test_missing_venv_module_says_what_to_install(tmp_path: Path) -> None:
    root = clone(tmp_path / "tree")
    hide = (
        "import importlib.util as u, runpy, sys; find = u.find_spec; sys.argv = sys.argv[1:]; "
        "u.find_spec = lambda name: None if name == 'ensurepip' else find(name); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\n[ "$1" = -I ] || exec {sys.executable} "$@"\nshift\nexec {sys.executable} -I -c "{hide}" "$@"\n')
    bare.chmod(0o755)
    status, _, stderr = call(root / "bin" / "shep", env=environment(PYTHON=str(bare)))
    assert status == 1
    assert re.fullmatch(
        r"shep: .* has no venv module: install it \(on Debian: apt install python3\.\d+-venv\)", stderr.splitlines()[-1]
    )


# --- the list of programs ---------------------------------------------------------------------------------------


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_bin_and_setup_cfg_know_the_same_programs() -> None:
    entries = setup_cfg()["options.entry_points"]["console_scripts"].split("\n")
    assert dict(entry.split(" = ") for entry in entries if entry) == PROGRAMS
    links = {path.name: os.readlink(path) for path in (ROOT / "bin").iterdir() if path.is_symlink()}
    assert links == dict.fromkeys(PROGRAMS, ".launch")


def test_every_package_is_installed() -> None:
    listed = setup_cfg()["options"]["packages"].split()
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "shepherd").rglob("__init__.py")}
    assert set(listed) == found | {"shepherd.defaults"}


def test_toy_web_is_a_package_of_its_own() -> None:
    project = tomllib.loads((ROOT / "toyweb" / "pyproject.toml").read_text(encoding="utf-8"))
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "toyweb").rglob("__init__.py")}
    assert set(project["tool"]["setuptools"]["packages"]) == found
    assert setup_cfg()["options.extras_require"]["toyweb"].split() == [project["project"]["name"]]


@pytest.mark.parametrize("program", [["gather"], ["shep-toyweb", "--dir", "web"]])
def test_program_without_the_toy_web_says_how_to_get_it(program: list[str], tmp_path: Path) -> None:
    (tmp_path / "shepherd").symlink_to(ROOT / "shepherd")
    hidden = f"import sys; sys.path[:] = [{str(tmp_path)!r}, *(path for path in sys.path if path not in ('', {str(ROOT)!r}))]\n"
    script = f"{hidden}from shepherd.cli.__main__ import main; sys.argv[1:] = {program}; main()"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().endswith("install it from there: pip install ./toyweb")


def test_locks_are_exact_and_have_hashes_and_name_no_host() -> None:
    for name in lock_files.ALL:
        text = (ROOT / name).read_text(encoding="utf-8")
        lock = lock_files.parse(text)
        assert lock.text() == text, "bin/lock would write it otherwise"
        assert [package.name for package in lock.packages if not package.hashes] == [], "run bin/lock"
        assert "://" not in text
    assert not lock_files.from_source(lock_files.parse((ROOT / "requirements.lock").read_text(encoding="utf-8")))


def test_every_dependency_is_locked() -> None:
    options = setup_cfg()
    runtime = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    both = runtime + (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    for text, lock in ((options["options"]["install_requires"], runtime), (options["options.extras_require"]["dev"], both)):
        for requirement in filter(None, text.split("\n")):
            name = re.split(r"[ >=]", requirement)[0].replace("_", "-")
            assert re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE), f"{name} is not locked"


@pytest.mark.parametrize(
    "program", sorted(path.name for path in (ROOT / "bench").iterdir() if path.is_file() and os.access(path, os.X_OK))
)
def test_bench_program_runs_with_the_python_of_the_tree(program: str, tmp_path: Path) -> None:
    """Called by its name, from anywhere, it finds the Python of .venv, which has numpy."""
    first = (ROOT / "bench" / program).read_text().splitlines()[0]
    probe = tmp_path / "bench" / program
    probe.parent.mkdir()
    probe.write_text(f"{first}\nimport sys, numpy\nprint(sys.executable, *sys.argv[1:], sep='|')\n")
    probe.chmod(0o755)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    done = subprocess.run(
        [probe, "a b", "c"], cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/.venv/bin/python|a b|c\n"), done.stderr
