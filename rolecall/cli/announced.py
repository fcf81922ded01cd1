"""A lease for an A2A server that does not use the SDK. The hub reads its card; this process waits for it, and probes it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rolecall.cli.connect import problem
from rolecall.cli.output import print_notice
from rolecall.log import SCOPE, scope_of
from rolecall.protocol.cards import CARD_PATHS, card_urls
from rolecall.system.signals import on_signals
from worker_sdk import Lease
from worker_sdk.calling.tls_errors import tls_failure
from worker_sdk.calling.trust import tls_towards
from worker_sdk.config import with_scheme
from worker_sdk.run import exit_code

if TYPE_CHECKING:
    import httpx

    from worker_sdk.config import HubAddress, TokenFile

_LARGEST_CARD = 1024 * 1024
_PAUSE = 0.5
_NO_TOKEN = ("HTTP 401", "HTTP 403")


@dataclass(frozen=True, slots=True)
class AnnounceOptions:
    """The options of `rolecall announce`."""

    role: str
    instance: str | None
    url: str
    capacity: int | None
    wait: float
    idempotent: bool = False
    agent_token: TokenFile | None = None
    """What the hub and this process show to the server."""


async def hold(options: AnnounceOptions, address: HubAddress) -> int:
    """Enrol, and keep the lease until a signal (0) or until it is given up (3, 4)."""
    import httpx

    from worker_sdk.calling.token_auth import TokenAuth

    stop = asyncio.Event()
    on_signals(stop.set, stop.set)
    tls, limits = tls_towards(options.url, address.ca_file), httpx.Limits(max_keepalive_connections=0)
    token = options.agent_token
    async with httpx.AsyncClient(timeout=5, verify=tls, trust_env=False, limits=limits, auth=TokenAuth(token)) as client:
        card_url = await _wait_for_card(client, options, stop, address.ca_file)
        if card_url is None:
            return 0
        lease = Lease(
            options.role,
            options.instance,
            url=options.url,
            hub=address.url,
            token=address.token,
            capacity=options.capacity,
            idempotent=options.idempotent,
            authorization=(lambda: f"Bearer {token}") if token is not None else None,
            probe=lambda: _is_alive(client, card_url),
        )
        SCOPE.set(scope_of(lease.name))
        async with lease:
            await _first(stop.wait(), lease.given_up())
    return exit_code(lease)


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_card(
    client: httpx.AsyncClient, options: AnnounceOptions, stop: asyncio.Event, ca_file: Path | None
) -> str | None:
    """The URL of the card of a server that may still be starting. None if `stop` is set first."""
    deadline = time.monotonic() + options.wait
    reported = False
    while not stop.is_set():
        found, why = await find_card(client, options.url, ca_file)
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            hint = f"looked for {CARD_PATHS[0]} and {CARD_PATHS[1]}; check that the A2A server listens at URL"
            raise problem(f"no A2A card at {options.url}: {why}", "WORKER_UNREACHABLE", hint)
        if not reported:
            hint = "; a server that asks for a token needs --agent-token-file" if why in _NO_TOKEN else ""
            print_notice(f"waiting for a card at {options.url} ({why}{hint})", "dim")
            reported = True
        await asyncio.sleep(_PAUSE)
    return None


async def find_card(client: httpx.AsyncClient, url: str, ca_file: Path | None) -> tuple[str | None, str]:
    """The URL of the card, looked for where the hub does. Without one: the reason."""
    why = "nothing there"
    for card_url in card_urls(url):
        why = await _why_no_card(client, card_url, ca_file)
        if not why:
            return card_url, ""
    return None, why


def agent_url(given: str) -> str:
    """Where the agent is: people also give the URL of its card, or leave out the scheme, as with --hub."""
    try:
        url = with_scheme(given)
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise problem(f"{given} is not an http or https URL such as http://127.0.0.1:9000", "USAGE")
    return next((url.removesuffix(path) + "/" for path in CARD_PATHS if url.endswith(path)), url)


async def _why_no_card(client: httpx.AsyncClient, url: str, ca_file: Path | None) -> str:
    """Empty: there is a card."""
    import httpx

    try:
        answer = await client.get(url, headers={"accept": "application/json"})
    except httpx.ConnectError as error:
        return str(await tls_failure(error, url, ca_file) or "it does not answer").rstrip(".")
    except (httpx.HTTPError, httpx.InvalidURL):
        return "it does not answer"
    if answer.status_code in (401, 403):
        return f"HTTP {answer.status_code}: --agent-token-file names a file with its token"
    if answer.status_code != 200 or len(answer.content) > _LARGEST_CARD:
        return f"HTTP {answer.status_code}"
    try:
        card = json.loads(answer.content)
    except ValueError:
        return "the document is not JSON"
    return "" if isinstance(card, dict) and isinstance(card.get("name"), str) else "the document is not a card"


async def _is_alive(client: httpx.AsyncClient, url: str) -> bool:
    import httpx

    try:
        return (await client.get(url)).status_code < 500
    except httpx.HTTPError:
        return False
