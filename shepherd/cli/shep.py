"""shep: the operator's tool. One small module for each subcommand, `shep_NAME.py`; here they are only put together."""

from __future__ import annotations

import click

from shepherd import __version__
from shepherd.cli import (
    common,
    shep_at,
    shep_audit,
    shep_cat,
    shep_completion,
    shep_delete,
    shep_diff,
    shep_explain,
    shep_fetch,
    shep_filter,
    shep_insert,
    shep_list,
    shep_lock,
    shep_refresh,
    shep_reports,
    shep_robots,
    shep_servers,
    shep_set,
    shep_sites,
    shep_states,
    shep_stats,
    shep_top,
    shep_url,
)


@click.group()
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Look into a database, and ask for changes to it.

    What only looks reads a closed state and holds it by a lease; what changes leaves a request in the inbox. Neither waits for a
    lock, and both work while a cycle runs; only `shep fetch`, which asks a server, takes it.
    """


for _module in (
    shep_insert,
    shep_delete,
    shep_refresh,
    shep_set,
    shep_list,
    shep_stats,
    shep_top,
    shep_sites,
    shep_servers,
    shep_cat,
    shep_url,
    shep_filter,
    shep_robots,
    shep_fetch,
    shep_explain,
    shep_diff,
    shep_at,
    shep_audit,
    shep_states,
    shep_reports,
    shep_lock,
    shep_completion,
):
    command.add_command(_module.command)
command.add_command(shep_lock.unlock)


def main() -> None:
    common.run(command)
