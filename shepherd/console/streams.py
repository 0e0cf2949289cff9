"""The standard streams of a program, in whatever state its caller has left them."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_all() -> None:
    """Let a stream that the caller has closed lead nowhere: else the next file that is opened would take its place."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, descriptor)
            if nowhere != descriptor:
                os.close(nowhere)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def settle(stream: TextIO) -> None:
    """Write what can still be written; the interpreter would try the rest once more and change the exit status."""
    try:
        stream.flush()
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
