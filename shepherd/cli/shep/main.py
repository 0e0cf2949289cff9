"""shep: the operator's tool. One module of this room for each subcommand; here they are only put together."""

from __future__ import annotations

import click

from shepherd import __version__
from shepherd.cli.shep import at_state as shep_at
from shepherd.cli.shep import audit as shep_audit
from shepherd.cli.shep import cat as shep_cat
from shepherd.cli.shep import completion as shep_completion
from shepherd.cli.shep import delete as shep_delete
from shepherd.cli.shep import diff as shep_diff
from shepherd.cli.shep import explain as shep_explain
from shepherd.cli.shep import fetch as shep_fetch
from shepherd.cli.shep import filter as shep_filter
from shepherd.cli.shep import insert as shep_insert
from shepherd.cli.shep import list as shep_list
from shepherd.cli.shep import lock as shep_lock
from shepherd.cli.shep import refresh as shep_refresh
from shepherd.cli.shep import reports as shep_reports
from shepherd.cli.shep import robots as shep_robots
from shepherd.cli.shep import scope as shep_scope
from shepherd.cli.shep import servers as shep_servers
from shepherd.cli.shep import set as shep_set
from shepherd.cli.shep import sites as shep_sites
from shepherd.cli.shep import states as shep_states
from shepherd.cli.shep import stats as shep_stats
from shepherd.cli.shep import top as shep_top
from shepherd.cli.shep import url as shep_url
from shepherd.console import common


@click.group()
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """Look into a database, and request changes.

    Commands that look read a closed state, and keep it by a lease. Commands that change leave a request in the inbox. Neither
    needs the lock, so both work while a cycle runs; only `shep fetch`, which contacts a server, takes it.
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
    shep_scope,
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
