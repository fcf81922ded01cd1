"""A webhook receiver on loopback that records requests and gives planned answers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any, Self

from rolecall.protocol.text.jsontext import parse
from tests.helpers.raw_server import Peer, RawServer, Request, answer

Plan = int | str | float | bytes
"""A status; "hang" until the sender disconnects; "cut" the connection; seconds to wait before 200; or a whole answer."""


class Receiver:
    """An async context manager. Answers are planned with `then`; without a planned one it answers 200."""

    def __init__(self) -> None:
        self._plans: deque[Plan] = deque()
        self._server = RawServer(self._serve)
        self.got: list[Request] = []
        self.statuses: list[int] = []
        self._open: Counter[str] = Counter()
        self.most_at_once = 0
        """Concurrent requests for the same task and config."""
        self._all_open = 0
        self.most_together = 0
        self.left = 0
        """Hanging requests whose sender has disconnected."""

    def then(self, *plans: Plan) -> Self:
        self._plans.extend(plans)
        return self

    @property
    def url(self) -> str:
        return self._server.url + "hook"

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def ids(self) -> list[str]:
        """The webhook-id of every request, in order."""
        return [request.headers["webhook-id"] for request in self.got]

    @property
    def cursors(self) -> list[int]:
        return [int(name.rpartition(".")[2]) for name in self.ids]

    @property
    def bodies(self) -> list[Any]:
        return [parse(request.body) for request in self.got]

    @property
    def taken(self) -> list[int]:
        """Cursors that were answered with 2xx."""
        return [cursor for cursor, status in zip(self.cursors, self.statuses, strict=False) if 200 <= status < 300]

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._server.__aexit__(*exc)

    async def _serve(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            config = request.headers["webhook-id"].rpartition(".")[0]
            self.got.append(request)
            self._open[config] += 1
            self._all_open += 1
            self.most_at_once = max(self.most_at_once, self._open[config])
            self.most_together = max(self.most_together, self._all_open)
            try:
                if not await self._answer(peer):
                    return
            finally:
                self._open[config] -= 1
                self._all_open -= 1

    async def _answer(self, peer: Peer) -> bool:
        plan = self._plans.popleft() if self._plans else 200
        self.statuses.append(plan if isinstance(plan, int) else 200 if isinstance(plan, float) else 0)
        if plan == "hang":
            await peer.gone()
            self.left += 1
            return False
        if plan == "cut":
            peer.reset()
            return False
        if isinstance(plan, float):
            await asyncio.sleep(plan)
            plan = 200
        await peer.write(plan if isinstance(plan, bytes) else answer(b"", status=f"{plan} So"))
        return True
