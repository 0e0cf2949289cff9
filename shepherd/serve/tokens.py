"""Who may do what: cf/tokens has a line for each client, `NAME ROLES HASH`, and nobody but its owner may read it.

A token is 256 random bits, so a plain SHA-256 of it is as good as a slow hash, and a thief of the file cannot use what he finds.
The file is read again when it has changed: who is removed is out with the next request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from shepherd import secrets
from shepherd.errors import UsageError
from shepherd.store.disk import fsio, locks

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
MAX_BYTES: Final = 1 << 20
TITLE: Final = "# Clients of shep-serve: NAME ROLES SHA256-OF-TOKEN. `shep-serve token add NAME --role ROLE` adds one.\n"


class ClientRole(StrEnum):
    READ = "read"  # lease states, pull documents
    FEEDBACK = "feedback"  # upload weights
    MIRROR = "mirror"  # the files of a state, whose control holds the secret footprint key
    ADMIN = "admin"  # all of it, and other clients' leases


@dataclass(frozen=True)
class Client:
    name: str
    roles: frozenset[ClientRole]
    hash: str

    def may(self, role: ClientRole) -> bool:
        return role in self.roles or ClientRole.ADMIN in self.roles

    @property
    def is_admin(self) -> bool:
        return ClientRole.ADMIN in self.roles


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def make_client(name: str, roles: list[str], token: str) -> Client:
    """UsageError if the name or a role is not valid."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: the name of a client is of at most 64 letters, digits and . _ -")
    unknown = [role for role in roles if role not in set(ClientRole)]
    if unknown or not roles:
        raise UsageError(f"{', '.join(unknown) or 'no role'}: a client has one or more of the roles {', '.join(ClientRole)}")
    return Client(name, frozenset(map(ClientRole, roles)), hash_of(token))


# --- the file ---------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Client]:
    """All clients; none where there is no file. A file that others can read is refused, as is a line that cannot be read."""
    try:
        text = secrets.read(path, "list of clients", MAX_BYTES, "shep-serve token add writes it")
    except UsageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    return parse(text, path)


def parse(text: str, path: Path) -> list[Client]:
    clients: dict[str, Client] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        roles = words[1].split(",") if len(words) == 3 else []
        if not roles or not _NAME.fullmatch(words[0]) or not set(roles) <= set(ClientRole) or not _HASH.fullmatch(words[2]):
            raise UsageError(f"{path}, line {number}: not `NAME ROLES HASH`; shep-serve token add writes such lines")
        if words[0] in clients:
            raise UsageError(f"{path}, line {number}: {words[0]} is there twice")
        clients[words[0]] = Client(words[0], frozenset(map(ClientRole, roles)), words[2])
    return list(clients.values())


def change(path: Path, by: Callable[[list[Client]], list[Client]]) -> None:
    """Replace the clients by what `by` makes of them, one program at a time: one of two would undo the other's change."""
    lock = locks.lock(path.with_name(f".{path.name}.lock"), "shep-serve token", wait=True)
    try:
        write(path, by(read(path)))
    finally:
        lock.release()


def write(path: Path, clients: list[Client]) -> None:
    lines = [f"{client.name} {','.join(sorted(client.roles))} {client.hash}\n" for client in clients]
    fsio.replace_file(path, (TITLE + "".join(lines)).encode(), private=True)


# --- as the server sees it --------------------------------------------------------------------------------------


class Tokens:
    """The clients of a running server: those of the file as it is now, and those that are only of this run."""

    def __init__(self, path: Path, of_this_run: tuple[Client, ...] = ()) -> None:
        self._path, self._own = path, of_this_run
        self._signature_read: tuple[int, ...] | None = None
        self._clients: list[Client] = []
        self._load()

    @property
    def clients(self) -> list[Client]:
        return [*self._own, *self._clients]

    def find(self, token: str) -> Client | None:
        """Whose token this is. Takes as long for one that is nobody's: every hash is compared, each in constant time."""
        self._refresh()
        token_hash, owner = hash_of(token).encode(), None
        for client in self.clients:
            if hmac.compare_digest(token_hash, client.hash.encode()):
                owner = client
        return owner

    def _refresh(self) -> None:
        """If the file cannot be used any more, none of its clients has access."""
        if self._signature() == self._signature_read:
            return
        try:
            self._load()
        except UsageError as error:
            self._signature_read, self._clients = self._signature(), []
            _LOG.error("%s; until then none of its clients is admitted", error)

    def _load(self) -> None:
        self._signature_read = self._signature()
        self._clients = read(self._path)

    def _signature(self) -> tuple[int, ...] | None:
        try:
            file_stat = os.stat(self._path)
        except OSError:
            return None
        return file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino, file_stat.st_size, file_stat.st_mode
