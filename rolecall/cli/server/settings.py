"""Flags from settings: every setting of the hub is a flag, generated from its description."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError

if TYPE_CHECKING:
    from hub.settings.model import Loaded

_HUB_MODULES = ("quart", "aiosqlite", "httptools", "prometheus_client", "pydantic_settings")

config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml."
)


class SettingsCommand(click.Command):
    """A command with one flag for each setting, in the order of their definition.

    It makes them when they are needed, so that the help and the completion of other commands do not import the hub.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if len(self.params) == 1:  # --config alone
            self.params += _flags()
        return super().get_params(ctx)


def _flags() -> list[click.Option]:
    _check_installed()
    from hub.settings.model import SPECS, flag, variable

    return [
        click.Option([flag(key), key], metavar="VALUE", help=f"{spec.about} [env: {variable(key)}; default: {spec.default}]")
        for key, spec in SPECS.items()
    ]


def load_settings(file: Path | None, values: dict[str, Any]) -> Loaded:
    _check_installed()
    from hub.settings.model import load

    return load(values, file=file)


def _check_installed() -> None:
    missing = [name for name in _HUB_MODULES if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this installation has no hub ({', '.join(missing)})", "NOT_INSTALLED", 2, "needs: pip install 'rolecall[hub]'"
        )
