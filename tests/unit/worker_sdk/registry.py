"""A scripted registry on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.helpers.raw_server import Peer, RawServer, answer

Answer = tuple[int, dict[str, Any]]


class Registry:
    """`plan` lists the next answers. When it is empty every request is granted, or while `silent` none is answered.

    `requests`: each request as (method, path, body).
    """

    def __init__(self, *, heartbeat: float = 0.02) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.plan: deque[Answer] = deque()
        self.silent = False
        self._heartbeat = heartbeat
        self._epoch = 0
        self._more = asyncio.Condition()

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            method, path, _ = request.line.split(" ")
            async with self._more:
                self.requests.append((method, path, json.loads(request.body or b"{}")))
                self._more.notify_all()
            if self.silent:
                await peer.gone()
                return
            status, document = self.plan.popleft() if self.plan else self._granted(method)
            kind = "application/problem+json" if status >= 300 else "application/json"
            await peer.write(answer(json.dumps(document).encode(), status=f"{status} X", kind=kind))

    async def until(self, condition: Callable[[list[tuple[str, str, dict[str, Any]]]], bool]) -> None:
        async with asyncio.timeout(5), self._more:
            await self._more.wait_for(lambda: condition(self.requests))

    def count(self, method: str) -> int:
        return sum(requests[0] == method for requests in self.requests)

    def _granted(self, method: str) -> Answer:
        self._epoch += method == "PUT"
        return 200, {"epoch": self._epoch, "lease": f"s{self._epoch}", "ttl_seconds": 1, "heartbeat_seconds": self._heartbeat}


def refusal(status: int, reason: str) -> Answer:
    return status, {"title": reason, "status": status, "detail": f"refused: {reason}", "reason": reason, "registered": False}


def listening(registry: Registry) -> RawServer:
    return RawServer(registry)
