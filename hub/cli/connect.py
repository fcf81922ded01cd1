"""How commands reach the hub, and the exit code of every way that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec
from urllib.parse import quote

import click

from hub.cli.output import Problem

if TYPE_CHECKING:
    from hub.config import Connection
    from hub.wire.sse import FrameReader
    from worker_sdk.errors import RolecallError
    from worker_sdk.link import HubLink

P = ParamSpec("P")

# The exit code of each reason that has one of its own; the rest is 1.
EXIT_CODES = {
    "USAGE": 2,
    "CONFIG": 2,
    "HUB_UNREACHABLE": 3,
    "HUB_DRAINING": 3,
    "NOT_A_HUB": 3,
    "NOT_WELL": 3,
    "OVERLOADED": 3,
    "UNAUTHENTICATED": 4,
    "FORBIDDEN": 4,
    "LEASE_UNKNOWN": 5,
    "NO_LIVE_WORKER": 5,
    "ROLE_UNKNOWN": 5,
    "WORKER_BUSY": 5,
    "WORKER_UNREACHABLE": 5,
    "TIMED_OUT": 6,
    "WORKER_SILENT": 6,
    "STREAM_LOST": 8,
}
# Hubs send a comment every 15 s by default, so this much silence means that nobody is there.
SILENCE = 60.0


class Frame(NamedTuple):
    """One event of a stream, and its place in the task's log."""

    cursor: int | None
    document: dict[str, Any]


def problem(message: str, reason: str, hint: str = "") -> Problem:
    return Problem(message, reason, EXIT_CODES.get(reason, 1), hint)


def problem_of(error: RolecallError) -> Problem:
    """What the SDK raises, as the command line says it."""
    reason = error.reason
    if reason == "ERROR":
        reason = f"CODE {error.code}" if error.code is not None else "NOT_A_HUB"
    # The hub's own words often hold the advice already.
    hint = "" if error.hint.rstrip(".") in str(error) else error.hint
    return problem(str(error), reason, hint)


class Hub:
    """One hub: its own HTTP API, and its JSON-RPC. Everything that goes wrong is a Problem."""

    def __init__(self, link: HubLink) -> None:
        self.url = link.hub
        self._link = link

    async def get(self, path: str, **query: object) -> Any:
        given = {name: str(value) for name, value in query.items() if value is not None}
        with _telling():
            return await self._link.ask("GET", path, query=given)

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        with _telling():
            return await self._link.ask(method, path, body=body)

    async def call(self, method: str, params: dict[str, Any], *, role: str | None = None) -> dict[str, Any]:
        with _telling():
            return _object(await self._link.call(_endpoint(role), method, params, timeout=None))

    async def stream(
        self, method: str, params: dict[str, Any], *, role: str | None = None, after: int | None = None
    ) -> AsyncIterator[Frame]:
        """A task's events as they come; STREAM_LOST if the connection breaks after the answer has begun."""
        from hub.wire.sse import FrameReader

        reader = FrameReader(limit=64 * 1024 * 1024)
        cursor = str(after) if after is not None else None
        with _telling():
            async with self._link.stream(_endpoint(role), method, params, last_event_id=cursor) as chunks:
                while True:
                    async with asyncio.timeout(SILENCE) as patience:
                        chunk = await anext(chunks, None)
                        patience.reschedule(None)
                    if chunk is None:
                        return
                    for frame in _frames(reader, chunk):
                        yield frame


class _telling:
    """Around every call: the SDK's errors become Problems."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from worker_sdk.errors import RolecallError

        if isinstance(error, RolecallError):
            raise problem_of(error) from error
        if isinstance(error, TimeoutError):
            raise problem("The hub has gone silent.", "STREAM_LOST") from error


def _frames(reader: FrameReader, chunk: bytes) -> list[Frame]:
    from worker_sdk.link import read_answer

    frames = []
    for frame in reader.feed(chunk):
        cursor = int(frame.id) if frame.id is not None and frame.id.isdigit() else None
        frames.append(Frame(cursor, _object(read_answer(200, frame.data))))
    return frames


def _object(result: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise problem("The hub's answer is not A2A. Is this address a hub?", "NOT_A_HUB")
    return result


def _endpoint(role: str | None) -> str:
    return f"/agents/{quote(role, safe='')}/" if role else "/"


@asynccontextmanager
async def open_hub(connection: Connection) -> AsyncIterator[Hub]:
    import httpx  # noqa: F401  now, so that its import is not counted as the hub's time

    from worker_sdk.link import HubLink

    link = HubLink(connection.hub, connection.token)
    try:
        yield Hub(link)
    finally:
        await link.close()


def hub_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--hub and --token, as every client command has them."""
    from hub.config import DEFAULT_HUB

    token = click.option("--token", metavar="TOKEN", help="What to show the hub. [env: ROLECALL_TOKEN, ROLECALL_TOKEN_FILE]")
    hub = click.option("--hub", metavar="URL", help=f"The hub. [env: ROLECALL_HUB; default: {DEFAULT_HUB}]")
    return hub(token(command))


def chosen_connection(hub: str | None, token: str | None) -> Connection:
    """The command's own options, else those given before the command's name, else the environment."""
    from hub.config import connection

    outer = click.get_current_context().find_root().params
    return connection(hub or outer.get("hub"), token or outer.get("token"))


def reaches_hub(command: Callable[Concatenate[Hub, P], Awaitable[int | None]]) -> Callable[..., None]:
    """Make a click callback of an async command: it gets a Hub, and what it returns is the exit code."""

    @hub_options
    @wraps(command)
    def callback(hub: str | None, token: str | None, *args: P.args, **kwargs: P.kwargs) -> None:
        connection = chosen_connection(hub, token)

        async def run() -> int | None:
            async with open_hub(connection) as api:
                return await command(api, *args, **kwargs)

        click.get_current_context().exit(asyncio.run(run()) or 0)

    return callback
