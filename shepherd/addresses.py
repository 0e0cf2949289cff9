"""Where a reaper is met: `unix:PATH`, `tls:HOST:PORT`, or `fd:NUMBER` if a dispatcher has started it; and where readers are."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from shepherd.errors import UsageError

FORMS: Final = "unix:PATH or tls:HOST:PORT"
LOOPBACK: Final = "127.0.0.1"
NETWORK_BITS: Final = 64  # of an IPv6 address: whoever has one has all that begin so


@dataclass(frozen=True)
class UnixAddress:
    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True)
class TlsAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"tls:{_with_port(self.host, self.port)}"


@dataclass(frozen=True)
class Descriptor:
    number: int

    def __str__(self) -> str:
        return f"fd:{self.number}"


@dataclass(frozen=True)
class Listen:
    """Where readers are served. A name is looked up when the server starts."""

    host: str
    port: int

    def __str__(self) -> str:
        return _with_port(self.host, self.port)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


Address: TypeAlias = UnixAddress | TlsAddress | Descriptor


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(address: str) -> str:
    """Who an address stands for."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((int(parsed), NETWORK_BITS), strict=False)) if not parsed.is_loopback else str(parsed)


def parse_address(text: str) -> Address:
    """`tls:PORT` is that port on loopback: whoever wants to be reached from elsewhere names the address."""
    scheme, _, place = text.partition(":")
    if scheme == "unix" and place:
        return UnixAddress(Path(place))
    if scheme == "fd" and place.isdecimal():
        return Descriptor(int(place))
    host, _, port = place.rpartition(":")
    if scheme != "tls" or not port.isdecimal() or not 0 <= int(port) < 65536 or (place.count(":") and not host):
        raise UsageError(f"{text!r}: write the address of a reaper as {FORMS}")
    return TlsAddress(_host(text, host) or LOOPBACK, int(port))


def parse_listen(text: str) -> Listen:
    """`HOST:PORT`, where an IPv6 address stands in brackets; `PORT` alone is on loopback."""
    host, _, port = text.rpartition(":")
    try:
        if not port.isascii() or not port.isdecimal() or not 0 <= int(port) < 65536 or (":" in text and not host):
            raise ValueError("no port")
        bare = host.removeprefix("[").removesuffix("]")
        if bare != host:
            ipaddress.IPv6Address(bare)
        elif host and not all(part and part.isascii() and part.replace("-", "").isalnum() for part in host.split(".")):
            raise ValueError("no host")
    except ValueError:
        raise UsageError(f"{text!r}: write where to listen as HOST:PORT, as in 127.0.0.1:8731 or [::1]:8731") from None
    return Listen(bare or LOOPBACK, int(port))


def reaper_fault(text: str) -> str:
    """What is wrong with the address of a reaper that a dispatcher is to connect to, or nothing."""
    try:
        if isinstance(parse_address(text), Descriptor):
            return f"{text!r}: only the child of a dispatcher listens like this; write {FORMS}"
    except UsageError as error:
        return str(error)
    return ""


def _host(text: str, host: str) -> str:
    """A name or an address; IPv6 stands in brackets."""
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare or bare != host:
        try:
            if bare == host:
                raise ValueError("an IPv6 address is written in brackets")
            ipaddress.IPv6Address(bare)
        except ValueError as error:
            raise UsageError(f"{text!r}: {error}; write the address of a reaper as {FORMS}") from None
    elif (
        not all(part and part.isascii() and part.replace("-", "").replace("_", "").isalnum() for part in host.split(".")) and host
    ):
        raise UsageError(f"{text!r}: {host!r} is not a host; write the address of a reaper as {FORMS}")
    return bare
