"""A worker's answer as an asynchronous iterator, for the relay as it is until it takes the answer's callbacks itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from hub.ports.forwarder import AnswerListener, WorkerCall
from rolecall.errors import HubError
from rolecall.model.a2a import PAUSED, TERMINAL, WorkerEvent

_LAST = TERMINAL | PAUSED
"""The end of the answer usually follows at once."""


class Batches:
    """Entering starts the call and returns when the answer has begun; leaving hangs up."""

    def __init__(self, start: Callable[[AnswerListener], WorkerCall]) -> None:
        self._start = start
        self._call: WorkerCall | None = None
        self._received: deque[Sequence[WorkerEvent]] = deque()
        self._over = False
        self._error: HubError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Batches:
        self._call = self._start(self)
        try:
            await anext(self, None)
        except BaseException:
            self._call.hang_up()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._call is not None:
            self._call.hang_up()

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Sequence[WorkerEvent]:
        assert self._call is not None
        if not self._received and not self._over:
            self._waiter = asyncio.get_running_loop().create_future()
            self._call.resume()
            await self._waiter
        if self._received:
            return self._received.popleft()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    # --- the listener

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        assert self._call is not None
        self._received.append(batch)
        if not batch or batch[-1].state not in _LAST:
            self._call.pause()
        self._wake()

    def closed(self, error: HubError | None) -> None:
        self._over, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
