"""Tables that say where hosts are, read at the dispatcher and sent to its reapers: they come before DNS.

Two forms: the static table has a port of its own for each host (the toy web needs that), a hosts file is as /etc/hosts has it.
The system's own /etc/hosts plays no part: many reapers must find the same.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterator
from pathlib import Path

from shepherd.errors import ConfigError


def read_static(path: Path) -> dict[str, tuple[str, int]]:
    """The static table: lines of `host address port`, `#` begins a comment."""
    table: dict[str, tuple[str, int]] = {}
    for number, words in _lines(path):
        if len(words) != 3 or not is_address(words[1]) or not words[2].isdecimal() or not 0 < int(words[2]) < 65_536:
            raise ConfigError(f"{path}: line {number}: must be `host address port`, not {' '.join(words)!r}")
        host = words[0].lower()
        if host in table:
            raise ConfigError(f"{path}: line {number}: {host} is there twice; keep one of the lines")
        table[host] = (str(ipaddress.ip_address(words[1])), int(words[2]))
    return table


def read_hosts(path: Path) -> dict[str, tuple[str, ...]]:
    """A hosts file: lines of `address host ...`; a host on several lines has several addresses."""
    table: dict[str, tuple[str, ...]] = {}
    for number, words in _lines(path):
        if len(words) < 2 or not is_address(words[0]):
            raise ConfigError(f"{path}: line {number}: must be `address host ...`, not {' '.join(words)!r}")
        address = str(ipaddress.ip_address(words[0]))
        for host in (word.lower().removesuffix(".") for word in words[1:]):
            table[host] = tuple(dict.fromkeys((*table.get(host, ()), address)))
    return table


def needs_dns(host: str, static: Container[str], hosts: Container[str]) -> bool:
    """Whether name servers must be asked where this host is: no table has it, and it is neither this machine nor an address."""
    return not (host in static or host.removesuffix(".") in hosts or is_localhost(host) or is_address(host))


def host_of(site_name: str) -> str:
    """The host of `scheme://host[:port]`, an IPv6 address without its brackets."""
    rest = site_name.partition("://")[2]
    if rest.startswith("["):
        return rest[1 : rest.index("]")]
    return rest.partition(":")[0]


def is_localhost(host: str) -> bool:
    """Whether RFC 6761 reserves the name for this machine, so that it must not be looked up."""
    return host.removesuffix(".") == "localhost" or host.removesuffix(".").endswith(".localhost")


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and words of each line that says something."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if words := line.partition("#")[0].split():
            yield number, words
