"""shep-toyweb: serve the toy web."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.cli import common


@click.command()
@click.option("--dir", "directory", type=common.DIRECTORY, required=True, metavar="DIR", help="For static table and access log.")
@click.option("--sites", type=int, default=80, show_default=True, help="How many sites: from 50 to 200.")
@click.option("--seed", type=int, default=1, show_default=True, help="Which toy web: the same number gives the same bytes.")
@click.option("--base", default="127.1.0.0", show_default=True, metavar="ADDRESS", help="Use the addresses after this one.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On every address.  [default: 0, any that is free]")
@click.option("--at", type=click.IntRange(min=0), default=0, show_default=True, help="Version of the web to begin with.")
@common.standard
def command(directory: Path, sites: int, seed: int, base: str, port: int, at: int) -> None:
    """Serve a deterministic little web on loopback, until SIGTERM or Ctrl-C.

    DIR/static tells where its hosts are: name it in [network] of shepherd.toml, and allow 127.0.0.0/8 there.
    DIR/access.log has a line for every request. SIGHUP brings the next version of the web: pages change and move.
    """
    import asyncio
    import time

    import uvloop

    from shepherd.toyweb.answer import Desk
    from shepherd.toyweb.model import Model
    from shepherd.toyweb.server import STATIC, serve

    model = Model(seed, sites, base)
    desk = Desk(model, at)
    # Steps of the wall clock must not look like impatience in the log.
    offset_s = time.time() - time.monotonic()

    def clock() -> float:
        return offset_s + time.monotonic()

    def ready() -> None:
        where = f"{len(model.addresses)} addresses, {model.addresses[0]} to {model.addresses[-1]}"
        click.echo(f"{sites} sites on {where}: start at {model.seeds()[0]} with the table {directory / STATIC}")

    def advanced() -> None:
        click.echo(f"version {desk.version}")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(desk, directory, port, clock, ready, advanced))


def main() -> None:
    common.run(command)
