"""A lease for an A2A server that does not use the SDK: find its card and address, and probe it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from rolecall.cli.connect import problem
from rolecall.cli.output import print_notice
from rolecall.protocol.cards import CARD_PATHS
from worker_sdk import Lease
from worker_sdk.calling.tls_errors import tls_failure
from worker_sdk.calling.trust import tls_towards

if TYPE_CHECKING:
    import httpx

    from worker_sdk.config import HubAddress

TAKEN_OVER = 3
_LARGEST_CARD = 1024 * 1024
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class AnnounceOptions:
    """The options of `rolecall announce`."""

    role: str
    instance: str | None
    url: str
    as_given: bool
    capacity: int | None
    wait: float


class Found(NamedTuple):
    """A card, and the URL that it was read from."""

    url: str
    card: dict[str, Any]


async def hold(options: AnnounceOptions, address: HubAddress) -> int:
    """Enrol, and keep the lease until a signal (0) or until another process takes the name (3)."""
    import httpx

    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    tls, limits = tls_towards(options.url, address.ca_file), httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=5, verify=tls, trust_env=False, limits=limits) as client:
        found = await _wait_for_card(client, options, stop, address.ca_file)
        if found is None:
            return 0
        lease = Lease(
            options.role,
            options.instance,
            url=options.url if options.as_given else rpc_url(found.card, options.url),
            hub=address.url,
            token=address.token,
            card=found.card,
            description=str(found.card.get("description") or ""),
            capacity=options.capacity,
            probe=lambda: _is_alive(client, found.url),
        )
        async with lease:
            await _first(stop.wait(), lease.taken_over())
    return TAKEN_OVER if lease.superseded else 0


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
) -> Found | None:
    """Wait for a server that may still be starting. None if `stop` is set first."""
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
            print_notice(f"waiting for a card at {options.url} ({why})", "dim")
            reported = True
        await asyncio.sleep(_PAUSE)
    return None


async def find_card(client: httpx.AsyncClient, url: str, ca_file: Path | None) -> tuple[Found | None, str]:
    """Look below the given URL, then at the root of its server. Without a card: the reason."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise problem(f"{url} is not an http or https URL", "USAGE")
    root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    below = root + parts.path.rstrip("/")
    urls = dict.fromkeys(base + path for base in (below, root) for path in CARD_PATHS)
    why = "nothing there"
    for card_url in [url, *urls] if parts.path.endswith(".json") else urls:
        card, why = await _read_card(client, card_url, ca_file)
        if card is not None:
            return Found(card_url, card), ""
    return None, why


async def _read_card(client: httpx.AsyncClient, url: str, ca_file: Path | None) -> tuple[dict[str, Any] | None, str]:
    import httpx

    try:
        answer = await client.get(url, headers={"accept": "application/json"})
    except httpx.ConnectError as error:
        return None, str(await tls_failure(error, url, ca_file) or "it does not answer").rstrip(".")
    except (httpx.HTTPError, httpx.InvalidURL):
        return None, "it does not answer"
    if answer.status_code != 200 or len(answer.content) > _LARGEST_CARD:
        return None, f"HTTP {answer.status_code}"
    try:
        card = json.loads(answer.content)
    except ValueError:
        return None, "the document is not JSON"
    if not isinstance(card, dict) or not isinstance(card.get("name"), str):
        return None, "the document is not a card"
    return card, ""


def rpc_url(card: dict[str, Any], given: str) -> str:
    """The card's URL for JSON-RPC; `given` if it has none. A wildcard address is replaced by the host of `given`."""
    found = _card_url(card)
    if found is None:
        parts = urlsplit(given)
        path = "/" if parts.path.endswith(".json") else parts.path or "/"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    parts, own = urlsplit(found), urlsplit(given)
    if parts.hostname in ("0.0.0.0", "::") and own.hostname:
        host = f"[{own.hostname}]" if ":" in own.hostname else own.hostname
        return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))
    return found


def _card_url(card: dict[str, Any]) -> str | None:
    main = card.get("url")
    if isinstance(main, str) and str(card.get("preferredTransport") or "JSONRPC").upper() == "JSONRPC":
        return main
    interfaces = [*(card.get("additionalInterfaces") or []), *(card.get("supportedInterfaces") or [])]
    for item in interfaces:
        if isinstance(item, dict) and str(item.get("transport") or item.get("protocolBinding")).upper() == "JSONRPC":
            return str(item["url"]) if isinstance(item.get("url"), str) else None
    return None


async def _is_alive(client: httpx.AsyncClient, url: str) -> bool:
    import httpx

    try:
        return (await client.get(url)).status_code < 500
    except httpx.HTTPError:
        return False
