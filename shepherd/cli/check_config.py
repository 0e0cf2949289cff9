"""shepherd check-config: everything in cf/ read as the programs read it, with all faults at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from shepherd.config import FILE, Config
from shepherd.console import common
from shepherd.console.cf_faults import examine
from shepherd.console.cf_place import UNBOUNDED
from shepherd.console.shared import many
from shepherd.errors import UsageError


@click.command("check-config")
@common.database_of_cf
@common.examined
@common.jsonable
@common.standard
def command(cf: Path, as_json: bool) -> None:
    """Check the configuration. It lists mistakes, what differs from the defaults, and what you may want to reconsider.

    It reads shepherd.toml, filter, url-equiv, and the files that shepherd.toml names. It changes nothing and contacts nobody.
    Exit status 2 if something is wrong: each message has the file and, where possible, the line.

    \b
    Examples:
      shepherd check-config
      shepherd check-config --cf /etc/shepherd --json
    """
    config, complaints = examine(cf)
    changed = list(_changed(config))
    thoughts = [] if complaints else list(_thoughts(config))
    if as_json:
        common.emit_json({"cf": cf, "faults": complaints, "changed": dict(changed), "thoughts": thoughts})
    else:
        _print_result(cf, complaints, changed, thoughts)
    if complaints:
        raise UsageError(f"{cf}: {many(len(complaints), 'fault')}, listed above; mend them before the next cycle")


def _print_result(cf: Path, complaints: list[str], changed: list[tuple[str, Any]], thoughts: list[str]) -> None:
    for complaint in complaints:
        common.LOG.error("%s", complaint)
    if complaints:
        return
    click.echo(f"{cf}: all is well, {many(len(changed), 'setting')} not as by default")
    for name, value in changed:
        click.echo(common.escape(f"  {name} = {list(value) if isinstance(value, tuple) else value!r}"))
    for note in thoughts:
        click.echo(common.escape(f"note: {note}"))


def _changed(config: Config) -> Iterator[tuple[str, Any]]:
    """The settings that are not as by default."""
    default = Config()
    for section in (field.name for field in dataclasses.fields(Config) if field.name != "directory"):
        settings, defaults = getattr(config, section), getattr(default, section)
        for key in (field.name for field in dataclasses.fields(defaults)):
            if getattr(settings, key) != getattr(defaults, key):
                yield f"{section}.{key}", getattr(settings, key)


def _thoughts(config: Config) -> Iterator[str]:
    """What is allowed and may still not be meant."""
    from shepherd.filters import load_filter

    if not (config.directory / FILE).is_file():
        yield f"there is no {config.directory / FILE}: all is as by default; shep-init writes one with comments"
    if not load_filter(config.filter_path).is_bounded:
        yield f"{config.filter_path} {UNBOUNDED}"
    if not config.identity.contact:
        yield "identity.contact is not set: nothing but loopback is gathered"
    if config.politeness.delay_s < 1:
        yield f"politeness.delay_s is {config.politeness.delay_s:g} s: too little for servers of other people"
    if not config.fetch.verify_tls:
        yield "fetch.verify_tls is false: anybody on the way can alter what is gathered"
    if config.network.allow:
        yield f"network.allow lets links lead to {', '.join(config.network.allow)}: to your own machines, if they are there"
    if config.plan.reap_s < config.politeness.delay_s:
        yield "plan.reap_s is below politeness.delay_s: a reap asks a server once at most"
