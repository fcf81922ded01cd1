"""A lease for somebody else's A2A server: its card, its address, and whether it still answers."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from rolecall.cli.connect import problem
from rolecall.cli.output import talk
from worker_sdk import Lease

if TYPE_CHECKING:
    import httpx

    from worker_sdk.config import HubAddress

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
TAKEN_OVER = 3
_LARGEST_CARD = 1024 * 1024
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the command line asks for."""

    role: str
    instance: str | None
    url: str
    as_given: bool
    capacity: int | None
    patience: float


class Found(NamedTuple):
    """A card, and where it was."""

    place: str
    card: dict[str, Any]


async def hold(wanted: Announcement, address: HubAddress) -> int:
    """Enrol, and stay until a signal comes (0) or another process takes the name (3)."""
    import httpx

    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with httpx.AsyncClient(timeout=5, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        found = await _wait_for_card(client, wanted, stop)
        if found is None:
            return 0
        lease = Lease(
            wanted.role,
            wanted.instance,
            url=wanted.url if wanted.as_given else rpc_url(found.card, wanted.url),
            hub=address.url,
            token=address.token,
            card=found.card,
            description=str(found.card.get("description") or ""),
            capacity=wanted.capacity,
            probe=lambda: _answers(client, found.place),
        )
        async with lease:
            await _first(stop.wait(), lease.taken_over())
    return TAKEN_OVER if lease.superseded else 0


async def _first(*waits: Any) -> None:
    jobs = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


async def _wait_for_card(client: httpx.AsyncClient, wanted: Announcement, stop: asyncio.Event) -> Found | None:
    """The server may be starting at this moment. None if we are told to leave first."""
    deadline = time.monotonic() + wanted.patience
    said = False
    while not stop.is_set():
        found, why = await find_card(client, wanted.url)
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            hint = f"looked for {CARD_PATHS[0]} and {CARD_PATHS[1]}; is URL where the A2A server listens?"
            raise problem(f"no A2A card at {wanted.url}: {why}", "WORKER_UNREACHABLE", hint)
        if not said:
            talk(f"waiting for a card at {wanted.url} ({why})", "dim")
            said = True
        await asyncio.sleep(_PAUSE)
    return None


async def find_card(client: httpx.AsyncClient, url: str) -> tuple[Found | None, str]:
    """Below the URL as given, then at the root of its server; else why not."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise problem(f"{url} is no http or https URL", "USAGE")
    root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    below = root + parts.path.rstrip("/")
    places = dict.fromkeys(base + path for base in (below, root) for path in CARD_PATHS)
    why = "nothing there"
    for place in [url, *places] if parts.path.endswith(".json") else places:
        card, why = await _read_card(client, place)
        if card is not None:
            return Found(place, card), ""
    return None, why


async def _read_card(client: httpx.AsyncClient, place: str) -> tuple[dict[str, Any] | None, str]:
    import httpx

    try:
        answer = await client.get(place, headers={"accept": "application/json"})
    except (httpx.HTTPError, httpx.InvalidURL):
        return None, "it does not answer"
    if answer.status_code != 200 or len(answer.content) > _LARGEST_CARD:
        return None, f"HTTP {answer.status_code}"
    try:
        card = json.loads(answer.content)
    except ValueError:
        return None, "what is there is not JSON"
    if not isinstance(card, dict) or not isinstance(card.get("name"), str):
        return None, "what is there is no card"
    return card, ""


def rpc_url(card: dict[str, Any], given: str) -> str:
    """Where the card takes JSON-RPC; `given` if it says nothing. An address that only its own machine understands gets
    the host of `given`.
    """
    found = _said_url(card)
    if found is None:
        parts = urlsplit(given)
        path = "/" if parts.path.endswith(".json") else parts.path or "/"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    said, own = urlsplit(found), urlsplit(given)
    if said.hostname in ("0.0.0.0", "::") and own.hostname:
        host = f"[{own.hostname}]" if ":" in own.hostname else own.hostname
        return urlunsplit(said._replace(netloc=f"{host}:{said.port}" if said.port else host))
    return found


def _said_url(card: dict[str, Any]) -> str | None:
    main = card.get("url")
    if isinstance(main, str) and str(card.get("preferredTransport") or "JSONRPC").upper() == "JSONRPC":
        return main
    listed = [*(card.get("additionalInterfaces") or []), *(card.get("supportedInterfaces") or [])]
    for item in listed:
        if isinstance(item, dict) and str(item.get("transport") or item.get("protocolBinding")).upper() == "JSONRPC":
            return str(item["url"]) if isinstance(item.get("url"), str) else None
    return None


async def _answers(client: httpx.AsyncClient, place: str) -> bool:
    import httpx

    try:
        return (await client.get(place)).status_code < 500
    except httpx.HTTPError:
        return False
