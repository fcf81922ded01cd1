"""Where the command line finds the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from hub import config_values as read
from hub.config_sources import ConfigError, secret

DEFAULT_HUB = "http://127.0.0.1:8420"


class Connection(NamedTuple):
    """Where the command line finds the hub, and what it shows there."""

    hub: str
    token: str | None


def connection(hub: str | None = None, token: str | None = None, *, env: Mapping[str, str] | None = None) -> Connection:
    env = os.environ if env is None else env
    problems: list[str] = []
    chosen = hub or env.get("ROLECALL_HUB") or env.get("A2A_SERVER_URL") or DEFAULT_HUB
    token = token or env.get("ROLECALL_TOKEN") or None
    if token is None and env.get("ROLECALL_TOKEN_FILE"):
        token = secret("ROLECALL_TOKEN_FILE", env["ROLECALL_TOKEN_FILE"], problems)
    try:
        chosen = read.url(chosen)
    except ValueError as error:
        problems.append(f"hub: {error} (--hub or ROLECALL_HUB)")
    if problems:
        raise ConfigError(problems)
    return Connection(chosen, token)
