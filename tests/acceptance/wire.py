"""A client that returns every status, header and frame, in JSON-RPC and REST, and scripted workers on a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import dump, parse
from tests.helpers.raw_server import Peer, RawServer, Request, answer

JSON = {"Content-Type": "application/json"}


class SseFrame(NamedTuple):
    """One frame of a stream."""

    cursor: int
    event: str | None
    document: dict[str, Any]


@dataclass
class ApiClient:
    http: httpx.AsyncClient

    async def rpc(self, method: str, params: Any, path: str = "/", **headers: str) -> Any:
        """The whole response to one call."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        response = await self.http.post(path, content=dump(body), headers={**JSON, **_named(headers)})
        assert response.status_code == 200
        document = response.json()
        assert (document["jsonrpc"], document["id"]) == ("2.0", 7)
        return document

    async def result(self, method: str, params: Any, path: str = "/", **headers: str) -> Any:
        document = await self.rpc(method, params, path, **headers)
        assert "result" in document, document
        return document["result"]

    async def rest(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = None if body is None else dump(body)
        return await self.http.request(method, path, content=content, headers={**JSON, **_named(headers)})

    async def frames(self, method: str, path: str, body: Any = None, limit: int = 1000, **headers: str) -> list[SseFrame]:
        """The frames of a stream, at most `limit`. Then the connection is closed."""
        content = None if body is None else dump(body)
        frames: list[SseFrame] = []
        reader = FrameReader()
        async with self.http.stream(method, path, content=content, headers={**JSON, **_named(headers)}) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            async for chunk in response.aiter_raw():
                frames += [SseFrame(int(f.id or 0), f.event, parse(f.data)) for f in reader.feed(chunk) if f.data]
                if len(frames) >= limit:
                    break
        return frames[:limit]

    async def stream(self, method: str, params: Any, path: str = "/", limit: int = 1000, **headers: str) -> list[SseFrame]:
        """The same for JSON-RPC: each document is the frame's result."""
        body = {"jsonrpc": "2.0", "id": "s", "method": method, "params": params}
        frames = await self.frames("POST", path, body, limit, **headers)
        assert all(frame.document["id"] == "s" for frame in frames)
        return [frame._replace(document=frame.document.get("result") or frame.document) for frame in frames]


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Header names from keyword arguments, which have no dashes."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


Reply = Callable[[str, dict[str, Any]], Any]
"""From a JSON-RPC method (or an HTTP method and path) and its params to a result. KeyError: the method is unknown."""


class Played:
    """A worker that answers each call with `reply`. `asked` has the names of the calls, `calls` their requests and params."""

    def __init__(self, reply: Reply, *, rest: bool = False) -> None:
        self._reply = reply
        self._rest = rest
        self.asked: list[str] = []
        self.calls: list[tuple[Request, dict[str, Any]]] = []

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            await peer.write(self._answer(request))

    def _answer(self, request: Request) -> bytes:
        document = parse(request.body) if request.body else {}
        method, path, _ = request.line.split(" ")
        name = f"{method} {path}" if self._rest else document["method"]
        self.asked.append(name)
        self.calls.append((request, document if self._rest else document["params"]))
        try:
            result = self._reply(name, self.calls[-1][1])
        except KeyError:
            if self._rest:
                return answer(b'{"error":{"code":404,"message":"no"}}', status="404 Not Found")
            error = {"code": -32601, "message": f"Method not found: {name}"}
            return answer(dump({"jsonrpc": "2.0", "id": document["id"], "error": error}))
        return answer(dump(result if self._rest else {"jsonrpc": "2.0", "id": document["id"], "result": result}))


@asynccontextmanager
async def enrolled(
    http: httpx.AsyncClient, worker: Played, role: str, *, dialect: str, rest: bool = False, streaming: bool = False
) -> AsyncIterator[RawServer]:
    """The worker serves and is enrolled inside the block."""
    async with RawServer(worker) as server:
        binding = "HTTP+JSON" if rest else "JSONRPC"
        way = {"url": server.url, "protocolBinding": binding, "protocolVersion": dialect}
        card = {"name": role, "supportedInterfaces": [way], "capabilities": {"streaming": streaming}}
        response = await http.put(f"/registry/agents/{role}/w", json={"url": server.url, "card": card})
        assert response.status_code in (200, 201), response.text
        try:
            yield server
        finally:
            await http.delete(f"/registry/agents/{role}:w")
