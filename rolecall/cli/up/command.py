"""`rolecall up`: the hub and the workers of a file, in one console."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import hub_options

if TYPE_CHECKING:
    from rolecall.cli.console.hub_choice import ChosenHub
    from rolecall.cli.console.programs import Program
    from rolecall.cli.up.agents_file import AgentsFile

_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def _console_name(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not _NAME.fullmatch(name):
        raise click.BadParameter("at most 32 letters, digits, dots, dashes.", context, option)
    return name


@click.command()
@click.argument("path", metavar="[FILE]", type=click.Path(path_type=Path), default="agents.toml")
@click.option("--check", is_flag=True, help="Check the file, its workers, the hub and the ports; start nothing.")
@click.option("--reload", is_flag=True, help="Replace workers whose files change, once they load, and follow FILE.")
@click.option(
    "--logs/--no-logs",
    default=None,
    help="Print what workers and calls do, as `rolecall logs` does, or not. [default: on, or logs of the file]",
)
@click.option(
    "--name",
    metavar="NAME",
    callback=_console_name,
    help="Run a copy beside another console of FILE: its workers are NAME's, as shouter:NAME:1.",
)
@click.option("--no-color", is_flag=True, help="No colours, also on a terminal. [env: NO_COLOR]")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings of a hub that is started, instead of ./rolecall.toml.",
)
@hub_options
def up(
    path: Path,
    check: bool,
    reload: bool,
    logs: bool | None,
    name: str | None,
    no_color: bool,
    config: Path | None,
    hub: str | None,
    token: str | None,
) -> None:
    """Run the workers of FILE in one console, and a hub if none runs.

    FILE is agents.toml, or a folder with one; `rolecall init` writes it. A hub that runs already is used and left running. A
    worker that ends starts again, after a pause that grows; one that fails at once five times in a row is left stopped, and
    the exit code is 1. Ctrl-C or SIGTERM lets the workers finish what they do, and then ends the hub; the second ends all at
    once (130). On Linux nothing is left running even if this command is killed.
    """
    from rolecall.cli.console.hub_choice import choose_hub
    from rolecall.cli.up.agents_file import read_agents_file
    from rolecall.cli.up.console_name import only_console

    file = read_agents_file(path)
    given = _given_hub(hub, file)
    token = token or click.get_current_context().find_root().params.get("token")
    if check:
        from rolecall.cli.up.check import check_all

        code = asyncio.run(check_all(file, given, token, config))
    else:
        if no_color:
            os.environ["NO_COLOR"] = "1"  # for the programs too
        with only_console(file.path, name) as console:
            chosen = asyncio.run(choose_hub(given, token, config))
            # At a hub that it starts it is the first console, whose workers need no more than a number.
            within = console if name is not None or chosen.own is None else ""
            code = _run(file, chosen, within, reload=reload, logs=file.logs if logs is None else logs)
    click.get_current_context().exit(code)


def _run(file: AgentsFile, hub: ChosenHub, console: str, *, reload: bool, logs: bool) -> int:
    from rolecall.cli.console.session import Options, run_session
    from rolecall.cli.up.agents_file import read_agents_file
    from rolecall.cli.up.programs_of import names_of, programs_of

    def read(access: Mapping[str, str]) -> Sequence[Program]:
        """As the file is now."""
        return programs_of(read_agents_file(file.path), access, console)

    options = Options("up", names_of(file, console), logs=logs, reload=file.path if reload else None)
    return run_session(hub, read, options)


def _given_hub(hub: str | None, file: AgentsFile) -> str | None:
    """As every command: an option, else a variable; else what the file says."""
    outer = click.get_current_context().find_root().params.get("hub")
    return hub or outer or os.environ.get("ROLECALL_HUB") or os.environ.get("A2A_SERVER_URL") or file.hub
