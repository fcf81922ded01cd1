"""`rolecall serve` and `rolecall dev`: run a hub, alone or with demo workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError, print_notice
from rolecall.cli.server.settings import load_settings, setting_flags
from rolecall.cli.server.socket_errors import socket_errors
from rolecall.errors import HubError

if TYPE_CHECKING:
    from hub.settings.model import Settings

log = logging.getLogger(__name__)


@click.command()
@setting_flags
def serve(file: Path | None, **values: Any) -> None:
    """Run the hub until SIGTERM or Ctrl-C (on Windows also Ctrl-Break), then drain.

    SIGHUP, which Windows lacks, reads [[agents]] of the file again, and nothing else.
    """
    loaded = load_settings(file, values)
    settings = loaded.settings
    _set_up_logs(settings)
    with _logged(settings), socket_errors(settings):
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
    if _writes_json_alone(settings):
        log.log_python_errors()


def _writes_json_alone(settings: Settings) -> bool:
    """Every line is for programs: `auto` may write for both."""
    return settings.log_format == "json"


@contextmanager
def _logged(settings: Settings) -> Iterator[None]:
    """Why the hub does not start, or ends, is a line of the log where there are no others."""
    try:
        yield
    except (HubError, CommandError) as error:
        if not _writes_json_alone(settings):
            raise
        from rolecall.cli import explained

        problem = explained(error)
        facts = {"event": "cannot_serve", "reason": problem.reason, "hint": problem.hint or None, "code": problem.code}
        log.error(problem.message, extra=facts)
        click.get_current_context().exit(problem.code)


def _print_address(settings: Settings) -> Callable[[str], None] | None:
    """None: the log says it."""
    if _writes_json_alone(settings):
        return None

    def ready(url: str) -> None:
        where = f"data: {settings.data_dir}" if settings.store == "sqlite" else f"store: {settings.store}"
        print_notice(f"rolecall serves at {url}  ({where}; process {os.getpid()})")

    return ready
