"""Damages of the files of a database, drawn by dice: what disks, file systems and people do to single files.

A damage of bytes is seen by all links of a file, one of its name only under that name.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shepherd.store.disk import names

PAGE: Final = 4096

Dice = random.Random
Damage = Callable[[Path, Sequence[Path], Dice], object]  # of a file, with all others that there are


@dataclass(frozen=True)
class Struck:
    """What was done to which file."""

    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} of {self.path}"


def files(db: Path) -> list[Path]:
    """Every file of its states, under each of its names; but locks, which carry nothing."""
    return [path for path in sorted((db / names.STATES).rglob("*")) if path.is_file() and path.name != names.LOCK]


def strike(db: Path, dice: Dice) -> Struck:
    """Do one damage, of a kind and to a file that the dice choose, which changes something."""
    every, before = files(db), contents(db)
    while True:
        kind = dice.choice(sorted(DAMAGES))
        path = dice.choice(every)
        DAMAGES[kind](path, [other for other in every if other != path], dice)
        if contents(db) != before:
            return Struck(kind, path.relative_to(db))


def contents(db: Path) -> Mapping[str, object]:
    """What stands in its states: bytes, or what else a name leads to, and the mode."""
    return {
        str(path): _content(path) for path in sorted((db / names.STATES).rglob("*")) if path.is_symlink() or not path.is_dir()
    }


def _content(path: Path) -> tuple[int, object]:
    mode = path.lstat().st_mode
    return mode, path.read_bytes() if path.is_file() and not path.is_symlink() else None


# --- damages of bytes -------------------------------------------------------------------------------------------


def _write(path: Path, data: bytes) -> None:
    """Other bytes for a file, which keeps its links and its mode."""
    mode = path.stat().st_mode
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)


def _flip(path: Path, _others: Sequence[Path], dice: Dice) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        _write(path, bytes(data))


def _overwrite(path: Path, dice: Dice, page: bytes) -> None:
    data = path.read_bytes()
    start = dice.randrange(0, max(len(data), 1), PAGE)
    _write(path, data[:start] + page[: len(data) - start] + data[start + PAGE :])


def _zeros(path: Path, _others: Sequence[Path], dice: Dice) -> None:
    _overwrite(path, dice, bytes(PAGE))


def _garbage(path: Path, _others: Sequence[Path], dice: Dice) -> None:
    _overwrite(path, dice, dice.randbytes(PAGE))


def _cut(path: Path, _others: Sequence[Path], dice: Dice) -> None:
    data = path.read_bytes()
    _write(path, data[: dice.randrange(len(data) + 1)])


def _tail(path: Path, _others: Sequence[Path], dice: Dice) -> None:
    _write(path, path.read_bytes() + dice.randbytes(dice.randrange(1, 2 * PAGE)))


def _change_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


# --- damages of names -------------------------------------------------------------------------------------------


def _delete(path: Path, _others: Sequence[Path], _dice: Dice) -> None:
    path.unlink()


def _swap(path: Path, others: Sequence[Path], dice: Dice) -> None:
    other, aside = dice.choice(others), path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _duplicate(path: Path, others: Sequence[Path], dice: Dice) -> None:
    other = dice.choice(others)
    path.unlink()
    shutil.copy2(other, path)


def _symlink(path: Path, others: Sequence[Path], dice: Dice) -> None:
    path.unlink()
    path.symlink_to(dice.choice([*others[:3], Path("/etc/passwd"), Path("nowhere")]))


def _directory(path: Path, _others: Sequence[Path], _dice: Dice) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path, _others: Sequence[Path], _dice: Dice) -> None:
    path.unlink()
    os.mkfifo(path)


REGULAR: Final[dict[str, Damage]] = {
    "a flipped bit": _flip,
    "a page of zeros": _zeros,
    "a page of garbage": _garbage,
    "a cut": _cut,
    "a tail": _tail,
    "a deletion": _delete,
    "a swap": _swap,
    "a duplicate": _duplicate,
}
STRANGE: Final[dict[str, Damage]] = {
    "no permission": lambda path, _others, _dice: _change_mode(path, 0),
    "a write bit": lambda path, _others, _dice: _change_mode(path, 0o644),
    "a symlink": _symlink,
    "a directory": _directory,
    "a FIFO": _fifo,
}
DAMAGES: Final = REGULAR | STRANGE
