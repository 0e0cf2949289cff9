"""reapd: the reaper. Fetches for a dispatcher that connects to it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from shepherd.config import MOST_WORKERS, process_fault
from shepherd.console import common
from shepherd.errors import UsageError
from shepherd.reaper.process.limits import WorkerLimits

PEM = click.Path(dir_okay=False, path_type=Path)
DEFAULT = WorkerLimits()


@click.command()
@click.option(
    "--listen", "address", required=True, metavar="ADDRESS", help="Where dispatchers connect: unix:PATH or tls:HOST:PORT."
)
@click.option(
    "--workers", type=click.IntRange(1, MOST_WORKERS), help="Most connections at a time, a process each.  [default: one per CPU]"
)
@click.option("--keys", "key_file", type=PEM, metavar="FILE", help="This reaper's key file, for tls:; shep-keys makes it.")
@click.option(
    "--user", default="nobody", show_default=True, metavar="NAME", help="User to run as, if started as root; 'root' stays root."
)
@click.option(
    "--recycle",
    type=click.IntRange(0),
    default=DEFAULT.recycle,
    show_default=True,
    help="Replace a worker after so many answers; 0 = never.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=click.IntRange(0),
    default=DEFAULT.memory_bytes,
    show_default=True,
    metavar="BYTES",
    help="Address space of a process, at least 192 MiB; 0 = no limit.",
)
@click.option(
    "--parse",
    "parse_s",
    type=click.FloatRange(0.1),
    default=DEFAULT.parse_s,
    show_default=True,
    metavar="SECONDS",
    help="Kill a process that works on one page for longer than this.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="RANGE",
    help="Addresses that dispatchers may allow although they are not global, as in 10.1.0.0/16; may be repeated."
    "  [default: none for tls:, else all]",
)
@click.option(
    "--refuse", multiple=True, metavar="RANGE", help="Addresses that are never contacted, whatever is allowed; may be repeated."
)
@common.standard
def command(
    address: str,
    workers: int | None,
    key_file: Path | None,
    user: str,
    recycle: int,
    memory_bytes: int,
    parse_s: float,
    allow: tuple[str, ...],
    refuse: tuple[str, ...],
) -> None:
    """Serve dispatchers: resolve names, fetch pages, judge robots.txt, parse.

    Each connection gets a worker process of its own. A unix socket is for this user alone; its file stays when reapd ends,
    and the next one there replaces it. Over TLS each end must show a key of the same authority. This machine's own addresses are
    contacted only if a range allows each of them by itself, as in 10.1.0.7/32; loopback may be part of a wider one.

    \b
    Examples:
      reapd --listen unix:/run/shepherd/reapd --workers 2
      reapd --listen tls:192.0.2.7:4444 --keys reaper1.pem
    """
    import datetime

    from shepherd import addresses
    from shepherd.reaper.fetch.guard import ReaperRules, networks
    from shepherd.reaper.process import reapd
    from shepherd.wire import tls

    if fault := process_fault(memory_bytes):
        raise UsageError(f"--memory: {fault}")
    place = addresses.parse_address(address)
    now = datetime.datetime.now(datetime.UTC)
    keys = tls.read_keys(key_file, tls.Role.REAPER, now) if key_file else None
    if keys and (warning := tls.warning(keys, now)):
        common.LOG.warning("%s", warning)
    # A socket of this user is another program of this user, which could contact anybody itself.
    trusted = not isinstance(place, addresses.TlsAddress) and not allow
    rules = ReaperRules(networks(refuse, "--refuse"), None if trusted else networks(allow, "--allow"))
    terms = WorkerLimits(workers or os.cpu_count() or 1, recycle, memory_bytes, parse_s, rules=rules)
    reapd.main(place, terms, keys, user)


def main() -> None:
    common.run(command)
