"""What programs that read from a shep-serve share: the token, which is in a file and never on a command line, and authorities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from shepherd import secrets
from shepherd.errors import UsageError

R = TypeVar("R")
FILE: Final = click.Path(dir_okay=False, path_type=Path)
MAX_BYTES: Final = 4_096


def with_token(function: Callable[..., R], required: bool = True) -> Callable[..., R]:
    """--token-file FILE, as `token: str`; where it need not be given, None."""

    def read(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> str | None:
        return None if path is None else read_token(path)

    text = "The token that `shep-serve token add` printed; the file's mode must be 0600."
    return click.option("--token-file", "token", required=required, type=FILE, callback=read, metavar="FILE", help=text)(function)


def maybe_remote(function: Callable[..., R]) -> Callable[..., R]:
    """--from URL, --token-file and --ca-file for a program that also reads a database here; `url` is None then."""
    text = "Read from this shep-serve, https://HOST:PORT, instead of a database here; needs --token-file."
    return click.option("--from", "url", metavar="URL", help=text)(with_token(with_authorities(function), required=False))


def with_authorities(function: Callable[..., R]) -> Callable[..., R]:
    """--ca-file FILE, as `ca_file: Path | None`."""
    text = "Authorities for https, PEM.  [default: the public ones]"
    kind = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--ca-file", type=kind, metavar="FILE", help=text)(function)


def read_token(path: Path) -> str:
    """The token in a file that only its owner may read."""
    text = secrets.read(path, "token", MAX_BYTES, "it must have what shep-serve token add has shown").strip()
    if not text or not text.isprintable() or " " in text:
        raise UsageError(f"{path}: must be one line, with a token that shep-serve token add has shown")
    return text
