"""What the hub, its clients and the command line know of settings alike."""

from __future__ import annotations

PREFIX = "ROLECALL_"
DEFAULT_HUB = "http://127.0.0.1:8420"


def variable(field: str) -> str:
    """The environment variable of a setting, for error messages."""
    return PREFIX + field.upper()
