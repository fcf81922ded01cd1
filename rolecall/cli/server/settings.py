"""Flags from settings: every setting of the hub is a flag, generated from its description."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hub.settings.model import RETIRED, SPECS, Loaded, flag, load, variable


def setting_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--config and one flag for each setting, in the order of their definition."""
    for key, spec in reversed(SPECS.items()):
        text = f"{spec.about} [env: {variable(key)}; default: {spec.default}]"
        command = click.option(flag(key), key, metavar="VALUE", help=text)(command)
    for key in RETIRED:  # so that the error says what to do
        command = click.option(flag(key), key, hidden=True)(command)
    file = click.option(
        "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
    )
    return file(command)


def load_settings(file: Path | None, values: dict[str, Any]) -> Loaded:
    return load(values, file=file)
