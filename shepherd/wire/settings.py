"""The part of the dispatcher's configuration that a reaper gets: made there (`to_wire`), read and judged here (`from_wire`).

Files of the operator are read at the dispatcher, and their contents travel: a reaper on another machine has none of them. What is
missing is as by default, and unknown keys are ignored, so that either end may be newer.
"""

from __future__ import annotations

import dataclasses
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shepherd.config import MIN_MEMORY_BYTES, TLS_VERSIONS, Config, FetchLimits
from shepherd.errors import ConfigError, PeerLost
from shepherd.wire import hosts, proxy

COMPRESSIONS: Final = ("lz4", "zstd", "none")


@dataclass(frozen=True)
class Settings:
    limits: FetchLimits
    compress: str = COMPRESSIONS[0]
    authorities: str = field(default="", repr=False)  # certificates in PEM; "" = those that come with Shepherd
    hosts: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    nameservers: tuple[str, ...] = ()
    proxy: proxy.Proxy | None = None


def to_wire(config: Config) -> dict[str, Any]:
    """The settings of a HELLO. What cannot be read is a ConfigError."""
    known_hosts = hosts.read_hosts(config.hosts_path) if config.hosts_path else {}
    return dataclasses.asdict(config.fetch) | {
        "compress": config.store.compress,
        "ca_file": "",  # a path of this machine; what is in the file is sent
        "authorities": _read_authorities(config.ca_path) if config.ca_path else "",
        "hosts": {host: list(addresses) for host, addresses in known_hosts.items()},
        "nameservers": list(config.network.nameservers),
        "proxy": config.network.proxy,
        "proxy_auth": proxy.read_auth(config.proxy_auth_path) if config.proxy_auth_path else "",
    }


def from_wire(settings: dict[str, Any]) -> Settings:
    """The settings of a HELLO that came; one that is not possible is a PeerLost that names it."""
    limits = _limits(settings)
    authorities, url, auth = (_text(settings, name) for name in ("authorities", "proxy", "proxy_auth"))
    nameservers, table = settings.get("nameservers", []), settings.get("hosts", {})
    compress = settings.get("compress", COMPRESSIONS[0])
    if compress not in COMPRESSIONS:
        raise _impossible("compress", compress)
    if not _are_texts(nameservers):
        raise _impossible("nameservers", nameservers)
    if not isinstance(table, dict) or not all(
        _are_texts(places) and all(map(hosts.is_address, places)) for places in table.values()
    ):
        raise PeerLost("the dispatcher's setting hosts is not a table of addresses")
    try:
        check_authorities(authorities)
        proxy_server = proxy.find(url, auth) if url else None
    except ConfigError as error:
        raise PeerLost(f"the dispatcher's settings are not possible here: {error}") from error
    return Settings(
        limits, compress, authorities, {host: tuple(places) for host, places in table.items()}, tuple(nameservers), proxy_server
    )


def check_authorities(pem: str) -> None:
    """Whether these are certificates that can be loaded."""
    if not pem:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"[fetch] ca_file: not a list of certificates in PEM: {error}") from error


def _read_authorities(path: Path) -> str:
    try:
        pem = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not pem.strip():
        raise ConfigError(f"{path}: is empty; name the authorities to trust, or leave ca_file empty")
    check_authorities(pem)
    return pem


def _limits(settings: dict[str, Any]) -> FetchLimits:
    values: dict[str, Any] = {}
    for name, default in dataclasses.asdict(FetchLimits()).items():
        value = settings.get(name, default)
        if type(value) is int and type(default) is float:
            value = float(value)
        if type(value) is not type(default) or (not isinstance(value, str) and value < 0):
            raise _impossible(name, value)
        values[name] = value
    limits = FetchLimits(**values)
    if limits.in_flight < 1 or limits.min_tls not in TLS_VERSIONS or limits.memory_bytes < MIN_MEMORY_BYTES:
        raise PeerLost("the dispatcher's setting in_flight, min_tls or memory_bytes is not possible")
    return limits


def _text(settings: dict[str, Any], name: str) -> str:
    value = settings.get(name, "")
    if not isinstance(value, str):
        raise PeerLost(f"the dispatcher's setting {name} is not a text")
    return value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _impossible(name: str, value: object) -> PeerLost:
    return PeerLost(f"the dispatcher's setting {name} is not possible: {str(value)[:80]!r}")
