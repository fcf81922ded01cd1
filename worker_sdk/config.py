"""The only module that reads the environment. Precedence: argument, environment, default."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from rolecall.log import masked
from rolecall.model.ids import is_loopback
from rolecall.setting import DEFAULT_HUB
from worker_sdk.errors import ConfigError

_TOKEN = re.compile("[!-~]+")
"""What can stand in a header."""


class TokenFile:
    """A token in a file, which is read again when the file changes. While it is empty or cannot be read, the token before
    stays. ConfigError if it cannot be read at first. `setting`: what names the file.
    """

    def __init__(self, path: str | os.PathLike[str], setting: str = "ROLECALL_TOKEN_FILE") -> None:
        self._path = Path(path)
        self._read_at: tuple[int, ...] = ()
        self._token = ""
        if not str(self):
            raise ConfigError(f"{setting}: {path} cannot be read as UTF-8 text with a token in it.")

    def __str__(self) -> str:
        """The token as it is now."""
        try:
            found = self._path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._read_at:
                found_token = self._path.read_text(encoding="utf-8").strip()
                self._token = found_token if _TOKEN.fullmatch(found_token) else self._token
                self._read_at = mark
        except (OSError, UnicodeDecodeError):
            pass  # it is being replaced
        return self._token

    def read(self) -> str:
        """The same, also if the file looks unchanged."""
        self._read_at = ()
        return str(self)

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"


Token: TypeAlias = str | TokenFile


class ServerTls(NamedTuple):
    """A server's certificate, with those that sign it behind it, and its key, as PEM files."""

    cert: Path
    key: Path


class HubAddress(NamedTuple):
    """A hub's base URL, the token that is sent to it, and a file of authorities to trust beside the system's."""

    url: str
    token: Token | None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    hub: str = DEFAULT_HUB
    token: Token | None = None
    ca_file: Path | None = None
    instance: str | None = None
    advertise_url: str | None = None
    agent_name: str | None = None
    agent_description: str | None = None
    port: int | None = None


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    env = os.environ if environment is None else environment
    hub, token, ca_file = hub_address(environment=env)
    return Settings(
        hub=hub,
        token=token,
        ca_file=ca_file,
        instance=env.get("ROLECALL_INSTANCE") or None,
        advertise_url=env.get("ROLECALL_ADVERTISE_URL") or env.get("A2A_AGENT_URL") or None,
        agent_name=env.get("A2A_AGENT_NAME") or None,
        agent_description=env.get("A2A_AGENT_DESCRIPTION") or None,
        port=_port(env.get("PORT")),
    )


def server_tls(
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> ServerTls | None:
    """Values that are not given come from the environment. None: there is neither. ConfigError: only one is there."""
    env = os.environ if environment is None else environment
    cert, key = cert or env.get("ROLECALL_WORKER_TLS_CERT"), key or env.get("ROLECALL_WORKER_TLS_KEY")
    if cert and key:
        return ServerTls(Path(cert), Path(key))
    if cert or key:
        missing = (
            "tls_key (--tls-key or ROLECALL_WORKER_TLS_KEY)" if cert else "tls_cert (--tls-cert or ROLECALL_WORKER_TLS_CERT)"
        )
        raise ConfigError(f"{missing} is missing: TLS needs a certificate and its key.")
    return None


def hub_address(
    hub: str | None = None,
    token: Token | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> HubAddress:
    """Values that are not given come from the environment."""
    env = os.environ if environment is None else environment
    url = hub_url(hub or env.get("ROLECALL_HUB") or env.get("A2A_SERVER_URL") or _hub_here(env))
    trusted = ca_file or env.get("ROLECALL_CA_FILE")
    chosen = token or _token(env)
    return HubAddress(url, _checked(chosen) if isinstance(chosen, str) else chosen, Path(trusted) if trusted else None)


def _hub_here(env: Mapping[str, str]) -> str:
    """The hub that a command with the same environment would start on this machine. Where it would take any free port, nobody
    can know which: the usual one. ConfigError.
    """
    port = env.get("ROLECALL_PORT")
    if not port:
        return DEFAULT_HUB
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigError(f"port: must be a whole number from 0 to 65535, not {masked(port)!r} (ROLECALL_PORT)")
    return f"http://127.0.0.1:{int(port)}" if int(port) else DEFAULT_HUB


def hub_url(text: str) -> str:
    """A hub's base URL, without a trailing slash. A host without a scheme is called by http on this machine, and by https
    elsewhere: a token is not sent in the clear unless somebody asks for it. ConfigError if it is none.
    """
    try:
        url = with_scheme(text, port=urlsplit(DEFAULT_HUB).port)
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or any(character.isspace() for character in text):
        problem = f"must be an http or https URL such as {DEFAULT_HUB}, not {masked(text)!r}"
        raise ConfigError(f"hub: {problem} (--hub or ROLECALL_HUB)")
    if parts.username is not None:
        raise ConfigError("hub: must not hold a user or password: use ROLECALL_TOKEN (--hub or ROLECALL_HUB)")
    return url.rstrip("/")


def with_scheme(text: str, *, port: int | None = None) -> str:
    """A URL that lacks its scheme: http on this machine, where it also gets that port if it has none, and https elsewhere.
    What is no host stays as it is. ValueError.
    """
    if "://" in text:
        return text
    parts = urlsplit(f"//{text}")
    host = parts.hostname or ""
    if is_here(host):
        return f"http://{text}" if port is None or parts.port is not None or parts.path else f"http://{text}:{port}"
    return f"https://{text}" if parts.port is not None or "." in host else text


def is_here(host: str) -> bool:
    """Whether it is a name or an address of this machine alone."""
    return is_loopback(host) or host.endswith(".localhost")


def default_instance() -> str:
    """The host's name and six random digits: so two processes on one host are two instances."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.")[:60]
    return f"{host or 'worker'}:{secrets.token_hex(3)}"


def no_proxy_entries(environment: Mapping[str, str] | None = None) -> list[str]:
    """What is reached without a proxy."""
    env = os.environ if environment is None else environment
    return [entry.strip() for entry in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")]


def system_ca_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """The file that is to hold the authorities that this system trusts, if one is named. OpenSSL reads the same variable."""
    path = (os.environ if environment is None else environment).get("SSL_CERT_FILE")
    return Path(path) if path else None


def _token(env: Mapping[str, str]) -> Token | None:
    if token := env.get("ROLECALL_TOKEN", "").strip():
        return token
    path = env.get("ROLECALL_TOKEN_FILE")
    return TokenFile(path) if path else None


def _checked(token: str) -> str | None:
    """Without white space around it, such as the end of a line of Windows. None: nothing is left. ConfigError: it could not be
    sent.
    """
    text = token.strip()
    if text and not _TOKEN.fullmatch(text):
        raise ConfigError("token: must be visible ASCII characters without a space between them (--token or ROLECALL_TOKEN)")
    return text or None


def _port(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdigit() or int(text) > 65535:
        raise ConfigError(f"PORT is {text!r}; it must be a number up to 65535.")
    return int(text)
