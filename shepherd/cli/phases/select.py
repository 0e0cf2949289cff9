"""shep-select: decide what is worth gathering."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shepherd.cli.phases import versus as other
from shepherd.console import common, phase
from shepherd.errors import ShepherdError

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.store.state.database import Writer
    from shepherd.store.state.directory import State


@click.command()
@click.option("--force", is_flag=True, help="Continue even if more gathered documents are lost than select.most_lost allows.")
@other.option
@phase.batch
def command(options: phase.PhaseOptions, force: bool, versus: Config | None) -> None:
    """Decide by weight and limits which rows are gathered, which sleep and which are forgotten. It makes the .selected directory
    from that of shep-merge or shep-equiv. Exit status 4 if nothing has been merged, 2 if too many gathered documents would be
    lost.

    A dry run starts from the newest closed state if nothing has been merged, and also shows what each type becomes. Settings that
    the filter gives to single sites are those in the database.

    \b
    What another configuration would keep, beside the present one:
      shep-select --dry-run --cf cf2/
    """
    from shepherd.cycle.select import drive as select

    def drive(writer: Writer, config: Config, now: int, tick: Callable[[int], object], jobs: int) -> State:
        _look_at_equiv(writer.furthest(), config)
        return select.run(writer, config, now, tick, jobs, force=force)

    other.run("shep-select", drive, options, versus)


def _look_at_equiv(state: State, config: Config) -> None:
    """Say so if shep-equiv was skipped: select works on either, but the limits of a class of sites are another's then."""
    from shepherd.cycle.common.norms import version_of
    from shepherd.equiv import load_equiv

    if state.name.phase != "merged":
        return
    try:
        changed = version_of(load_equiv(config.equiv_path)) != state.control.equiv
    except ShepherdError as error:  # for whoever needs the file to complain of
        common.LOG.warning("%s", error)
        return
    if changed:
        common.LOG.warning(
            "%s has changed, and %s is older: shep-equiv, which was skipped, applies it", config.equiv_path, state.name
        )


def main() -> None:
    common.run(command)
