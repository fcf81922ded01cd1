"""Certificates for tests: an authority of their own, and certificates that are valid, expired, early or for another name."""

from __future__ import annotations

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
_LOCAL = ("127.0.0.1", "localhost")


class Certificate(NamedTuple):
    """The two files that a server is given, in PEM."""

    cert: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """For a server of the test's own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


class _Issuer(NamedTuple):
    name: str
    key: ec.EllipticCurvePrivateKey


class Authority:
    """A certificate authority. `file` holds its own certificate in PEM: whoever trusts it trusts all that it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._issuer = _Issuer(name, _new_key())
        self._signed = 0
        self.file = folder / f"{name}.pem"
        now = datetime.datetime.now(datetime.UTC)
        own = (
            _builder(name, self._issuer, self._issuer.key, (now - _DAY, now + 365 * _DAY))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(of_an_authority=True), critical=True)
            .sign(self._issuer.key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(own.public_bytes(Encoding.PEM))

    def certificate(
        self, *names: str, days: float = 30, expired: bool = False, early: bool = False, client: bool = False
    ) -> Certificate:
        """A certificate for these host names and addresses; without any, for 127.0.0.1 and localhost.

        It is valid for `days` from now. With `expired` it ended yesterday, with `early` it begins tomorrow. With `client` it
        identifies a client instead of a server.
        """
        self._signed += 1
        made = f"{self._issuer.name}-{self._signed}"
        return _leaf(self._folder / made, names or _LOCAL, self._issuer, _span(days, expired, early), client=client)


def new_authority(folder: Path, name: str = "authority") -> Authority:
    """An authority that writes its files to `folder`. Two of them in one folder need two names."""
    return Authority(folder, name)


def self_signed(folder: Path, *names: str, days: float = 30) -> Certificate:
    """A server's certificate that no authority has signed. Its `cert` is then what a client must trust."""
    folder.mkdir(parents=True, exist_ok=True)
    return _leaf(folder / "self-signed", names or _LOCAL, None, _span(days, expired=False, early=False), client=False)


_Span = tuple[datetime.datetime, datetime.datetime]


def _leaf(path: Path, names: tuple[str, ...], issuer: _Issuer | None, span: _Span, *, client: bool) -> Certificate:
    """Without an issuer it signs itself."""
    key = _new_key()
    issuer = issuer or _Issuer(names[0], key)
    extended_usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    signed = (
        _builder(names[0], issuer, key, span)
        .add_extension(x509.SubjectAlternativeName([_host_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(of_an_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([extended_usage]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    made = Certificate(path.with_name(f"{path.name}.cert.pem"), path.with_name(f"{path.name}.key.pem"))
    made.cert.write_bytes(signed.public_bytes(Encoding.PEM))
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    made.key.chmod(0o600)
    return made


def _builder(subject: str, issuer: _Issuer, key: ec.EllipticCurvePrivateKey, span: _Span) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(_common_name(issuer.name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, of_an_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_an_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=of_an_authority,
        crl_sign=of_an_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _span(days: float, expired: bool, early: bool) -> _Span:
    now = datetime.datetime.now(datetime.UTC)
    if expired:
        return now - 30 * _DAY, now - _DAY
    return now + _DAY if early else now - _DAY, now + days * _DAY


def _host_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())
