"""`rolecall worker run` and `rolecall announce`: run a worker, or enrol a server that already runs."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import click

from rolecall.cli.connect import chosen_address, hub_options
from rolecall.cli.output import CommandError, checked_role, print_data

if TYPE_CHECKING:
    from worker_sdk import Worker


_log_format = click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    envvar="ROLECALL_LOG_FORMAT",
    help="auto: console on a terminal, one JSON object per line elsewhere. [env: ROLECALL_LOG_FORMAT; default: auto]",
)


@click.group()
def worker() -> None:
    """Run workers."""


@worker.command("run")
@click.argument("target", metavar="MODULE:WORKER")
@click.option(
    "--instance", metavar="NAME", help="Its name within the role, or role:NAME. [env: ROLECALL_INSTANCE; default: generated]"
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for hubs on other machines."
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on. [env: PORT; default: any free port]")
@click.option(
    "--url",
    metavar="URL",
    help="How the hub reaches this worker. [env: ROLECALL_ADVERTISE_URL; default: derived from the hub's address]",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Serve https with this certificate, and those that sign it behind it, in PEM. [env: ROLECALL_WORKER_TLS_CERT]",
)
@click.option("--tls-key", metavar="FILE", help="Its key, in PEM and not encrypted. [env: ROLECALL_WORKER_TLS_KEY]")
@click.option(
    "--open",
    "open_to_all",
    is_flag=True,
    help="Take calls from anybody who can connect. A worker that other machines can reach takes them from its hub alone.",
)
@click.option("--quiet", is_flag=True, help="Only warnings and errors.")
@click.option("--check", is_flag=True, help="Load it, print its role, and start nothing.")
@_log_format
@hub_options
def run_worker(
    target: str,
    instance: str | None,
    host: str,
    port: int | None,
    url: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    open_to_all: bool,
    quiet: bool,
    check: bool,
    log_format: str,
    hub: str | None,
    token: str | None,
) -> None:
    """Serve a Worker object, enrol it, and drain on SIGTERM or Ctrl-C.

    MODULE:WORKER names a module, in this folder or installed, and the Worker in it, as in shouter:worker.
    """
    address = chosen_address(hub, token)
    found = _load(target)
    _set_up_logs("warning" if quiet else "info", log_format)
    if check:
        _check(found, target)
        return
    if instance is not None:
        try:
            found.rename(found.role, instance)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--instance") from error
    found.open = found.open or open_to_all
    found.run(host=host, port=port, hub=address.url, token=address.token, url=url, tls_cert=tls_cert, tls_key=tls_key)


def _check(worker: Worker, target: str) -> None:
    try:
        worker.app  # noqa: B018 - it is made at the first use
    except TypeError as error:
        raise CommandError(f"{target}: {error}", "WORKER_BROKEN", 1) from error
    print_data(worker.role)


def _load(target: str) -> Worker:
    from worker_sdk.errors import RolecallError
    from worker_sdk.load import load_worker

    try:
        return load_worker(target)
    except RolecallError:
        raise
    except Exception as error:
        # The module is the user's: it can raise any error.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({frame.filename}:{frame.lineno})"
        raise CommandError(f"{target} cannot be loaded: {type(error).__name__}: {error}{where}", "WORKER_BROKEN", 1) from error


@click.command()
@click.argument("role")
@click.argument("url")
@click.option(
    "--instance", metavar="NAME", help="Its name within the role, or role:NAME. [env: ROLECALL_INSTANCE; default: generated]"
)
@click.option(
    "--agent-token-file",
    metavar="FILE",
    envvar="ROLECALL_AGENT_TOKEN_FILE",
    help="Holds the token that the server at URL asks for. It is read again when it changes; the hub keeps it sealed. "
    "[env: ROLECALL_AGENT_TOKEN_FILE]",
)
@click.option("--capacity", type=click.IntRange(min=1), help="The maximum number of concurrent calls. [default: no limit]")
@click.option("--idempotent", is_flag=True, help="A call may be made again, although it may have run.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait for the server to start."
)
@_log_format
@hub_options
def announce(
    role: str,
    url: str,
    instance: str | None,
    agent_token_file: str | None,
    capacity: int | None,
    idempotent: bool,
    wait: float,
    log_format: str,
    hub: str | None,
    token: str | None,
) -> None:
    """Hold a lease for an A2A server that already runs at URL, in any language.

    URL is where the hub reaches the server. The hub reads its card there, again every few minutes, and calls no other host.
    The command asks for the card before each heartbeat: while the server does not answer, no heartbeat is sent. SIGTERM or
    Ctrl-C withdraws the lease; the server keeps running.
    """
    import asyncio

    checked_role(role)
    address = chosen_address(hub, token)
    _set_up_logs("info", log_format)
    from rolecall.cli.announced import AnnounceOptions, agent_url, hold
    from worker_sdk.config import TokenFile

    agent_token = TokenFile(agent_token_file, "--agent-token-file") if agent_token_file else None
    options = AnnounceOptions(
        role, instance, agent_url(url), capacity=capacity, wait=wait, idempotent=idempotent, agent_token=agent_token
    )
    try:
        code = asyncio.run(hold(options, address))
    except ValueError as error:
        raise CommandError(str(error), "USAGE", 2) from error
    click.get_current_context().exit(code)


def _set_up_logs(level: str, format: str) -> None:
    """As a worker that is run as a script does: what its module has set up stays."""
    from rolecall import log

    log.setup_unless_done(level, format)
