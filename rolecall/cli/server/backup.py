"""`rolecall backup`: copy a hub's data folder, also while the hub runs."""

from __future__ import annotations

from pathlib import Path

import click

from rolecall.cli.output import counted, print_notice, size
from rolecall.cli.server.settings import load_settings


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--data-dir", type=click.Path(path_type=Path), metavar="FOLDER", help="The hub's data folder. [env: ROLECALL_DATA_DIR]"
)
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this, not ./rolecall.toml.")
def backup(folder: Path, data_dir: Path | None, file: Path | None) -> None:
    """Copy a hub's data folder to DIR, which must be new or empty, as it is at one moment. The hub may run.

    The copy has the database, the files, the key of stored secrets and the tokens, with their modes. A hub can be started with
    it: `rolecall serve --data-dir DIR`. Run it as the hub's user.
    """
    from hub.backup import back_up

    settings = load_settings(file, {"data_dir": data_dir}).settings
    made = back_up(settings, folder)
    state = made.state
    files = f"{counted(state.files, 'file')} of {size(state.file_bytes)}"
    print_notice(f"{settings.data_dir} is in {folder}: database of {size(state.size)} (schema {state.schema}), {files}")
    print_notice(f"with {', '.join(made.others)}" if made.others else "without a key or tokens: there are none", "dim")
    if settings.tokens is not None:
        print_notice(f"{settings.tokens} is there as tokens.json: a hub with that setting reads its own file", "dim")
