"""TLS: the certificate that the server shows. It is read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypercorn.config import Config

from rolecall.errors import ConfigError

log = logging.getLogger(__name__)

HTTP_1, HTTP_2 = "http/1.1", "h2"
_RELOAD_INTERVAL = 5.0
_FIRST_IN_FILE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}


class _Loaded(NamedTuple):
    """What was made of the files' content, and their state at that time."""

    context: ssl.SSLContext
    pem: str
    suites: dict[str, int]
    stamps: Sequence[tuple[int, int, int]]


class Certificate:
    """A certificate with its key, as PEM files. `protocols`: what ALPN offers, the best first. ConfigError: a file cannot be
    read, or the two do not belong together.
    """

    def __init__(self, cert: Path, key: Path, protocols: Sequence[str]) -> None:
        self._cert, self._key = cert, key
        self._protocols = list(protocols)
        try:
            self._loaded = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError([self._problem(error)]) from error

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._loaded.context

    async def keep_current(self, interval: float = _RELOAD_INTERVAL) -> None:
        """Read the files again when they have changed. If they cannot be used, the server goes on with what it has."""
        failed: Sequence[tuple[int, int, int]] = ()
        while True:
            await asyncio.sleep(interval)
            stamps: Sequence[tuple[int, int, int]] = ()
            try:
                stamps = await asyncio.to_thread(self._stamps)
                if stamps in (self._loaded.stamps, failed):
                    continue
                self._loaded = await asyncio.to_thread(self._load)
                log.info("certificate loaded", extra={"event": "certificate_loaded", "file": str(self._cert)})
            except (OSError, ValueError) as error:
                if stamps != failed or not stamps:
                    why = self._problem(error)
                    log.warning("the certificate stays as it was", extra={"event": "certificate_kept", "why": why})
                failed = stamps

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
        return _Loaded(context, first[0], suites, stamps)

    def _stamps(self) -> Sequence[tuple[int, int, int]]:
        found = [path.stat() for path in (self._cert, self._key)]
        return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in found]

    def _problem(self, error: Exception) -> str:
        """OpenSSL's text names no file, and is not for people."""
        for name, path in (("tls_cert", self._cert), ("tls_key", self._key)):
            try:
                path.read_bytes()
            except OSError as unread:
                return f"{name}: {path} cannot be read: {unread.strerror}."
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"tls_key: {self._key} is not the key of the certificate {self._cert}."
        return f"tls_cert: {self._cert} and {self._key} are no certificate and key in PEM. The key must not be encrypted."
