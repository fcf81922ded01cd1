"""Which of the hub's packages are installed. The base install has none: it is for workers, clients and the command line."""

from __future__ import annotations

from importlib.util import find_spec

HOW = "pip install 'rolecall[hub]'"
# What the extra "hub" adds on every platform, by the names under which it is imported.
PACKAGES = ("aiosqlite", "cryptography", "httptools", "prometheus_client", "pydantic_settings", "quart")


def missing_packages() -> list[str]:
    """The names under which they would be installed; empty where the hub can run."""
    return [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]
