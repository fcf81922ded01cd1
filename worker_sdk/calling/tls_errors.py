"""What a failed TLS connection means: a message, a reason and a hint for each cause that a person can remove."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from worker_sdk.calling.trust import tls_context
from worker_sdk.errors import HubUnreachable

_PATIENCE = 2.0
# OpenSSL's codes of a failed verification, from its x509_vfy.h.
_EARLY, _EXPIRED, _SELF_SIGNED = 9, 10, 18
_WRONG_NAME = {62, 64}
_UNKNOWN_ISSUER = {2, 19, 20, 21}
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
"""What OpenSSL, older and newer, makes of an answer in plain text."""


async def tls_failure(error: Exception, url: str, ca_file: Path | None) -> HubUnreachable | None:
    """Why no TLS connection to `url` came about. None if that is not what `error`, of httpx's connecting, is about."""
    found = _ssl_error(error)
    if isinstance(found, ssl.SSLCertVerificationError):
        return await _refused_certificate(found, url, ca_file)
    if found is None:
        return None
    if found.reason in _NO_TLS:
        hint = "If it serves plain HTTP, write http:// in ROLECALL_HUB."
        return HubUnreachable(f"What listens at {url} does not speak TLS.", reason="NOT_TLS", hint=hint)
    why = found.reason or "no answer"
    hint = "Does that port serve TLS? If not, write http:// in ROLECALL_HUB."
    return HubUnreachable(f"The TLS handshake with {url} failed ({why}).", reason="TLS_FAILED", hint=hint)


async def tls_required(url: str) -> HubUnreachable | None:
    """For a plain HTTP request to `url` that was cut: what to do if the port serves TLS."""
    if not await _is_tls(url):
        return None
    hint = "Write https:// in ROLECALL_HUB."
    return HubUnreachable(f"What listens at {url} speaks TLS, not plain HTTP.", reason="TLS_REQUIRED", hint=hint)


async def _refused_certificate(error: ssl.SSLCertVerificationError, url: str, ca_file: Path | None) -> HubUnreachable:
    code = error.verify_code
    if code == _EXPIRED:
        hint = "Give the hub a new one. If it is new, check this machine's clock."
        return HubUnreachable(f"The certificate of {url} has expired.", reason="CERTIFICATE_EXPIRED", hint=hint)
    if code == _EARLY:
        hint = "Check this machine's clock, then the dates of the certificate."
        return HubUnreachable(f"The certificate of {url} is not valid yet.", reason="CERTIFICATE_NOT_YET_VALID", hint=hint)
    if code in _WRONG_NAME:
        return await _wrong_name(url, ca_file)
    if code == _SELF_SIGNED:
        text = f"The certificate of {url} is signed by itself, and not trusted here."
        hint = _missing(ca_file, "that certificate")
        return HubUnreachable(text, reason="CERTIFICATE_UNTRUSTED", hint=hint)
    if code in _UNKNOWN_ISSUER:
        text = f"The certificate of {url} is signed by an authority that is not trusted here."
        hint = _missing(ca_file, "the certificate of the hub's authority (CA)")
        if ca_file is not None:
            hint += " Or the hub does not send the certificates in between."
        return HubUnreachable(text, reason="CERTIFICATE_UNTRUSTED", hint=hint)
    text = f"The certificate of {url} is not accepted: {error.verify_message}."
    return HubUnreachable(text, reason="CERTIFICATE_INVALID", hint="Give the hub another certificate.")


def _missing(ca_file: Path | None, what: str) -> str:
    if ca_file is None:
        return f"Set ROLECALL_CA_FILE to a PEM file that holds {what}."
    return f"{ca_file} (ROLECALL_CA_FILE) does not hold {what}."


async def _wrong_name(url: str, ca_file: Path | None) -> HubUnreachable:
    host, names = urlsplit(url).hostname, await _names(url, ca_file)
    text = f"The certificate of {url} is for {', '.join(names) or 'other names'}, not for {host}."
    hint = f"Use such a name in ROLECALL_HUB, or give the hub a certificate for {host}."
    return HubUnreachable(text, reason="CERTIFICATE_NAME", hint=hint)


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of `ssl` that httpx and its transport have wrapped."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


async def _names(url: str, ca_file: Path | None) -> list[str]:
    """The names in a certificate that is good but for them. The error does not tell, so it is fetched again."""
    try:
        writer = await _connect(url, tls_context(ca_file, any_name=True))
    except (OSError, TimeoutError):
        return []
    certificate = writer.get_extra_info("peercert") or {}
    writer.transport.abort()
    return [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]


async def _is_tls(url: str) -> bool:
    """Whether a handshake succeeds, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        writer = await _connect(url, context)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


async def _connect(url: str, context: ssl.SSLContext) -> asyncio.StreamWriter:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    async with asyncio.timeout(_PATIENCE):
        _, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    return writer
