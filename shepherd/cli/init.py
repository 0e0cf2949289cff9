"""shep-init: a new, empty database."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.console import common


@click.command()
@common.database
@common.configuration_directory
@common.timed
@common.standard
def command(db: Path, cf: Path, now: int) -> None:
    """Create an empty database in DIR, and cf/ with commented defaults where there is none.

    DIR must be new or empty but for its README, on a file system that can make hard links, rename and sync directories and lock
    files; it tests that first. It overwrites nothing.

    \b
    Example:
      shep-init --db /data/web --cf /etc/shepherd
    """
    import secrets

    from shepherd.filters import load_filter
    from shepherd.store.disk.probe import probe
    from shepherd.store.state import database

    database.refuse_foreign(db)
    probe(db)
    written = _write_defaults(cf)
    filters = load_filter(cf / "filter")
    state = database.create(db, secrets.token_bytes(16), now, filters.version)
    for path in written:
        common.LOG.info("%s: written with the defaults", path)
    steps = f"shep scope add --db {db} HOST, then shep insert --db {db} URL..."
    common.LOG.info("%s: an empty database, state %d; next: %s", db, state.number, steps)


def _write_defaults(cf: Path) -> list[Path]:
    """Commented defaults, each file only where it is missing; what was written."""
    from shepherd.store.disk import fsio

    cf.mkdir(parents=True, exist_ok=True)
    missing = [cf / name for name in ("shepherd.toml", "filter", "url-equiv") if not (cf / name).exists()]
    for path in missing:
        fsio.replace_file(path, (common.default_files() / path.name).read_bytes())
    return missing


def main() -> None:
    common.run(command)
