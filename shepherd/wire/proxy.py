"""The proxy that every fetch goes through, where one is configured.

The target is resolved and judged here all the same, and the proxy is asked for that address, not for a name: an HTTP proxy by
CONNECT (so it must allow that for the ports of the web), a SOCKS 5 proxy by its own request. The socket is checked against the
proxy's address, which the operator has named and the guard is not asked about. Invariant: name and password are shown nowhere.
"""

from __future__ import annotations

import ipaddress
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

from shepherd.config import proxy_fault
from shepherd.errors import ConfigError


@dataclass(frozen=True)
class Proxy:
    scheme: str  # http or socks5
    address: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def find(url: str, auth: str = "") -> Proxy:
    """The proxy of this URL; a name is looked up as the system does it. `auth` is `user:password`."""
    if fault := proxy_fault(url) or ("" if url else "must not be empty"):
        raise ConfigError(f"[network] proxy: {fault}")
    scheme, _, place = url.rstrip("/").partition("://")
    host, _, port = place.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"[network] proxy: {place} cannot be found: {error}") from error
    user, _, password = auth.partition(":")
    return Proxy(scheme, str(addresses[0][4][0]), int(port), user, password)


def read_auth(path: Path) -> str:
    """`user:password`, from a file that only its owner may read."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path}: holds a password and others may read it; chmod 600 it")
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not text.isprintable() or not text.partition(":")[2]:
        raise ConfigError(f"{path}: must be one line, user:password")
    return text
