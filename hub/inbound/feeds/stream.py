"""Answers with a feed: server-sent events, until the reader leaves, its token ends or the hub shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from quart import Response, request

from hub.core.token_watch import OpenUses
from hub.inbound.middleware.authentication import caller, token
from hub.ports.shares import Share
from rolecall.protocol.sse import KEEP_ALIVE, RESPONSE_HEADERS, write_id

_AT_ONCE = 50
"""Frames in one write, between which others run."""
_BYTES_AT_ONCE = 16 * 1024
"""A reader whose client has stopped reading keeps so many in memory, and one frame."""


class Numbered(Protocol):
    @property
    def revision(self) -> int: ...


_Change = TypeVar("_Change", bound=Numbered)
_Changes = TypeVar("_Changes", bound=Numbered, covariant=True)


class Feed(Protocol[_Changes]):
    """Batches of changes; an empty one where none came for a while. Ends after `stop`."""

    @property
    def revision(self) -> int | None:
        """Of the newest change that the reader need not get again. None: not known yet."""

    def __aiter__(self) -> Feed[_Changes]: ...
    async def __anext__(self) -> Sequence[_Changes]: ...
    def stop(self) -> None: ...


class Feeds:
    """Counts those that are open in `share`, and ends them with their tokens."""

    def __init__(self, share: Share, uses: OpenUses) -> None:
        self._share = share
        self._uses = uses

    def answer(
        self, opened: Callable[[], AbstractContextManager[Feed[_Change]]], frame: Callable[[_Change], Awaitable[bytes]]
    ) -> Response:
        """`frame`: what is sent of a change. Overloaded."""
        workspace = caller().workspace
        self._share.check(workspace)
        headers = {key.decode(): value.decode() for key, value in RESPONSE_HEADERS}
        # HEAD is answered at once, without a stream.
        frames = self._frames(opened(), frame, workspace, token()) if request.method == "GET" else None
        response = Response(frames, headers=headers)
        response.timeout = None
        return response

    async def _frames(
        self,
        opened: AbstractContextManager[Feed[_Change]],
        frame: Callable[[_Change], Awaitable[bytes]],
        workspace: str,
        token_id: str,
    ) -> AsyncGenerator[bytes, None]:
        """Comments while nothing comes, and the newest revision where no frame has it: to resume after it."""
        with opened as feed:
            self._share.fill(workspace)
            self._uses.add(token_id, feed.stop)
            try:
                sent = feed.revision
                yield KEEP_ALIVE if sent is None else KEEP_ALIVE + write_id(sent)
                async for batch in feed:
                    if not batch:
                        yield KEEP_ALIVE if feed.revision in (None, sent) else KEEP_ALIVE + write_id(feed.revision)
                    async for piece in _pieces(batch, frame):
                        yield piece
                        await asyncio.sleep(0)  # a feed from an old revision has many
                    sent = feed.revision
            finally:
                self._uses.remove(token_id, feed.stop)
                self._share.give_back(workspace)


async def _pieces(batch: Sequence[_Change], frame: Callable[[_Change], Awaitable[bytes]]) -> AsyncGenerator[bytes, None]:
    piece, size = list[bytes](), 0
    for change in batch:
        piece.append(await frame(change))
        size += len(piece[-1])
        if len(piece) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
