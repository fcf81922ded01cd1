"""Connect commands to the hub, and map errors to exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from rolecall.cli.output import CommandError
from rolecall.setting import DEFAULT_HUB

if TYPE_CHECKING:
    from worker_sdk import HubClient, RolecallError
    from worker_sdk.config import HubAddress

P = ParamSpec("P")
_HUB_HERE = f"default: {DEFAULT_HUB}, or that port of ROLECALL_PORT"

# The exit code of each reason; any other reason is 1.
EXIT_CODES = {
    "USAGE": 2,
    "CONFIG": 2,
    "HUB_UNREACHABLE": 3,
    "NAME_UNKNOWN": 3,
    "CONNECT_TIMED_OUT": 3,
    "NO_ROUTE": 3,
    "PROXY_FAILED": 3,
    "NOT_HTTP": 3,
    "HUB_DRAINING": 3,
    "NOT_A_HUB": 3,
    "NOT_WELL": 3,
    "CERTIFICATE_EXPIRED": 3,
    "CERTIFICATE_NOT_YET_VALID": 3,
    "CERTIFICATE_NAME": 3,
    "CERTIFICATE_UNTRUSTED": 3,
    "CERTIFICATE_INVALID": 3,
    "NOT_TLS": 3,
    "TLS_FAILED": 3,
    "TLS_REQUIRED": 3,
    "OVERLOADED": 3,
    "UNAUTHENTICATED": 4,
    "NO_TOKENS": 4,
    "FORBIDDEN": 4,
    "LEASE_UNKNOWN": 5,
    "NO_LIVE_WORKER": 5,
    "ROLE_UNKNOWN": 5,
    "SKILL_UNKNOWN": 5,
    "WORKER_BUSY": 5,
    "WORKER_UNREACHABLE": 5,
    "TIMED_OUT": 6,
    "WORKER_SILENT": 6,
    "STREAM_LOST": 8,
}


def problem(message: str, reason: str, hint: str = "") -> CommandError:
    return CommandError(message, reason, EXIT_CODES.get(reason, 1), hint)


def problem_of(error: RolecallError) -> CommandError:
    """An error of the SDK as an error of the command line."""
    reason = error.reason
    if reason == "ERROR":
        reason = f"CODE {error.code}" if error.code is not None else "NOT_A_HUB"
    # The hub's message often contains the hint already.
    hint = "" if error.hint.rstrip(".") in str(error) else error.hint
    return problem(str(error), reason, hint)


def open_hub(address: HubAddress) -> HubClient:
    import httpx  # noqa: F401  now, so that its import does not count as the hub's time

    from worker_sdk import HubClient

    return HubClient(address.url, address.token, ca_file=address.ca_file)


@contextmanager
def with_hub(address: HubAddress) -> Iterator[tuple[HubClient, asyncio.Runner]]:
    """A client, and the loop that its coroutines are run on. Between them a command may wait for a person: while a loop runs,
    Ctrl-C does not reach `input`.
    """
    with asyncio.Runner() as runner:
        client = open_hub(address)
        try:
            yield client, runner
        finally:
            runner.run(client.__aexit__())


def hub_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --hub and --token of every client command."""
    token = click.option("--token", metavar="TOKEN", help="Token for the hub. [env: ROLECALL_TOKEN, ROLECALL_TOKEN_FILE]")
    hub = click.option("--hub", metavar="URL", help=f"The hub. [env: ROLECALL_HUB; {_HUB_HERE}]")
    return hub(token(command))


def chosen_address(hub: str | None, token: str | None) -> HubAddress:
    """From the command's options, else from those before the command's name, else from the environment."""
    outer = click.get_current_context().find_root().params
    from worker_sdk.config import hub_address

    return hub_address(hub or outer.get("hub"), token or outer.get("token"))


def reaches_hub(command: Callable[Concatenate[HubClient, P], Awaitable[int | None]]) -> Callable[..., None]:
    """Make a click callback of an async command, which gets a HubClient and returns the exit code."""

    @hub_options
    @wraps(command)
    def callback(hub: str | None, token: str | None, *args: P.args, **kwargs: P.kwargs) -> None:
        address = chosen_address(hub, token)

        async def run() -> int | None:
            async with open_hub(address) as api:
                return await command(api, *args, **kwargs)

        click.get_current_context().exit(asyncio.run(run()) or 0)

    return callback
