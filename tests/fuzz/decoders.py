#!/usr/bin/env python3
"""Lets atheris look for bytes on which a decoder fails otherwise than by a ShepherdError, hangs, or takes too much memory.

    python tests/fuzz/decoders.py [--seconds N] [--keep DIR] [TARGET...]

Each target of tests/fuzz/targets.py runs in a process of its own for N seconds (20), beginning with its seeds. Prints how often
it was called and what was found; the bytes of a finding are left in DIR. Exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY_MB = 700  # of the whole process; the interpreter with its libraries and its coverage takes half of it
HANG_S = 10
LIMIT_BYTES = 1 << 16

sys.path.insert(0, str(ROOT))


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the decoders with atheris.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="which; all of them if none is given")
    parser.add_argument("--seconds", type=int, default=20, help="for each target (20)")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()), help="where the bytes of findings are left")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given, libfuzzer = parser.parse_known_args()
    if importlib.util.find_spec("atheris") is None:
        print(f"atheris is not installed: {sys.executable} -m pip install atheris", file=sys.stderr)
        return 2
    if given.one:
        run_here(given.targets[0], libfuzzer)
    names = list(importlib.import_module("tests.fuzz.targets").TARGETS)
    unknown = set(given.targets) - set(names)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    given.keep.mkdir(parents=True, exist_ok=True)
    findings = [name for name in given.targets or names if not run_apart(name, given.seconds, given.keep.resolve())]
    return 1 if findings else 0


def run_apart(name: str, seconds: int, keep: Path) -> bool:
    """Fuzz one target in another process; whether nothing was found."""
    memory = Path("/dev/shm")  # a disk would take most of the time
    with tempfile.TemporaryDirectory(prefix="shepherd-fuzz-", dir=memory if memory.is_dir() else None) as home:
        corpus = Path(home, "corpus")
        corpus.mkdir()
        for number, seed in enumerate(importlib.import_module("tests.fuzz.targets").TARGETS[name].seeds):
            (corpus / str(number)).write_bytes(seed[:LIMIT_BYTES])
        options = [f"-max_total_time={seconds}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={LIMIT_BYTES}"]
        options += ["-print_final_stats=1", f"-artifact_prefix={keep}/decoder-{name.replace(' ', '-')}-", str(corpus)]
        call = [sys.executable, __file__, "--one", name, *options]
        environment = os.environ | {"TMPDIR": home}  # what the target leaves there goes with it
        done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, timeout=seconds + 300, check=False)
    told = done.stderr.decode("utf-8", "replace")
    runs, peak = (re.search(rf"stat::{stat}:\s*(\d+)", told) for stat in ("number_of_executed_units", "peak_rss_mb"))
    good = done.returncode == 0 and runs is not None
    count = f"{int(runs[1]):>10,} calls, peak {peak[1] if peak else '?'} MB" if runs else "no account"
    print(f"{name:<18} {count:<34} {'nothing found' if good else 'FOUND'}", flush=True)
    if not good:
        print(told[-4000:], file=sys.stderr)
    return good


def run_here(name: str, libfuzzer: list[str]) -> None:
    """Fuzz one target in this process, until libFuzzer ends it."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["shepherd"]):
        targets = importlib.import_module("tests.fuzz.targets")
        errors = importlib.import_module("shepherd.errors")
    decode: Callable[[bytes], object] = targets.TARGETS[name].decode

    def once(data: bytes) -> None:
        with contextlib.suppress(errors.ShepherdError):
            decode(data)

    atheris.Setup([sys.argv[0], *libfuzzer], once)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
