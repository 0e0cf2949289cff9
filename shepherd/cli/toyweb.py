"""shep-toyweb: serve the toy web."""

from __future__ import annotations

from pathlib import Path

import click

from shepherd.console import common
from shepherd.console.extras import need_toyweb

PORT = click.IntRange(0, 65535)
SOME = click.IntRange(min=1)
FROM_0 = click.IntRange(min=0)


@click.command()
@click.option(
    "--dir",
    "directory",
    type=common.DIRECTORY,
    required=True,
    metavar="DIR",
    help="Directory for its table, log and certificate.",
)
@click.option("--sites", type=SOME, default=80, show_default=True, help="How many: 50 or more; with --plain any number.")
@click.option("--seed", type=int, default=1, show_default=True, help="Which toy web: the same number gives the same bytes.")
@click.option("--largest", type=click.IntRange(min=8), default=48, show_default=True, help="Pages of the largest sites.")
@click.option("--plain", is_flag=True, help="Ordinary sites only.")
@click.option("--zoo", is_flag=True, help="Hostile servers, too, each under a name of its own; linked from /zoo.html of site0.")
@click.option("--base", default="127.1.0.0", show_default=True, metavar="ADDRESS", help="Use the addresses after this one.")
@click.option("--per-address", type=SOME, default=2, show_default=True, help="Sites on each address.")
@click.option("--cdn", type=FROM_0, default=0, show_default=True, help="So many of the sites, the last ones, share one address.")
@click.option("--one-address", is_flag=True, help="Use 127.0.0.1 alone, with a port for each server.")
@click.option("--port", type=PORT, default=0, help="On every address, for http and https.  [default: 0, any that is free]")
@click.option("--tls-port", type=PORT, default=0, help="One more port on every address.  [default: 0, none]")
@click.option("--dns", "dns_port", type=PORT, default=0, metavar="PORT", help="Answer DNS on 127.0.0.1.  [default: 0, no]")
@click.option("--at", "first_version", type=FROM_0, default=0, show_default=True, help="Version of the web to begin with.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Serve with so many processes.")
@click.option("--latency-ms", type=click.FloatRange(0, 60_000), default=0.0, show_default=True, help="Wait before answers.")
@click.option("--prepare", is_flag=True, help="Make all pages before the first request, and keep them in memory.")
@common.standard
def command(
    directory: Path,
    sites: int,
    seed: int,
    largest: int,
    plain: bool,
    zoo: bool,
    base: str,
    per_address: int,
    cdn: int,
    one_address: bool,
    port: int,
    tls_port: int,
    dns_port: int,
    first_version: int,
    processes: int,
    latency_ms: float,
    prepare: bool,
) -> None:
    """Serve a deterministic little web on loopback, until SIGTERM or Ctrl-C.

    DIR/static lists its hosts: name it in [network] of shepherd.toml, and allow 127.0.0.0/8 there. DIR/ca.pem is the authority
    that signs its certificates. DIR/access.log has a line for every request. SIGHUP brings the next version of the web: pages
    change and move.

    \b
    Examples:
      shep-toyweb --dir /tmp/toyweb
      shep-toyweb --dir /tmp/toyweb --zoo --sites 1000 --processes 2
    """
    import time

    need_toyweb()
    from toyweb.model import Model
    from toyweb.server import STATIC, ServerSettings, serve

    spread = {"per_address": per_address, "cdn": cdn, "largest": largest}
    model = Model(seed, sites, base, **spread, plain=plain, zoo=zoo, one_address=one_address)
    settings = ServerSettings(directory, port, tls_port, first_version, processes, latency_ms / 1000, prepare, dns_port)
    # Steps of the wall clock must not look like impatience in the log.
    offset_s = time.time() - time.monotonic()

    def clock() -> float:
        return offset_s + time.monotonic()

    def on_ready() -> None:
        where = f"{model.servers} servers, {model.addresses[0]} to {model.addresses[-1]}"
        click.echo(f"{sites} sites on {where}: start at {model.seeds()[0]} with the table {directory / STATIC}")

    def on_advanced(version: int) -> None:
        click.echo(f"version {version}")

    serve(model, settings, clock, on_ready, on_advanced)


def main() -> None:
    common.run(command)
