"""https for the toy web: an authority of its own, certificates for all its names, and TLS without a socket of its own.

The authority is made anew at every start and its certificate written to a file, for clients to trust; it may sign for
names of the toy web alone, so trusting it gives nobody else anything. Private keys never leave the memory of the process, but
for the moment in which OpenSSL insists on reading one from a file.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import tempfile
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toyweb.plan import DOMAIN
from toyweb.zoo.exhibit import ZOO_DOMAIN

# Fixed, so that no clock is needed and a jump of the client's makes no difference.
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
_EXPIRED = datetime(2021, 1, 1, tzinfo=UTC)
_BATCH = 32  # sites whose `www.` names are in one certificate: a wildcard does not reach that deep
_WWW = re.compile(rf"www\.site([0-9]{{1,9}})\.{re.escape(DOMAIN)}")
_PLAIN_NAMES = (DOMAIN, f"*.{DOMAIN}", f"*.{ZOO_DOMAIN}")

_Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


class Authority:
    """Signs for the toy web."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Toy web authority")])
        self._signer = (self._name, self._key)
        self._certificate = self._certify(self._name, self._key, self._signer, ca=True)
        self._named = lru_cache(maxsize=256)(self._context)
        self.context = self._context(-1)
        self.context.sni_callback = self._choose

    def write(self, path: Path) -> None:
        """The certificate that a client must trust."""
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        defect = (name or "").removesuffix(f".{ZOO_DOMAIN}")
        www_name = _WWW.fullmatch(name or "")
        if defect in _DEFECTS:
            connection.context = self._defective(defect)
        elif www_name:
            connection.context = self._named(int(www_name[1]) // _BATCH)

    def _context(self, batch: int) -> ssl.SSLContext:
        first = batch * _BATCH
        names = [f"www.site{number}.{DOMAIN}" for number in range(first, first + _BATCH)] if batch >= 0 else _PLAIN_NAMES
        return self._serving(self._leaf(self._signer, *names))

    def _defective(self, defect: str) -> ssl.SSLContext:
        host = f"{defect}.{ZOO_DOMAIN}"
        if defect == "tls-expired":
            return self._serving(self._leaf(self._signer, host, until=_EXPIRED))
        if defect == "tls-wrong-name":
            return self._serving(self._leaf(self._signer, f"elsewhere.{DOMAIN}"))
        stranger = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Nobody knows me")]),
            ec.generate_private_key(ec.SECP256R1()),
        )
        return self._serving(self._leaf(stranger, host))

    def _leaf(self, signer: _Signer, *names: str, until: datetime = _UNTIL) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        return self._certify(subject, self._leaf_key, signer, names, until)

    def _certify(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        signer: _Signer,
        names: tuple[str, ...] = (),
        until: datetime = _UNTIL,
        *,
        ca: bool = False,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder(signer[0], subject, key.public_key(), x509.random_serial_number(), _SINCE, until)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer[1].public_key()), critical=False)
        )
        if ca:
            builder = builder.add_extension(x509.NameConstraints([x509.DNSName(DOMAIN)], None), critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        return builder.sign(signer[1], hashes.SHA256())

    def _serving(self, certificate: x509.Certificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with tempfile.NamedTemporaryFile(prefix="toyweb-", suffix=".pem") as file:  # mode 0600
            file.write(certificate.public_bytes(serialization.Encoding.PEM) + key)
            file.flush()
            context.load_cert_chain(file.name)
        return context


_DEFECTS = ("tls-expired", "tls-wrong-name", "tls-untrusted")


class Layer:
    """TLS between a connection and its bytes: what came in goes through `receive`, what is to go out through `send`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaken = False

    def receive(self, data: bytes) -> bytes:
        """What the client says in `data`. Raises ssl.SSLError when it makes no sense, or the client refuses us."""
        self._incoming.write(data)
        plain = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            if not self._shaken:
                self._object.do_handshake()
                self._shaken = True
            while piece := self._object.read(65536):
                plain.append(piece)
        return b"".join(plain)

    def send(self, data: bytes) -> bytes:
        """The bytes to send for `data`."""
        self._object.write(data)
        return self._outgoing.read()

    def waiting(self) -> bytes:
        """What TLS itself has to say: after `receive`, also after one that failed."""
        return self._outgoing.read()

    def close(self) -> bytes:
        """The farewell."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()
        return self._outgoing.read()
