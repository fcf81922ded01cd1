"""`rolecall serve` and `rolecall dev`: run a hub, alone or with demo workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import print_notice
from rolecall.cli.server.settings import load_settings, setting_flags
from rolecall.cli.server.socket_errors import socket_errors

if TYPE_CHECKING:
    from hub.settings.model import Settings


@click.command()
@setting_flags
def serve(file: Path | None, **values: Any) -> None:
    """Run the hub until SIGTERM or Ctrl-C (on Windows also Ctrl-Break), then drain.

    SIGHUP, which Windows lacks, reads [[agents]] of the file again, and nothing else.
    """
    loaded = load_settings(file, values)
    settings = loaded.settings
    _set_up_logs(settings)
    with socket_errors(settings):
        from hub.run import run

        run(settings, agents=loaded.agents, read_agents=loaded.read_agents, ready=_print_address(settings))


@click.command()
@click.option("--no-logs", is_flag=True, help="Do not print what workers and calls do, as `rolecall logs` does.")
@setting_flags
def dev(file: Path | None, no_logs: bool, **values: Any) -> None:
    """Run the hub and three demo workers, and print what to try."""
    from rolecall.cli.server.dev import run_dev

    click.get_current_context().exit(run_dev(file, values, logs=not no_logs))


def _set_up_logs(settings: Settings) -> None:
    """Before the hub is imported, so that libraries do not add handlers to the root logger."""
    from rolecall import log

    log.setup(settings.log_level, settings.log_format)


def _print_address(settings: Settings) -> Callable[[str], None]:
    def ready(url: str) -> None:
        where = f"  (data: {settings.data_dir})" if settings.store == "sqlite" else f"  (store: {settings.store})"
        print_notice(f"rolecall serves at {url}{where}")

    return ready
