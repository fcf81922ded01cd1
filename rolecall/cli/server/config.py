"""`rolecall config`: the hub's settings."""

from __future__ import annotations

from pathlib import Path

import click

from rolecall.cli.output import print_facts, print_json, print_notice, print_table
from rolecall.cli.server.settings import config_option, load_settings


@click.group(short_help="Show or validate the hub's settings.")
def config() -> None:
    """The hub's settings: show their values and origins, or validate them."""


@config.command("show")
@config_option
@click.option("--origin", is_flag=True, help="Also the origin of each value.")
@click.option("--json", "as_json", is_flag=True)
def show_config(file: Path | None, origin: bool, as_json: bool) -> None:
    """Show every setting with the value that `rolecall serve` would use here."""
    rows = load_settings(file, {}).rows()
    if as_json:
        print_json({key: {"value": value, "origin": source} for key, value, source in rows})
    elif origin:
        print_table(("SETTING", "VALUE", "FROM"), rows)
    else:
        print_facts([(key, value) for key, value, _ in rows])


@config.command("validate")
@config_option
def validate_config(file: Path | None) -> None:
    """Check file and environment, and list every problem with its place. Exit code 2 if there is one."""
    loaded = load_settings(file, {})
    print_notice(
        f"ok · {loaded.file or 'no file'} · {len(loaded.origins)} of {len(loaded.rows())} settings are not at their default"
    )
