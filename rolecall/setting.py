"""What the hub, its clients and the command line know of settings alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

PREFIX = "ROLECALL_"
DEFAULT_HUB = "http://127.0.0.1:8420"


def variable(field: str) -> str:
    """The environment variable of a setting, for error messages."""
    return PREFIX + field.upper()


def platform_folder(env: Mapping[str, str]) -> Path | None:
    """The platform's folder for data; None if this user has no home directory."""
    try:
        if sys.platform == "win32":
            return Path(env.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rolecall"
        if sys.platform == "darwin":
            return Path.home() / "Library/Application Support/rolecall"
        return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "rolecall"
    except RuntimeError:
        return None
