"""A worker on a real socket, and a plain A2A client for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from worker_sdk import Worker
from worker_sdk.run import serve_http

Event = tuple[str, dict[str, Any]]


class Caller:
    """JSON-RPC by hand: every status, header and frame is visible."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.http.post("/", json=body, headers=headers)

    async def result(self, method: str, params: dict[str, Any], **headers: str) -> Any:
        return (await self.call(method, params, **headers)).json()["result"]

    async def code(self, method: str, params: dict[str, Any]) -> int:
        return int((await self.call(method, params)).json()["error"]["code"])

    async def stream(self, method: str, params: dict[str, Any], *, after: str | None = None) -> AsyncIterator[Event]:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        headers = {"last-event-id": after} if after is not None else {}
        async with self.http.stream("POST", "/", json=body, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            position = ""
            async for line in response.aiter_lines():
                if line.startswith("id: "):
                    position = line[4:]
                elif line.startswith("data: "):
                    envelope = json.loads(line[6:])
                    assert envelope["id"] == 7
                    yield position, envelope.get("result") or envelope

    async def events(self, method: str, params: dict[str, Any], *, after: str | None = None) -> list[Event]:
        return [event async for event in self.stream(method, params, after=after)]


@asynccontextmanager
async def served(worker: Worker) -> AsyncIterator[Caller]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        stop = asyncio.Event()
        server = asyncio.create_task(serve_http(worker, listener, stop))
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", trust_env=False, timeout=10
        ) as http:
            try:
                yield Caller(http)
            finally:
                await worker.tasks.finish(0, "over")
                stop.set()
        await server


def message_params(text: str, **members: Any) -> dict[str, Any]:
    return {"message": {"parts": [{"kind": "text", "text": text}], **members}}
