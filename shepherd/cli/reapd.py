"""reapd: the reaper. Fetches for a dispatcher that connects to it."""

from __future__ import annotations

import click

from shepherd.cli import common


@click.command()
@click.option("--listen", "address", required=True, metavar="unix:PATH", help="Where dispatchers connect; the path must be free.")
@common.standard
def command(address: str) -> None:
    """Serve dispatchers: resolve names, fetch pages, judge robots.txt, parse.

    Each connection gets a worker process of its own. The socket is for this user alone; its file is left to whoever
    made the directory.
    """
    from shepherd.net import reapd

    reapd.main(address)


def main() -> None:
    common.run(command)
