"""The wheels: that of the core has neither the toy web nor tests, the toy web has its own, and with both installed all works.

They are built offline, from a copy of the tree, by any Python here that has setuptools and wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from shepherd.cli.__main__ import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
CORE = ("shepherd", "cf", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
PYTHONS = (sys.executable, "/usr/bin/python3")
WITHOUT_TOY_WEB = "the toy web is not installed: run this from the source tree, or install it from there: pip install ./toyweb"


def has_setuptools(python: str) -> bool:
    script = "import sys, setuptools, wheel, pip; sys.exit(sys.version_info < (3, 11))"
    return (
        os.path.exists(python) and subprocess.run([python, "-I", "-c", script], capture_output=True, check=False).returncode == 0
    )


def pip(python: str, *arguments: str | Path) -> None:
    done = subprocess.run([python, "-I", "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Package -> its wheel."""
    python = next((python for python in PYTHONS if has_setuptools(python)), None)
    if python is None:
        pytest.skip(
            "no Python here has pip, setuptools and wheel (on Debian: apt install python3-pip python3-setuptools python3-wheel)"
        )
    root = tmp_path_factory.mktemp("wheels")
    tree, out = root / "tree", root / "out"
    tree.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in (*CORE, "toyweb"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, tree / name)
    before = {path for path in (tree / "toyweb").rglob("*") if path.suffix != ".egg-info" and path.parent.suffix != ".egg-info"}
    for source in (tree, tree / "toyweb"):
        pip(python, "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    after = {path for path in (tree / "toyweb").rglob("*") if path.suffix != ".egg-info" and path.parent.suffix != ".egg-info"}
    assert after == before, "a build leaves modules where tests and tools take them for the toy web's own"
    return {path.name.partition("-")[0]: path for path in out.iterdir()}


@pytest.fixture
def bin_directory(wheels: dict[str, Path], tmp_path: Path) -> Path:
    """The programs of a venv that has the core, and all that it depends on."""
    directory = tmp_path / "venv"
    venv.create(directory, symlinks=True)
    purelib = sysconfig.get_path("purelib", vars={"base": str(directory)})
    (Path(purelib) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install(directory / "bin", wheels["shepherd"])
    return directory / "bin"


def install(bin_directory: Path, wheel: Path) -> None:
    python = next(python for python in PYTHONS if has_setuptools(python))  # .venv has no pip
    pip(python, "--python", bin_directory / "python", "install", "--quiet", "--no-index", "--no-deps", wheel)


def run(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHEPHERD"))}


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def modules(room: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / room).rglob("*.py")}


def test_wheel_of_the_core_has_the_package_its_page_and_its_defaults(wheels: dict[str, Path]) -> None:
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "shepherd" / "serve" / "static").iterdir()}
    defaults = {f"shepherd/defaults/{path.name}" for path in (ROOT / "cf").iterdir()}
    assert files(wheels["shepherd"]) == modules("shepherd") | page | defaults


def test_wheel_of_the_toy_web_has_that_alone(wheels: dict[str, Path]) -> None:
    assert files(wheels["shepherd_toyweb"]) == modules("toyweb")


def test_every_program_is_installed(bin_directory: Path) -> None:
    assert {path.name for path in bin_directory.iterdir()} >= set(PROGRAMS)


def test_programs_of_the_toy_web_say_in_one_sentence_what_to_install(bin_directory: Path, tmp_path: Path) -> None:
    for program, *arguments in (["gather"], ["shep-toyweb", "--dir", "web"]):
        done = run(bin_directory / program, *arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, f"{program}: {WITHOUT_TOY_WEB}\n")


def test_toy_web_is_served_and_gathered_where_it_is_installed(
    bin_directory: Path, wheels: dict[str, Path], tmp_path: Path
) -> None:
    install(bin_directory, wheels["shepherd_toyweb"])
    command = [str(bin_directory / "shep-toyweb"), "--dir", "web", "--base", "127.77.9.0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert "start at http://site0.toy.example/" in server.stdout.readline()
        server.terminate()
    assert server.returncode == 0
    done = run(bin_directory / "gather", "--quiet", "--pages", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the page limit is reached" in done.stdout
    assert (tmp_path / "toy" / "db" / "state").is_dir()
