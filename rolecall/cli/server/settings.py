"""Flags from settings: every setting of the hub is a flag, generated from its description."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from hub.settings.model import SPECS, Loaded, default_text, flag, load, variable
from rolecall.cli.output import CommandError

_HUB_MODULES = ("quart", "aiosqlite", "httptools", "prometheus_client")


def setting_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--config and one flag for each setting, in the order of their definition."""
    for key, spec in reversed(SPECS.items()):
        default = f"default: {default_text(key)}{' ' + spec.unit if spec.unit and not spec.default_text else ''}"
        text = f"{spec.about} [env: {variable(key)}; {default}]"
        command = click.option(flag(key), key, metavar="VALUE", help=text)(command)
    file = click.option(
        "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
    )
    return file(command)


def load_settings(file: Path | None, values: dict[str, Any]) -> Loaded:
    missing = [name for name in _HUB_MODULES if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this installation has no hub ({', '.join(missing)})", "NOT_INSTALLED", 2, "needs: pip install 'rolecall[hub]'"
        )
    return load(values, file=file)
