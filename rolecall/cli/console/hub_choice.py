"""Which hub the programs enrol at: one that runs already, which is left running, or one that is started with them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rolecall.cli.connect import open_hub, problem
from rolecall.cli.console.programs import access_to
from rolecall.cli.installed import HOW, missing_packages
from rolecall.cli.output import CommandError
from rolecall.model.ids import is_loopback
from worker_sdk.config import HubAddress, Token, hub_address
from worker_sdk.errors import AuthError, HubUnreachable, RolecallError

if TYPE_CHECKING:
    from rolecall.cli.server.own_hub import OwnHub

_CONNECT = 2.0
_TOKEN_PATIENCE = 10.0
_ENDING_PATIENCE = 45.0
"""Seconds that a hub which is stopping may take until another one is started at its address."""
_POLL = 0.1
_NEEDS_ENROL = "for a worker: rolecall tokens new --kind worker --role '*' --name me\nthen set ROLECALL_TOKEN to what it prints"


@dataclass(frozen=True, slots=True)
class ChosenHub:
    """`own`: it is started, and ends with the programs. `token_file`: where the token of its address stands, if in a file.
    `caller_token`: what people here call with, where it is another one.
    """

    address: HubAddress
    own: OwnHub | None = None
    token_file: Path | None = None
    caller_token: Token | None = field(default=None, repr=False)

    @property
    def caller_address(self) -> HubAddress:
        """By which the calls of people here are seen."""
        return self.address._replace(token=self.caller_token or self.address.token)

    @property
    def variables(self) -> dict[str, str]:
        """By which workers reach it."""
        return access_to(self.address, self.token_file)

    @asynccontextmanager
    async def with_worker_token(self) -> AsyncIterator[ChosenHub]:
        """The same hub with a token for workers while the context is open, if it was started and asks for one."""
        if self.own is None or not await self._asks_for_a_token():
            yield self
            return
        with self.own.worker_token() as token:
            chosen = replace(self, address=self.address._replace(token=token))
            await chosen._token_is_known()
            yield chosen

    async def _asks_for_a_token(self) -> bool:
        async with open_hub(self.address) as hub:
            return await hub.asks_for_a_token()

    async def _token_is_known(self) -> None:
        """A hub looks at its file of tokens twice a second."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TOKEN_PATIENCE
        async with open_hub(self.address) as hub:
            while True:
                try:
                    await hub.holder()
                except AuthError:
                    if loop.time() > deadline:
                        raise
                    await asyncio.sleep(_POLL)
                else:
                    return


def started_hub(own: OwnHub, token: str | None = None) -> ChosenHub:
    """CommandError: its port is taken."""
    own.check_port()
    address = hub_address(own.url, token)
    return ChosenHub(address._replace(token=None), own, caller_token=address.token or own.settings.admin_token)


async def choose_hub(given: str | None, token: str | None, config: Path | None) -> ChosenHub:
    """`given`: the address that a flag, a variable or the file names. `config`: the settings of a hub that is started."""
    own = _own_hub(config)
    address = hub_address(given or (own.url if own is not None else None), token)
    here = own is not None and (given is None or _same_place(address.url, own.url))
    until = time.monotonic() + _ENDING_PATIENCE
    while True:
        if own is not None and here and not _is_listening(own.url):
            return started_hub(own, token)
        try:
            await check_running(address)
        except (HubUnreachable, CommandError) as error:
            if here and error.reason == "HUB_DRAINING" and time.monotonic() < until:
                await asyncio.sleep(_POLL)  # of a console that was killed: it ends by itself
                continue
            if given is None and error.reason in ("HUB_UNREACHABLE", "NOT_A_HUB"):
                raise _cannot_start(own, address) from error
            raise
        return ChosenHub(address, token_file=_token_file(token))


async def check_running(address: HubAddress) -> None:
    """RolecallError or CommandError: it is no hub, or workers with this token cannot enrol there."""
    async with open_hub(address) as hub:
        try:
            health = await hub.health()
        except HubUnreachable:
            raise
        except RolecallError as error:
            raise _no_hub(address) from error
        if "uptime_seconds" not in health or "checks" not in health:
            raise _no_hub(address)
        if not health["checks"].get("taking_calls", True):
            raise problem(f"the hub at {address.url} is stopping", "HUB_DRAINING", "wait until it has ended, and try again")
        holder = await hub.holder()
        if "enrol" not in holder["rights"]:
            about = f"the token of {holder['name']} is of kind {holder['kind']}, and may not enrol workers"
            raise problem(about, "FORBIDDEN", _NEEDS_ENROL)


def _cannot_start(own: OwnHub | None, address: HubAddress) -> CommandError:
    """Nothing is a hub at the address of this machine's hub: it cannot be started, or something else is there."""
    if own is None:
        hint = f"{HOW}, and it is started\nor name one: --hub URL, ROLECALL_HUB, or url of [hub]"
        return CommandError(f"no hub runs at {address.url}, and none is installed here", "NOT_INSTALLED", 2, hint)
    try:
        own.check_port()
    except CommandError as error:
        return error
    return _no_hub(address)


def _no_hub(address: HubAddress) -> CommandError:
    return problem(f"what answers at {address.url} is not a hub", "NOT_A_HUB", "is that its address, with the right port?")


def _own_hub(config: Path | None) -> OwnHub | None:
    if missing_packages():
        return None
    from rolecall.cli.server.own_hub import OwnHub

    return OwnHub(config, {})


def _same_place(one: str, other: str) -> bool:
    """Two ways to write the address of a hub on this machine are one."""
    first, second = urlsplit(one), urlsplit(other)
    here = all(is_loopback(parts.hostname or "") for parts in (first, second))
    return first.port == second.port and (here or first.hostname == second.hostname)


def _is_listening(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_CONNECT).close()
    except OSError:
        return False
    return True


def _token_file(token: str | None) -> Path | None:
    """Where workers read the token, if this process read it there."""
    path = os.environ.get("ROLECALL_TOKEN_FILE")
    return Path(path) if path and not token and not os.environ.get("ROLECALL_TOKEN") else None
