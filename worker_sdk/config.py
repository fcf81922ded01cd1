"""The only module that reads the environment. Precedence: argument, environment, default."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rolecall.log import masked
from rolecall.setting import DEFAULT_HUB
from worker_sdk.errors import ConfigError


class HubAddress(NamedTuple):
    """A hub's base URL, the token that is sent to it, and a file of authorities to trust beside the system's."""

    url: str
    token: str | None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    hub: str = DEFAULT_HUB
    token: str | None = None
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


def hub_address(
    hub: str | None = None,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> HubAddress:
    """Values that are not given come from the environment."""
    env = os.environ if environment is None else environment
    url = hub_url(hub or env.get("ROLECALL_HUB") or env.get("A2A_SERVER_URL") or DEFAULT_HUB)
    trusted = ca_file or env.get("ROLECALL_CA_FILE")
    return HubAddress(url, token or _token(env), Path(trusted) if trusted else None)


def hub_url(text: str) -> str:
    """A hub's base URL, without a trailing slash. ConfigError if it is not one."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or any(character.isspace() for character in text):
        problem = f"must be an http or https URL such as {DEFAULT_HUB}, not {masked(text)!r}"
        raise ConfigError(f"hub: {problem} (--hub or ROLECALL_HUB)")
    if parts.username is not None:
        raise ConfigError("hub: must not hold a user or password: use ROLECALL_TOKEN (--hub or ROLECALL_HUB)")
    return text.rstrip("/")


def default_instance() -> str:
    """The host's name and six random digits: so two processes on one host are two instances."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.")[:60]
    return f"{host or 'worker'}:{secrets.token_hex(3)}"


def _token(env: Mapping[str, str]) -> str | None:
    if env.get("ROLECALL_TOKEN"):
        return env["ROLECALL_TOKEN"]
    path = env.get("ROLECALL_TOKEN_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"ROLECALL_TOKEN_FILE: {path} cannot be read as UTF-8 text.") from error


def _port(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdigit() or int(text) > 65535:
        raise ConfigError(f"PORT is {text!r}; it must be a number up to 65535.")
    return int(text)
