"""A stream of events that survives cuts: it reconnects with its cursor and resumes after it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from rolecall.model.a2a import PAUSED, JsonObject
from rolecall.protocol.sse import Frame, FrameReader, FrameTooLong
from rolecall.protocol.text.jsontext import NotJson, parse
from worker_sdk.calling.http import HubLink, rpc_error
from worker_sdk.calling.reply import Reply, StreamEvent, event_of
from worker_sdk.errors import HubBusy, HubUnreachable, RolecallError, StreamLost

_LARGEST_EVENT = 64 * 1024 * 1024


class HubStream:
    """`async with` sends the message; iterate once. Leaving the block early does not stop the task.

    `task_id`, `context_id` and `cursor` are known after the first event. `repeats`: the message is sent again until its first
    event comes. The hub recognises it; where it may not, it must not be sent twice.
    """

    def __init__(
        self,
        link: HubLink,
        path: str,
        method: str,
        params: JsonObject,
        *,
        give_up_after: float,
        after: str | None = None,
        repeats: bool = False,
        backoff: tuple[float, float] = (0.1, 5.0),
    ) -> None:
        self._link = link
        self._path, self._method, self._params = path, method, params
        self._give_up_after = give_up_after
        self._repeats = repeats
        self._backoff = backoff
        self.cursor = after
        self.task_id: str | None = params.get("id")
        self.context_id: str | None = None
        self._resting = False
        self._lost_since: float | None = None
        self._pause = backoff[0]
        self._open: AbstractAsyncContextManager[AsyncIterator[bytes]] | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> HubStream:
        if self._open is None:
            await self.open()
        return self

    async def open(self) -> None:
        """Send the message, before the block is entered. To be followed by `async with`."""
        try:
            await self._connect(self._method, self._params)
        except (HubUnreachable, HubBusy, StreamLost) as error:
            if not self._comes_back(error):
                raise
            await self._resume(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._disconnect()

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        resumed = False
        while True:
            try:
                async for frame in self._frames():
                    event = self._event(frame)
                    repeated = resumed and event.kind == "task" and event.cursor == self.cursor
                    resumed, self._lost_since = False, None
                    self._note(event)
                    # The Task as of our own cursor adds nothing, unless it has ended.
                    if not repeated or event.is_last:
                        yield event
                    if event.is_last:
                        return
            except (StreamLost, HubUnreachable, HubBusy) as error:
                if self.task_id is None and isinstance(error, HubBusy) and not self._comes_back(error):
                    raise
                await self._resume(error)
            else:
                if self._resting:
                    return
                await self._resume(StreamLost("The stream ended before the task."))
            resumed = True

    # --- frames

    async def _frames(self) -> AsyncIterator[Frame]:
        assert self._chunks is not None
        reader = FrameReader(limit=_LARGEST_EVENT)
        async for chunk in self._chunks:
            try:
                frames = reader.feed(chunk)
            except FrameTooLong as error:
                raise RolecallError(f"The hub sent {error}.") from error
            for frame in frames:
                yield frame

    def _event(self, frame: Frame) -> StreamEvent:
        try:
            envelope = parse(frame.data)
        except NotJson as error:
            raise RolecallError("The hub sent an event that is not JSON.") from error
        if isinstance(envelope, dict) and isinstance(envelope.get("error"), dict):
            raise rpc_error(envelope["error"])
        return event_of(envelope.get("result") if isinstance(envelope, dict) else None, frame.id)

    def _note(self, event: StreamEvent) -> None:
        self.cursor = event.cursor or self.cursor
        if event.state is not None:
            self._resting = event.state in PAUSED
        if event.kind == "task":
            task = Reply(event.raw)
            self.task_id, self.context_id = task.task_id, task.context_id

    # --- connections

    def _comes_back(self, error: RolecallError) -> bool:
        """The same message may be sent again later: the hub was not there, or is going down."""
        return self._repeats and (not isinstance(error, HubBusy) or error.reason == "HUB_DRAINING")

    async def _connect(self, method: str, params: JsonObject) -> None:
        opened = self._link.stream(self._path, method, params, last_event_id=self.cursor)
        self._chunks = await opened.__aenter__()
        self._open = opened

    async def _disconnect(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.__aexit__(None, None, None)

    async def _resume(self, cut: RolecallError) -> None:
        """Resubscribe with back-off until it succeeds or `give_up_after` seconds have passed."""
        await self._disconnect()
        if self.task_id is None and not self._repeats:
            raise StreamLost(f"{cut} No event had arrived, so the call may or may not have run.") from cut
        loop = asyncio.get_running_loop()
        low, high = self._backoff
        # A hub that accepts the call and cuts again before the first event does not count as back.
        if self._lost_since is None:
            self._lost_since, self._pause = loop.time(), low
        while True:
            self._pause = min(high, self._pause * 2)
            await asyncio.sleep(random.uniform(low / 2, self._pause))
            if loop.time() > self._lost_since + self._give_up_after:
                if self.task_id is None:
                    raise StreamLost(f"{cut} The hub did not come back, and the call may or may not have run.") from cut
                facts = {"taskId": self.task_id, "cursor": self.cursor or ""}
                raise StreamLost(
                    f"The stream of task {self.task_id} was cut, and the hub did not come back. Follow the task to resume.",
                    facts=facts,
                ) from cut
            try:
                if self.task_id is None:
                    await self._connect(self._method, self._params)
                else:
                    await self._connect("tasks/resubscribe", {"id": self.task_id})
            except (HubUnreachable, HubBusy, StreamLost) as error:
                if self.task_id is None and isinstance(error, HubBusy) and not self._comes_back(error):
                    raise
                cut = error
                continue
            return
