"""The environment variable of a hub's setting, for error messages."""

from __future__ import annotations

PREFIX = "ROLECALL_"


def variable(field: str) -> str:
    return PREFIX + field.upper()
