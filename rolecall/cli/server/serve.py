"""`rolecall serve` and `rolecall dev`: a hub, alone or with demo workers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rolecall.cli.output import CommandError, talk
from rolecall.cli.server.settings import load_settings, setting_flags

if TYPE_CHECKING:
    from hub.settings.model import Settings


@click.command()
@setting_flags
def serve(file: Path | None, **values: Any) -> None:
    """Run the hub until SIGTERM or Ctrl-C, then drain."""
    settings = load_settings(file, values).settings
    _set_up_logs(settings)
    with explaining_sockets(settings):
        from hub.app import run

        run(settings, ready=_say_where(settings))


@click.command()
@setting_flags
def dev(file: Path | None, **values: Any) -> None:
    """Run the hub and three demo workers, and print what to try."""
    loaded = load_settings(file, values)
    if "log_level" not in loaded.origins:
        loaded = load_settings(file, {**values, "log_level": "warning"})
    _set_up_logs(loaded.settings)
    with explaining_sockets(loaded.settings):
        from rolecall.cli.server.dev import run_dev

        run_dev(loaded.settings)


def _set_up_logs(settings: Settings) -> None:
    """Before the hub is imported: libraries must not find a root logger to put handlers on."""
    from rolecall import log
    from rolecall.log import AUDIT

    log.setup(settings.log_level, settings.log_format)
    log.set_up_audit(AUDIT, settings.audit_log)


def _say_where(settings: Settings) -> Callable[[str], None]:
    def ready(url: str) -> None:
        where = f"  (data: {settings.data_dir})" if settings.store == "sqlite" else f"  (store: {settings.store})"
        talk(f"rolecall serves at {url}{where}")

    return ready


@contextmanager
def explaining_sockets(settings: Settings) -> Iterator[None]:
    """A port that cannot be had is the one system error that people meet here every day."""
    try:
        yield
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            hint = "is a hub running already? ask it: rolecall ping\nor choose another port: --port 8421, or --port 0 for any"
            raise CommandError(f"port {settings.port} of {settings.host} is taken", "PORT_TAKEN", 2, hint) from error
        if error.errno == errno.EACCES:
            raise CommandError(
                f"{place} may not be used by this user", "PORT_FORBIDDEN", 2, "choose a --port above 1023"
            ) from error
        if error.errno == errno.EADDRNOTAVAIL or type(error).__name__ == "gaierror":
            raise CommandError(f"{settings.host} is no address of this machine", "HOST_UNKNOWN", 2, "see --host") from error
        raise
