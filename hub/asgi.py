"""The whole hub as an application for any ASGI server: `hypercorn hub.asgi:app`, `uvicorn hub.asgi:app`.

Settings come from the environment and rolecall.toml. docs/howto/asgi-servers.md says what such a server must be told.
"""

from __future__ import annotations

import sys

from quart import Quart

from hub.app import create_app
from hub.core.shares.descriptors import Descriptors
from hub.descriptors import raise_limit
from hub.settings.model import load
from rolecall import log
from rolecall.errors import ConfigError


def _made() -> Quart:
    """A server that loads this module prints why there is no hub, and ends."""
    try:
        loaded = load()
        settings = loaded.settings
        log.setup(settings.log_level, settings.log_format)
        return create_app(settings, agents=loaded.agents, descriptors=Descriptors(raise_limit()))
    except ConfigError as error:
        sys.exit(error.message)


app = _made()
