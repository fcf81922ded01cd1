"""Whom a client trusts: the authorities that this system trusts (SSL_CERT_FILE names others), and those in its CA file
(ROLECALL_CA_FILE).
"""

from __future__ import annotations

import os
import ssl
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from worker_sdk.config import system_ca_file
from worker_sdk.errors import ConfigError


def tls_towards(url: str, ca_file: Path | None) -> ssl.SSLContext:
    """What an HTTP client of `url` verifies the other side with. ConfigError if the file holds no certificate.

    It is made once per process, because that takes some 20 ms. A client of an http address gets one that trusts nobody, which
    takes no time: without any, httpx makes its own.
    """
    return tls_context(ca_file) if urlsplit(url).scheme == "https" else _empty_context()


def tls_context(ca_file: Path | None, *, any_name: bool = False) -> ssl.SSLContext:
    """`any_name`: the certificate may be for any host, and is to be looked at only."""
    return _context(ca_file, system_ca_file(), any_name)


@lru_cache(maxsize=8)
def _context(ca_file: Path | None, system: Path | None, any_name: bool) -> ssl.SSLContext:
    context = _system_context(system)
    if ca_file is not None:
        _add(context, ca_file)
    context.check_hostname = not any_name
    return context


@lru_cache(maxsize=1)
def _empty_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _system_context(named: Path | None) -> ssl.SSLContext:
    """ConfigError: a file is named that holds no authorities. OpenSSL would pass over it in silence."""
    if named is not None:
        _add(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), named, "SSL_CERT_FILE")
    paths = ssl.get_default_verify_paths()
    if sys.platform == "win32" or paths.cafile or (paths.capath and os.listdir(paths.capath)):
        return ssl.create_default_context()
    import httpx

    # Python finds no store of the system, as with python.org's installer on macOS: httpx brings one.
    return httpx.create_ssl_context(trust_env=False)


def _add(context: ssl.SSLContext, ca_file: Path, setting: str = "ca_file") -> None:
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:
        problem = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
        fix = "Name a PEM file with the certificate of the hub's authority (ca_file or ROLECALL_CA_FILE)."
        if setting != "ca_file":
            fix = "Name a PEM file with all authorities to trust, or unset it."
        raise ConfigError(f"{setting}: {ca_file} {problem}. {fix}") from None
