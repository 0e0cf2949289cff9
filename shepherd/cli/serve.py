"""shep-serve: readers over HTTP, and the tokens by which they are known."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shepherd.config import LOG_FORMATS, Config
from shepherd.console import common
from shepherd.errors import NothingToDo, UsageError
from shepherd.master import events

if TYPE_CHECKING:
    from shepherd.addresses import Listen
    from shepherd.serve.tokens import Client

LISTEN: Final = "127.0.0.1:8731"
ROLES: Final = ("read", "feedback", "mirror", "admin")
TOKEN_BYTES: Final = 32
OF_THIS_RUN: Final = "this-run"


@click.group(invoke_without_command=True)
@common.database
@common.configured
@click.option("--listen", metavar="HOST:PORT", help=f"Where to serve.  [default: serve.listen, else {LISTEN}]")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Append to FILE, not to stderr.")
@click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), help="Lines of key=value, or of JSON.  [default: master.log_format]"
)
@common.standard
@click.pass_context
def command(
    context: click.Context, db: Path, config: Config, listen: str | None, log: Path | None, log_format: str | None
) -> None:
    """Serve states to readers over HTTP, until SIGTERM or Ctrl-C.

    Readers lease a closed state and pull its documents, or its files, while cycles run; indexers upload feedback. Clients
    identify themselves by tokens, which `shep-serve token add` makes. If there are none, and on loopback, it makes one for
    reading, for this run alone, and prints it. docs/serve.md describes the API. SIGHUP opens the log again.

    \b
    Examples:
      shep-serve
      shep-serve --listen 192.0.2.7:8731 --log /var/log/shep-serve.log
      shep-serve token add indexer --role read --role feedback
    """
    if context.invoked_subcommand is None:
        _serve(db, config, listen or config.serve.listen or LISTEN, log, log_format)


def _serve(db: Path, config: Config, where: str, log: Path | None, log_format: str | None) -> None:
    import asyncio

    from shepherd.addresses import parse_listen
    from shepherd.config.faults import exposure_fault
    from shepherd.serve import server
    from shepherd.serve.service import Service
    from shepherd.serve.tokens import Tokens
    from shepherd.store.state.database import Database

    database = Database(db)
    database.closed()  # what keeps readers from it is reported now, and not to each of them
    listen = parse_listen(where)
    if fault := exposure_fault(config, where):
        raise UsageError(f"--listen {fault}")
    tls = server.certificate(config)
    tokens = Tokens(config.tokens_path)
    own = ""
    if not tokens.clients:
        if not listen.is_loopback:
            raise UsageError(f"{config.tokens_path}: no client is there; make one with shep-serve token add NAME --role read")
        own, client = _make(OF_THIS_RUN, ("read",))
        tokens = Tokens(config.tokens_path, (client,))
    service = Service(database, config, tokens)
    handler = events.structured(log, (log_format or config.master.log_format) == "json")

    def ready(port: int) -> None:
        url = _url(listen, port, bool(tls))
        click.echo(f"{url}#token={own}" if own else url)
        events.log_event("start", db=str(db), url=url, clients=len(tokens.clients))

    def hung_up() -> None:
        try:
            handler.reopen()
        except OSError as error:
            events.log_event("reopen_failed", f"the log cannot be opened again: {error}", logging.WARNING)

    asyncio.run(server.serve(service, listen, tls, ready, hung_up))
    events.log_event("stop")


def _url(listen: Listen, port: int, is_tls: bool) -> str:
    from shepherd.addresses import Listen

    return f"{'https' if is_tls else 'http'}://{Listen(listen.host, port)}/"


def _make(name: str, roles: tuple[str, ...]) -> tuple[str, Client]:
    """A new token, and the client that it is of."""
    import secrets

    from shepherd.serve.tokens import make_client

    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, make_client(name, list(roles), token)


# --- tokens -----------------------------------------------------------------------------------------------------


@command.group("token")
def token_group() -> None:
    """Say who may read, in cf/tokens. A running server follows with the next request."""


def _clients(cf: Path) -> Path:
    """Where they are, in a directory that must be there: who mistypes it must not think that there are none."""
    if not cf.is_dir():
        raise UsageError(f"{cf}: no such directory; name that of shepherd.toml with --cf, or make one with shep-init")
    return cf / "tokens"


@token_group.command("add")
@click.argument("name")
@click.option("--role", "roles", multiple=True, required=True, type=click.Choice(ROLES), help="What it may do; may be repeated.")
@common.database_of_cf
@common.configuration_directory
@common.standard
def add(name: str, roles: tuple[str, ...], cf: Path) -> None:
    """Make a token for the client NAME, and print it, once: only its hash is kept.

    read: lease states and pull documents. feedback: upload weights. mirror: fetch the files of a state, which have the secret key
    of its footprints. admin: all of these, and every client's leases.

    \b
    Example:
      shep-serve token add indexer --role read --role feedback
    """
    from shepherd.serve import tokens

    path = _clients(cf)
    token, client = _make(name, roles)

    def added(clients: list[Client]) -> list[Client]:
        if name in (client.name for client in clients):
            raise UsageError(f"{path}: {name} is there already; shep-serve token remove {name} takes its token away")
        return [*clients, client]

    tokens.change(path, added)
    click.echo(token)


@token_group.command("list")
@common.database_of_cf
@common.configuration_directory
@common.jsonable
@common.standard
def list_command(cf: Path, as_json: bool) -> None:
    """List the clients and their roles.

    \b
    Example:
      shep-serve token list --json
    """
    from shepherd.serve import tokens

    for client in tokens.read(_clients(cf)):
        if as_json:
            common.emit_json({"name": client.name, "roles": sorted(client.roles)})
        else:
            click.echo(f"{client.name} {','.join(sorted(client.roles))}")


@token_group.command("remove")
@click.argument("name")
@common.database_of_cf
@common.configuration_directory
@common.standard
def remove(name: str, cf: Path) -> None:
    """Revoke the token of the client NAME. Exit status 4 if there is no such client.

    \b
    Example:
      shep-serve token remove indexer
    """
    from shepherd.serve import tokens

    path = _clients(cf)

    def removed(clients: list[Client]) -> list[Client]:
        remaining = [client for client in clients if client.name != name]
        if len(remaining) == len(clients):
            raise NothingToDo(f"{path}: no client is called {common.escape(name)}")
        return remaining

    tokens.change(path, removed)


def main() -> None:
    common.run(command)
