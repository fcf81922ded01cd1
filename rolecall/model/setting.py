"""How a setting of the hub is named in the environment, for errors that tell people what to change."""

from __future__ import annotations

PREFIX = "ROLECALL_"


def variable(field: str) -> str:
    return PREFIX + field.upper()
