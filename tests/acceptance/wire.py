"""A client that sees every status, header and frame, in JSON-RPC and REST; and workers that a script plays over a socket."""

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


class Told(NamedTuple):
    """One frame of a stream."""

    cursor: int
    event: str | None
    document: dict[str, Any]


@dataclass
class Wire:
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

    async def rest(self, verb: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = None if body is None else dump(body)
        return await self.http.request(verb, path, content=content, headers={**JSON, **_named(headers)})

    async def frames(self, verb: str, path: str, body: Any = None, most: int = 1000, **headers: str) -> list[Told]:
        """What a stream says, up to so many frames; then the line is cut."""
        content = None if body is None else dump(body)
        told: list[Told] = []
        reader = FrameReader()
        async with self.http.stream(verb, path, content=content, headers={**JSON, **_named(headers)}) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            async for chunk in response.aiter_raw():
                told += [Told(int(f.id or 0), f.event, parse(f.data)) for f in reader.feed(chunk) if f.data]
                if len(told) >= most:
                    break
        return told[:most]

    async def stream(self, method: str, params: Any, path: str = "/", most: int = 1000, **headers: str) -> list[Told]:
        """The same for JSON-RPC: the results of its frames."""
        body = {"jsonrpc": "2.0", "id": "s", "method": method, "params": params}
        told = await self.frames("POST", path, body, most, **headers)
        assert all(frame.document["id"] == "s" for frame in told)
        return [frame._replace(document=frame.document.get("result") or frame.document) for frame in told]


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Keywords have no dashes."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


Reply = Callable[[str, dict[str, Any]], Any]
"""From the name of a method (or verb and path) and its params to a result; a KeyError is an unknown method."""


class Played:
    """A worker that answers each call as `reply` says. `asked` has the names of the calls, `requests` all of them."""

    def __init__(self, reply: Reply, *, rest: bool = False) -> None:
        self._reply = reply
        self._rest = rest
        self.asked: list[str] = []
        self.told: list[tuple[Request, dict[str, Any]]] = []

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            await peer.write(self._answer(request))

    def _answer(self, request: Request) -> bytes:
        document = parse(request.body) if request.body else {}
        verb, path, _ = request.line.split(" ")
        name = f"{verb} {path}" if self._rest else document["method"]
        self.asked.append(name)
        self.told.append((request, document if self._rest else document["params"]))
        try:
            result = self._reply(name, self.told[-1][1])
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
    """It serves and is listed for as long as the block lasts."""
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
