"""Work done as a user who is not root, whom no mode keeps out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from shepherd.errors import NothingToDo

NOBODY = 65_534


def as_somebody(db: Path, phase: Callable[[], object], of_root: Sequence[Path] = ()) -> str:
    """Run it as a user who is not root, whom no mode keeps out; the database is that user's, but for some paths. What it said."""
    if os.getuid() == 0:
        for path in (db.parent, *db.parent.rglob("*")):
            owner = 0 if path in of_root else NOBODY
            os.chown(path, owner, owner, follow_symlinks=False)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            phase()
            os.write(writer, b"done")
        except NothingToDo as error:
            os.write(writer, f"nothing: {error}".encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        text = told.read().decode()
    os.waitpid(child, 0)
    return text
