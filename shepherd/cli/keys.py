"""shep-keys: a private authority, and key files for dispatchers and reapers that meet over a network."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from shepherd.console import common
from shepherd.console.shared import many
from shepherd.errors import UsageError

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group()
@common.versioned
def command() -> None:
    """Make the keys by which dispatchers and reapers on several machines recognise each other."""


@command.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--days", type=click.IntRange(1, 36_500), default=3_650, show_default=True, help="How long it is valid.")
@common.standard
def init(directory: Path, days: int) -> None:
    """Make a private authority in DIRECTORY.

    Whoever has authority.key can make keys that all your reapers and dispatchers accept: keep it safe.

    \b
    Example:
      shep-keys init keys
    """
    from shepherd.wire import authority

    ends = authority.make_authority(directory, days, _now())
    click.echo(f"{directory}: a new authority, valid until {ends:%Y-%m-%d}")


@command.command()
@click.argument("directory", type=DIRECTORY)
@click.argument("role", type=click.Choice(["dispatcher", "reaper"]))
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A name or address under which it is reached; may be repeated.  [default: NAME]",
)
@click.option("--days", type=click.IntRange(1, 36_500), default=730, show_default=True, help="How long it is valid.")
@common.standard
def issue(directory: Path, role: str, name: str, hosts: tuple[str, ...], days: int) -> None:
    """Make the key file NAME.pem for a dispatcher or reaper. DIRECTORY has the authority.

    It is the only file that this dispatcher or reaper needs: copy it to its machine, readable by its user alone.

    \b
    Examples:
      shep-keys issue keys dispatcher main
      shep-keys issue keys reaper reaper1 --host reaper1 --host 192.0.2.7
    """
    from shepherd.wire import authority, tls

    if hosts and role != "reaper":
        raise UsageError("--host is for a reaper's key file: nobody connects to a dispatcher")
    path, ends = authority.issue(directory, tls.Role(role), name, list(hosts), days, _now())
    click.echo(f"{path}: a {role}'s key, valid until {ends:%Y-%m-%d}")


@command.command()
@click.argument("files", type=click.Path(dir_okay=False, path_type=Path), nargs=-1, required=True)
@common.jsonable
@common.standard
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Show whose key files these are. It shows how long they are valid, too, and their authority.

    A file that is not a key file is reported, and the others are shown, with exit status 2 at the end.

    \b
    Example:
      shep-keys show cf/main.pem
    """
    from shepherd.wire import authority

    now, bad = _now(), 0
    for path in files:
        try:
            key_file = authority.describe(path)
        except UsageError as error:
            bad += 1
            if as_json:
                common.emit_json({"file": str(path), "error": str(error)})
            else:
                common.LOG.warning("%s", error)
            continue
        days_left = (key_file.ends - now).days
        if as_json:
            common.emit_json(
                {
                    "file": str(path),
                    "role": key_file.role,
                    "name": key_file.name,
                    "hosts": list(key_file.hosts),
                    "ends": int(key_file.ends.timestamp()),
                    "days_left": days_left,
                    "authority": key_file.authority,
                }
            )
        else:
            end = f"{key_file.ends:%Y-%m-%d}"
            until = f"valid until {end}, {days_left} days more" if days_left >= 0 else f"ended on {end}"
            hosts_text = f" at {', '.join(key_file.hosts)}" if key_file.hosts else ""  # an authority is met nowhere
            click.echo(
                common.escape(
                    f"{path}: {key_file.role} {key_file.name}{hosts_text}: {until}; authority {key_file.authority or 'unknown'}"
                )
            )
    if bad:
        raise UsageError(f"{bad} of {many(len(files), 'file')} cannot be shown, for the reasons above")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def main() -> None:
    common.run(command)
