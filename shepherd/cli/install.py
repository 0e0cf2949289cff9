"""Makes .venv from the lock files, once: bin/.setup runs this file, with a Python that is new enough and nothing installed.

Only wheels are installed whose hashes the lock file has, so no code of a package runs before we import it, and none that nobody
has looked at. pip itself works from outside: .venv has what runs, and nothing else.

The stamp (a copy of the lock file inside .venv) is emptied first and written last, so an interrupted set-up is seen and redone,
and bin/.launch need only compare two small files. Two programs started at once wait for each other. This file needs nothing
but the standard library.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
RUNTIME = "requirements.lock"
DEV = "requirements-dev.lock"
READERS = "requirements-readers.lock"  # what tests run beside us, in a venv of its own
# A lock file may make an exception from wheels for a package that has none: only that of the readers does.
INSTALL = ("install", "--quiet", "--no-input", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement")

OLDEST_PIP = [22, 3]  # that can install for another Python


class SetupError(Exception):
    """What is missing, and what to install."""


def venv_of(lock: str) -> Path:
    return ROOT / ".venv-readers" if lock == READERS else VENV


def stamp_of(lock: str) -> Path:
    return venv_of(lock) / lock.replace("requirements", "shepherd")


def is_done(lock: str) -> bool:
    try:
        return (venv_of(lock) / "bin" / "python").exists() and stamp_of(lock).read_bytes() == (ROOT / lock).read_bytes()
    except FileNotFoundError:
        return False


def make(lock: str) -> None:
    """Bring a venv to what `lock` says."""
    lock_bytes = (ROOT / lock).read_bytes()
    if stamp_of(lock).exists():
        stamp_of(lock).write_bytes(b"")  # venv --clear deletes in any order: the stamp must be the first to go
    if lock != DEV:
        _make_venv(venv_of(lock), "--without-pip")
    if lock == RUNTIME:
        _find_shepherd()
    with tempfile.TemporaryDirectory(prefix="shepherd-pip-") as scratch:
        result = _run(_with_pip(Path(scratch)), "-m", "pip", "--python", venv_of(lock) / "bin" / "python", *INSTALL, ROOT / lock)
    if result.returncode:
        raise SetupError(
            f"pip could not install what {lock} lists ({_last_error(result.stderr)}): "
            "connect to the network, or point PIP_FIND_LINKS at a directory with the packages, and run the same command again"
        )
    stamp_of(lock).write_bytes(lock_bytes)


def _with_pip(scratch: Path) -> str | Path:
    """A Python whose pip can work on another one: ours, or that of a venv which is thrown away."""
    if find_spec("pip") is not None and [int(part) for part in version("pip").split(".")[:2]] >= OLDEST_PIP:
        return sys.executable
    _make_venv(scratch, "--symlinks")
    return scratch / "bin" / "python"


def _make_venv(venv: Path, option: str) -> None:
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        raise SetupError(f"{sys.executable} has no venv module: install it (on Debian: apt install {name}-venv)")
    result = _run(sys.executable, "-m", "venv", "--clear", option, venv)
    if result.returncode:
        raise SetupError(
            f"{sys.executable} -m venv failed ({_last_error(result.stderr or result.stdout)}): install Python's venv module"
        )


def _find_shepherd() -> None:
    """Let the Python of .venv find this tree."""
    result = _run(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    packages = Path(result.stdout.strip())
    # Relative, so that the tree may be moved with its .venv; a path file, so that no program needs an environment variable.
    (packages / "shepherd.pth").write_text(os.path.relpath(ROOT, packages.resolve()) + "\n")


def _run(python: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-I", *arguments], capture_output=True, text=True, check=False)


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it did not say why"])[-1].removeprefix("ERROR: ")


def install(name: str, locks: list[str]) -> None:
    with (ROOT / ".venv.lock").open("a") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: waiting for another program that is setting up .venv", file=sys.stderr)
            fcntl.flock(turn, fcntl.LOCK_EX)
        for lock in locks:
            if not is_done(lock):
                print(f"{name}: setting up {venv_of(lock).name} from {lock}, once (about a minute)", file=sys.stderr)
                make(lock)


def main() -> int:
    name, *more = sys.argv[1:]
    try:
        install(name, {"dev": [RUNTIME, DEV], "readers": [READERS]}.get("".join(more), [RUNTIME]))
    except SetupError as error:
        print(f"{name}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{name}: .venv cannot be made: {error}: give {ROOT} a place that you can write, with 500 MB free", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{name}: set-up interrupted; the next call begins it again", file=sys.stderr)
        return 130
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
