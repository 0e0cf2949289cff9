"""The private authority behind the keys of dispatcher and reapers: made once, and asked for a key file for each of them.

Files are made with mode 0600 and never written over. The authority's own key stays where it was made; nobody needs it to gather.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from shepherd.errors import UsageError
from shepherd.wire.tls import Role

CERTIFICATE: Final = "authority.crt"
KEY: Final = "authority.key"
SKEW: Final = datetime.timedelta(hours=1)  # clocks of two machines may differ
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_USAGE: Final = {Role.DISPATCHER: ExtendedKeyUsageOID.CLIENT_AUTH, Role.REAPER: ExtendedKeyUsageOID.SERVER_AUTH}


def make_authority(directory: Path, days: int, now: datetime.datetime) -> datetime.datetime:
    """A new authority in a directory of its own; when its certificate ends."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shepherd authority")])
    ends = now + datetime.timedelta(days=days)
    certificate = (
        _certificate(name, name, key.public_key(), key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made: {error}") from error
    _write_new({directory / KEY: _private(key), directory / CERTIFICATE: _public(certificate)})
    return certificate.not_valid_after_utc


def issue(
    directory: Path, role: Role, name: str, hosts: list[str], days: int, now: datetime.datetime
) -> tuple[Path, datetime.datetime]:
    """A key file of that name and role beside the authority; its path, and when it ends.

    `hosts` are what dispatchers connect to: names and addresses. It never outlives the authority.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: a name has letters, digits, '.', '_' and '-', at most 63")
    authority, authority_key = _read_authority(directory)
    if authority.not_valid_after_utc <= now:
        raise UsageError(f"{directory / CERTIFICATE}: ended on {authority.not_valid_after_utc}; make another with shep-keys init")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, role), x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]
    )
    ends = min(now + datetime.timedelta(days=days), authority.not_valid_after_utc)
    certificate = (
        _certificate(subject, authority.subject, key.public_key(), authority_key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGE[role]]), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts or [name]]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    path = directory / f"{name}.pem"
    _write_new({path: _private(key) + _public(certificate) + _public(authority)})
    return path, certificate.not_valid_after_utc


@dataclass(frozen=True)
class CertificateSummary:
    role: str
    name: str
    hosts: tuple[str, ...]
    ends: datetime.datetime
    authority: str  # the beginning of its key's identifier; "" = the certificate does not say


def describe(path: Path) -> CertificateSummary:
    """Whom the first certificate of a file is for."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: there is no certificate in it; shep-keys makes such files") from error
    subject = {attribute.oid: str(attribute.value) for attribute in certificate.subject}
    hosts = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    role, name = subject.get(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, "authority"), subject.get(x509.NameOID.COMMON_NAME, "")
    return CertificateSummary(role, name, hosts, certificate.not_valid_after_utc, _authority_of(certificate))


def _authority_of(certificate: x509.Certificate) -> str:
    try:
        identifier = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except x509.ExtensionNotFound:
        return ""
    return (identifier.key_identifier or b"").hex()[:16]


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not all(re.fullmatch(r"[A-Za-z0-9_-]{1,63}", part) for part in host.split(".")):
        raise UsageError(f"{host!r}: neither the name of a host nor an address")
    return x509.DNSName(host)


def _read_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((directory / KEY).read_bytes(), None)
    except FileNotFoundError as error:
        raise UsageError(f"{directory}: there is no authority; make one with shep-keys init {directory}") from error
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{directory}: its authority cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise UsageError(f"{directory}: {KEY} is not the key of {CERTIFICATE}")
    return certificate, key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_new(files: dict[Path, bytes]) -> None:
    """Write files that must not be there yet, for this user alone from their first moment."""
    for path in files:
        if path.is_symlink() or path.exists():
            raise UsageError(f"{path}: is there already, and is not written over; choose another name, or move it away")
    for path, data in files.items():
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(data)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error}") from error
