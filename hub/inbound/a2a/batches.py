"""JSON-RPC batches. Each entry is a call of its own for the limits of its caller, and their answers have one size together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hub.core.shares.answers import AnswerShare
from hub.core.shares.share import SMALL
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.rate_limiter import RateLimiter
from rolecall.errors import AnswerNotInBatch, InvalidRequest, NotRun, RouteError
from rolecall.model.ids import Caller

_AT_ONCE = 10
"""Entries of one batch that run at the same time."""

Run = Callable[[Any], Awaitable[bytes]]
Refuse = Callable[[Any, RouteError], bytes]


class Batches:
    """`entries`: how many a batch may hold. `size`: bytes of a batch's answer. What is refused above it is not counted."""

    def __init__(
        self, rate_limiter: RateLimiter, call_turns: CallTurns, unsent: AnswerShare, *, entries: int, size: int
    ) -> None:
        self._rate_limiter = rate_limiter
        self._call_turns = call_turns
        self._unsent = unsent
        self._entries = entries
        self._size = size

    @asynccontextmanager
    async def answered(
        self, entries: Sequence[Any], workspace: str, caller: Caller | None, run: Run, refuse: Refuse
    ) -> AsyncIterator[bytes]:
        """The answers to the entries, in the same order. They count for the workspace until the end of the block. `caller`: to
        whom the limits apply. InvalidRequest, ClientDisconnected.
        """
        if self._entries == 0:
            raise InvalidRequest("Batch requests are not supported.")
        if not entries:
            raise InvalidRequest("A batch must hold at least one request.")
        if len(entries) > self._entries:
            raise InvalidRequest(f"A batch may hold {self._entries} requests; this one holds {len(entries)}.")
        batch = _Batch(self._rate_limiter, self._call_turns, self._unsent, self._size, entries, workspace, caller, run, refuse)
        try:
            await batch.run()
            yield batch.body()
        finally:
            batch.close()


class _Batch:
    def __init__(
        self,
        rate_limiter: RateLimiter,
        call_turns: CallTurns,
        unsent: AnswerShare,
        limit: int,
        entries: Sequence[Any],
        workspace: str,
        caller: Caller | None,
        run: Run,
        refuse: Refuse,
    ) -> None:
        self._answers = [b""] * len(entries)
        self._rate_limiter = rate_limiter
        self._call_turns = call_turns
        self._unsent = unsent
        self._limit = limit
        self._pending = iter(enumerate(entries))
        self._workspace = workspace
        self._caller = caller
        self._run = run
        self._refuse = refuse
        self._size = 0
        self._counted: list[int] = []
        self._small = 0
        """Bytes of small answers. The share counts them when they are not small together."""
        self._full = False
        """An answer did not fit. What has not been started is not run: it would be work for nothing."""

    async def run(self) -> None:
        """ClientDisconnected."""
        works = [asyncio.create_task(self._work(), name="batch") for _ in range(min(_AT_ONCE, len(self._answers)))]
        try:
            await asyncio.gather(*works)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    def body(self) -> bytes:
        answers, self._answers = self._answers, []
        return b"[" + b",".join(answers) + b"]"

    def close(self) -> None:
        for size in self._counted:
            self._unsent.give_back(self._workspace, size)

    async def _work(self) -> None:
        for number, entry in self._pending:
            # The HTTP request has had its turn, as its first entry.
            turn = self._call_turns.take(self._workspace) if number else None
            if turn is not None:
                await turn
            try:
                self._answers[number] = await self._answer(number, entry)
            except RouteError as error:
                self._answers[number] = self._refuse(entry, error)

    async def _answer(self, number: int, entry: Any) -> bytes:
        """TooManyRequests, TooManyAtOnce, NotRun, AnswerNotInBatch, AnswerNotSent."""
        if self._full:
            raise NotRun(self._limit)
        # The HTTP request has been counted, as its first entry.
        counted = self._caller if number else None
        if counted is not None:
            self._rate_limiter.enter(counted)
        try:
            answer = await self._run(entry)
        finally:
            if counted is not None:
                self._rate_limiter.leave(counted)
        self._keep(len(answer))
        return answer

    def _keep(self, size: int) -> None:
        if self._size + size > self._limit:
            self._full = True
            raise AnswerNotInBatch(size, self._limit)
        if self._small + size >= SMALL:
            self._unsent.take(self._workspace, self._small + size)
            self._counted.append(self._small + size)
            self._small = 0
        else:
            self._small += size
        self._size += size
