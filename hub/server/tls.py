"""TLS: the certificate that the server shows. It is read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hypercorn.config import Config

from rolecall.errors import ConfigError

log = logging.getLogger(__name__)

HTTP_1, HTTP_2 = "http/1.1", "h2"
_RELOAD_INTERVAL = 5.0
_FIRST_IN_FILE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
_DAY = 86_400.0
_WARN_BEFORE = 14 * _DAY
_VERSION_TAG, _UTC_TIME = 0xA0, 0x17


class Validity(NamedTuple):
    """From when and until when a certificate is valid: times of the wall clock."""

    not_before: float
    not_after: float

    def fault(self, now: float) -> str:
        """Why clients refuse it; empty: they do not."""
        if now > self.not_after:
            return "it has ended"
        return "it is not valid yet" if now < self.not_before else ""


class _Loaded(NamedTuple):
    """What was made of the files' content, and their state at that time."""

    context: ssl.SSLContext
    validity: Validity
    pem: str
    suites: dict[str, int]
    stamps: Sequence[tuple[int, int, int]]


class Certificate:
    """A certificate with its key, as PEM files. `protocols`: what ALPN offers, the best first. ConfigError: a file cannot be
    read, or the two do not belong together. One that has ended is taken, with a warning: there is no other.
    """

    def __init__(self, cert: Path, key: Path, protocols: Sequence[str], *, wall: Callable[[], float] = time.time) -> None:
        self._cert, self._key = cert, key
        self._protocols = list(protocols)
        self._wall = wall
        self._warned_at = float("-inf")
        try:
            self._loaded = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError([self._problem(error)]) from error
        self._warn()

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._loaded.context

    @property
    def validity(self) -> Validity:
        return self._loaded.validity

    async def keep_current(self, interval: float = _RELOAD_INTERVAL, loaded: Callable[[], None] = lambda: None) -> None:
        """Read the files again when they have changed, and call `loaded` then. If they cannot be used, the server goes on with
        what it has.
        """
        failed: Sequence[tuple[int, int, int]] = ()
        refused: Validity | None = None
        while True:
            await asyncio.sleep(interval)
            self._warn()
            stamps: Sequence[tuple[int, int, int]] = ()
            try:
                stamps = await asyncio.to_thread(self._stamps)
                if stamps == self._loaded.stamps or (stamps == failed and (refused is None or self._refusal(refused))):
                    continue
                new, refused = await asyncio.to_thread(self._load), None
                if why := self._refusal(new.validity):
                    refused = new.validity
                    raise _Refused(f"tls_cert: {self._cert} is of no use: {why}.")
                self._use(new)
                loaded()
            except (OSError, ValueError) as error:
                if stamps != failed or not stamps:
                    facts = {
                        "event": "certificate_kept",
                        "why": self._problem(error),
                        "not_after": _day(self.validity.not_after),
                    }
                    log.warning("the certificate stays as it was", extra=facts)
                failed = stamps

    def _refusal(self, new: Validity) -> str:
        """Why the certificate stays in use, and one that is valid at another time does not replace it. Empty: it does."""
        now = self._wall()
        fault = new.fault(now)
        return f"{fault} ({_day(new.not_before)} to {_day(new.not_after)})" if fault and not self.validity.fault(now) else ""

    def _use(self, new: _Loaded) -> None:
        self._loaded = new
        facts = {"event": "certificate_loaded", "file": str(self._cert), "not_after": _day(new.validity.not_after)}
        log.info("certificate loaded", extra=facts)
        self._warned_at = float("-inf")
        self._warn()

    def _warn(self) -> None:
        """Once a day, from two weeks before its end."""
        now = self._wall()
        fault, left = self.validity.fault(now), self.validity.not_after - now
        if now - self._warned_at < _DAY or not (fault or left < _WARN_BEFORE):
            return
        self._warned_at = now
        text = f"clients refuse the certificate: {fault}" if fault else "the certificate ends soon"
        facts = {"event": "certificate_ends", "file": str(self._cert), "not_after": _day(self.validity.not_after)}
        log.warning(text, extra={**facts, "days_left": round(left / _DAY, 1)})

    def extension(self, connection: ssl.SSLObject) -> dict[str, Any]:
        """The `tls` extension of the ASGI scope. The server asks for no client certificate."""
        cipher = connection.cipher()
        return {
            "server_cert": self._loaded.pem,
            "client_cert_chain": [],
            "client_cert_name": None,
            "client_cert_error": None,
            "tls_version": _VERSIONS.get(connection.version() or ""),
            "cipher_suite": self._loaded.suites.get(cipher[0]) if cipher is not None else None,
        }

    def _load(self) -> _Loaded:
        stamps = self._stamps()
        config = Config()
        config.certfile, config.keyfile = str(self._cert), str(self._key)
        config.keyfile_password = ""  # otherwise OpenSSL asks for it on the terminal, and waits
        config.alpn_protocols = self._protocols
        context = config.create_ssl_context()
        first = _FIRST_IN_FILE.search(self._cert.read_text("ascii", "replace"))
        if context is None or first is None:
            raise ValueError("no certificate")
        suites = {cipher["name"]: int(cipher["id"]) & 0xFFFF for cipher in context.get_ciphers()}
        return _Loaded(context, validity_of(first[0]), first[0], suites, stamps)

    def _stamps(self) -> Sequence[tuple[int, int, int]]:
        found = [path.stat() for path in (self._cert, self._key)]
        return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in found]

    def _problem(self, error: Exception) -> str:
        """OpenSSL's text names no file, and is not for people."""
        if isinstance(error, _Refused):
            return str(error)
        for name, path in (("tls_cert", self._cert), ("tls_key", self._key)):
            try:
                path.read_bytes()
            except OSError as unread:
                return f"{name}: {path} cannot be read: {unread.strerror}."
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"tls_key: {self._key} is not the key of the certificate {self._cert}."
        return f"tls_cert: {self._cert} and {self._key} are no certificate and key in PEM. The key must not be encrypted."


class _Refused(ValueError):
    """The certificate can be read, and clients would refuse it."""


def validity_of(pem: str) -> Validity:
    """ValueError: that is no certificate. By hand: `cryptography` takes 10 MB, `ssl` tells it of authorities alone."""
    (certificate,) = _values(ssl.PEM_cert_to_DER_cert(pem))
    (signed, *_) = _values(certificate[1])
    members = [value for value in _values(signed[1]) if value[0] != _VERSION_TAG]
    begins, ended = _values(members[3][1])  # behind the serial number, the algorithm and the issuer
    return Validity(_time(*begins), _time(*ended))


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each value in DER."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            length, at = int.from_bytes(data[at : at + (length & 0x7F)]), at + (length & 0x7F)
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, text: bytes) -> float:
    """Of a year in two digits those from 50 on are of the last century (RFC 5280)."""
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
