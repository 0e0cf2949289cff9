"""TLS between dispatcher and reaper: version 1.3, and each end shows a certificate of the same private authority.

A key file (made by shep-keys) has everything that one end needs: its private key, its certificate, and the authority's. The
certificate names its owner and its role. A role stands there twice: by the extended key usage, which OpenSSL judges, and in the
subject, which we do; so a reaper's certificate cannot pose as a dispatcher's, nor the other way round.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from shepherd import secrets
from shepherd.addresses import TlsAddress
from shepherd.errors import PeerLost, PeerRefused, UsageError
from shepherd.wire import messages as wire

CONNECT_S: Final = 15.0
SOON: Final = datetime.timedelta(days=30)  # a certificate that ends within this is worth a warning
MAX_KEY_FILE: Final = 1 << 20
UNTRUSTED: Final = frozenset({7, 18, 19, 20, 21, 30})  # how OpenSSL says that no authority of ours has signed it
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?")


class Role(StrEnum):
    DISPATCHER = "dispatcher"
    REAPER = "reaper"


@dataclass(frozen=True)
class Keys:
    """One end's key file, read and judged."""

    path: Path
    role: Role
    name: str
    ends: datetime.datetime
    authority: str  # its certificate, in PEM

    def server(self) -> ssl.SSLContext:
        """For a reaper, to serve dispatchers alone."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client(self) -> ssl.SSLContext:
        """For a dispatcher, to connect to reapers by the names in their certificates."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # every session is judged anew
        try:
            context.load_verify_locations(cadata=self.authority)
            context.load_cert_chain(self.path)
        except (ssl.SSLError, OSError) as error:
            raise UsageError(f"{self.path}: cannot be used: {error}; make another with shep-keys issue") from error
        return context


def read_keys(path: Path, role: Role, now: datetime.datetime) -> Keys:
    """The key file of one end. One that others can read, that is for the other role or out of date is a UsageError."""
    from cryptography import x509

    text = secrets.read(path, "private key", MAX_KEY_FILE, "shep-keys issue makes a key file")
    certificates = _CERTIFICATE.findall(text)
    if len(certificates) < 2 or "PRIVATE KEY-----" not in text:
        raise UsageError(f"{path}: not a key file, which has a private key and two certificates; shep-keys issue makes one")
    try:
        own = x509.load_pem_x509_certificate(certificates[0].encode())
    except ValueError as error:
        raise UsageError(f"{path}: its certificate cannot be read: {error}") from error
    subject = {attribute.oid: str(attribute.value) for attribute in own.subject}
    certified_role, name = subject.get(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, ""), subject.get(x509.NameOID.COMMON_NAME, "")
    if certified_role != role:
        raise UsageError(f"{path}: the key of a {certified_role or 'stranger'}, not of a {role}; make one with shep-keys issue")
    ends = own.not_valid_after_utc
    if not own.not_valid_before_utc <= now < ends:
        raise UsageError(f"{path}: valid from {own.not_valid_before_utc} to {ends}; make another with shep-keys issue")
    return Keys(path, role, name, ends, certificates[-1])


def warning(keys: Keys, now: datetime.datetime) -> str:
    """What is to be said about the end of a certificate, or ""."""
    if keys.ends - now > SOON:
        return ""
    return f"{keys.path}: its certificate ends on {keys.ends:%Y-%m-%d}; make another with shep-keys issue"


def peer_name(certificate: dict[str, Any], role: Role) -> str:
    """The name in the certificate of the other end; PeerRefused if that is not for the role."""
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    if subject.get("organizationalUnitName") != role:
        raise PeerRefused(f"the certificate of {subject.get('commonName', '')!r} is not for a {role}")
    return str(subject.get("commonName", ""))


def _disagreement(error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return str(error)
    if error.verify_code in UNTRUSTED:
        return "its key and ours are of different authorities; shep-keys show FILE prints which"
    return f"its certificate does not hold: {error.verify_message}"


async def connect(address: TlsAddress, context: ssl.SSLContext) -> wire.Peer:
    """A connection to a reaper. PeerRefused if it is not who it should be, PeerLost if it cannot be reached."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            peer = await wire.peer_on(
                lambda protocol: loop.create_connection(
                    protocol, address.host, address.port, ssl=context, ssl_handshake_timeout=wire.HANDSHAKE_S
                )
            )
    except TimeoutError:
        raise PeerLost(f"no reaper answers within {CONNECT_S:.0f} s") from None
    except ssl.SSLError as error:
        raise PeerRefused(f"no agreement on TLS: {_disagreement(error)}") from error
    except OSError as error:
        raise PeerLost(f"no reaper answers: {error.strerror or error}; is reapd running there?") from error
    try:
        peer_name(peer.certificate, Role.REAPER)
    except PeerRefused:
        await peer.close()
        raise
    return peer
