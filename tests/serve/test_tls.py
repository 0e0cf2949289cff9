"""HTTPS: the same bytes, only with a certificate that the client knows, and never with a key that others can read."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shepherd.client import pull
from shepherd.errors import PeerRefused
from tests.support.programs import call
from tests.support.segment_states import fill
from tests.support.serving import flock, serving, token_of

FILES = 'certificate = "server.crt"\nkey = "server.key"\n'


def certify(cf: Path) -> Path:
    """A certificate of 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    cf.mkdir(exist_ok=True)
    (cf / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (cf / "server.key").write_bytes(private)
    (cf / "server.key").chmod(0o600)
    return cf / "server.crt"


def test_stream_over_tls_is_the_same(tmp_path: Path) -> None:
    fill(tmp_path, flock(300))
    ca = certify(tmp_path / "cf")
    with serving(tmp_path) as served:
        plain = {one.footprint: one.bucket._data for one in pull(served.url, token_of("reader"))}
    (tmp_path / "log").unlink()
    with serving(tmp_path, FILES, ca=ca) as served:
        assert served.url.startswith("https://")
        with pytest.raises(PeerRefused, match="TLS"):
            list(pull(served.url, token_of("reader"), tries=1))
        assert {one.footprint: one.bucket._data for one in pull(served.url, token_of("reader"), ca=ca)} == plain
        with served.as_client("mirror") as server, server.leased("test") as lease:
            state = served.database.closed()
            for file in server.files(lease)[:20]:
                assert b"".join(server.file(lease, file.path).chunks()) == (state.path / file.path).read_bytes()
    (tmp_path / "cf" / "server.key").chmod(0o644)
    refused = call("shep-serve", "--db", str(tmp_path / "db"), "--cf", str(tmp_path / "cf"))
    assert refused.returncode == 2 and "chmod 600" in refused.stderr
