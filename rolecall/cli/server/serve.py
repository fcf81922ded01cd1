"""`rolecall serve` and `rolecall dev`: run a hub, alone or with demo workers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError, print_notice
from rolecall.cli.server.settings import load_settings, setting_flags

if TYPE_CHECKING:
    from hub.settings.model import Settings


@click.command()
@setting_flags
def serve(file: Path | None, **values: Any) -> None:
    """Run the hub until SIGTERM or Ctrl-C, then drain. SIGHUP reads [[agents]] of the file again, and nothing else."""
    loaded = load_settings(file, values)
    settings = loaded.settings
    _set_up_logs(settings)
    with socket_errors(settings):
        from hub.run import run

        run(settings, agents=loaded.agents, read_agents=loaded.read_agents, ready=_print_address(settings))


@click.command()
@setting_flags
def dev(file: Path | None, **values: Any) -> None:
    """Run the hub and three demo workers, and print what to try."""
    loaded = load_settings(file, values)
    if "log_level" not in loaded.origins:
        loaded = load_settings(file, {**values, "log_level": "warning"})
    _set_up_logs(loaded.settings)
    with socket_errors(loaded.settings):
        from rolecall.cli.server.dev import run_dev

        run_dev(loaded.settings, loaded.agents)


def _set_up_logs(settings: Settings) -> None:
    """Before the hub is imported, so that libraries do not add handlers to the root logger."""
    from rolecall import log
    from rolecall.log import AUDIT

    log.setup(settings.log_level, settings.log_format)
    log.set_up_audit(AUDIT, settings.audit_log)


def _print_address(settings: Settings) -> Callable[[str], None]:
    def ready(url: str) -> None:
        where = f"  (data: {settings.data_dir})" if settings.store == "sqlite" else f"  (store: {settings.store})"
        print_notice(f"rolecall serves at {url}{where}")

    return ready


@contextmanager
def socket_errors(settings: Settings) -> Iterator[None]:
    """Explain the common errors of binding a port."""
    try:
        yield
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            hint = "is a hub already running? check: rolecall ping\nor choose another port: --port 8421, or --port 0 for any"
            raise CommandError(f"port {settings.port} of {settings.host} is taken", "PORT_TAKEN", 2, hint) from error
        if error.errno == errno.EACCES:
            raise CommandError(f"this user may not use {address}", "PORT_FORBIDDEN", 2, "choose a --port above 1023") from error
        if error.errno == errno.EADDRNOTAVAIL or type(error).__name__ == "gaierror":
            raise CommandError(f"{settings.host} is not an address of this machine", "HOST_UNKNOWN", 2, "see --host") from error
        raise
