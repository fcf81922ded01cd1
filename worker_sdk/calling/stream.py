"""A stream of events that survives cuts: it reconnects with its cursor and resumes after it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType

from rolecall.model.a2a import PAUSED, EventKind, JsonObject
from rolecall.model.card import SEQUENCE_EXTENSION
from rolecall.model.fold import TaskFold
from rolecall.protocol.sse import Frame, FrameReader, FrameTooLong
from rolecall.protocol.text.jsontext import NotJson, parse
from worker_sdk.calling.http import HubLink, StreamedAnswer, rpc_error
from worker_sdk.calling.messages import attach
from worker_sdk.calling.reply import Reply, StreamEvent, event_of, repeats, with_files
from worker_sdk.errors import AuthError, HubBusy, HubUnreachable, RolecallError, StreamLost, TaskNotFound
from worker_sdk.files.parts import Files, fetch

_LARGEST_EVENT = 64 * 1024 * 1024
_WAIT_FOR_KNOWN, _WAIT_FOR_END = 10.0, 0.1


class HubStream:
    """`async with` sends the message, after the files in it; iterate once. Leaving the block early does not stop the task.

    `task_id` is known as soon as the hub has the call, `context_id` and `cursor` after the first event. `repeats`: the message
    is sent again until the hub has it. The hub recognises it; where it may not, it must not be sent twice. `fetch_files`: small
    files at the hub are in memory before their event is given. `called`: the role, of a call in a task.
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
        files: Files | None = None,
        fetch_files: bool = True,
        called: str = "",
        backoff: tuple[float, float] = (0.1, 5.0),
    ) -> None:
        self._link = link
        self._path, self._method, self._params = path, method, params
        self._files, self._fetch_files = files, fetch_files
        self._give_up_after = give_up_after
        self._repeats = repeats
        self._backoff = backoff
        self._called = called
        self._answers: str | None = (params.get("message") or {}).get("taskId")
        self._has_seen = after
        """The cursor up to which the reader knows the task."""
        self.cursor = after
        self.task_id: str | None = params.get("id") or self._answers
        self.context_id: str | None = None
        self._accepted = "id" in params
        """The hub has the call, so it can be followed."""
        self._begun = self._resting = self._ended = False
        self._token: str | None = None
        """With which it was opened."""
        self._lost_since: float | None = None
        self._pause = backoff[0]
        self._open: AbstractAsyncContextManager[StreamedAnswer] | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> HubStream:
        if self._open is None:
            await self.open()
        return self

    async def open(self) -> None:
        """Send the message, before the block is entered. To be followed by `async with`."""
        await attach(self._params.get("message", {}), self._files)
        try:
            await self._connect(self._method, self._params)
        except RolecallError as error:
            if not isinstance(error, HubUnreachable | HubBusy | StreamLost) or not self._comes_back(error):
                error.about(self.task_id)
                error.called = self._called
                raise
            await self._resume(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._disconnect()

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        try:
            async for event in self._events():
                yield event
        except RolecallError as error:
            # Before the first event only the hub knows whether there is a task: a call that is refused leaves none.
            lost = self._begun or self._answers or isinstance(error, StreamLost | HubUnreachable)
            error.about(self.task_id if lost else None)
            error.called = self._called
            raise

    @property
    def lost_since(self) -> float | None:
        """Since when the hub is away, in seconds of the loop's clock. None: it is not."""
        return self._lost_since

    async def reply(self) -> Reply:
        """Read all events, and return the task as it is then, or the bare message. Instead of iterating."""
        task: TaskFold | None = None
        self._fetch_files = False  # before the end nobody asks for them
        async for event in self:
            if event.kind == "message":
                return await self._reply_of(event.raw)
            if event.kind == "task":
                task = TaskFold(event.raw)
            elif task is not None:
                task.add(EventKind(event.raw["kind"]), event.raw)
        if task is None:
            raise StreamLost("The stream ended without an event.", facts={"taskId": self.task_id or ""})
        return await self._reply_of(task.document)

    async def _reply_of(self, document: JsonObject) -> Reply:
        return replace(await with_files(document, self._files), called=self._called)

    async def _events(self) -> AsyncIterator[StreamEvent]:
        resumed = False
        while True:
            try:
                async for frame in self._frames():
                    event = await self._event(frame)
                    repeated = resumed and event.kind == "task" and event.cursor == self.cursor
                    resumed, self._lost_since = False, None
                    self._note(event)
                    self._ended = event.is_last
                    # The Task as of our own cursor adds nothing, unless it has ended.
                    if not repeated or event.is_last:
                        await self._fetch(event)
                        yield event
                    if event.is_last:
                        return
            except (StreamLost, HubUnreachable, HubBusy) as error:
                if not self._begun and isinstance(error, HubBusy) and not self._comes_back(error):
                    raise
                await self._resume(error)
            except AuthError as error:
                if not self._accepted or self._link.token in (None, self._token):
                    raise
                await self._resume(error)  # the token was replaced while the stream was open
            except TaskNotFound as error:
                if self._begun or not resumed:
                    raise
                self._accepted = False
                if self._repeats:
                    await self._resume(error)
                    continue
                lost = "The stream was cut before its first event, and the hub has taken the call back: it did not run."
                raise StreamLost(lost, hint="Send it again.") from None
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
                raise RolecallError(f"The hub sent {error}.") from None
            for frame in frames:
                yield frame

    async def _event(self, frame: Frame) -> StreamEvent:
        try:
            envelope = parse(frame.data)
        except NotJson:
            raise RolecallError("The hub sent an event that is not JSON.") from None
        if isinstance(envelope, dict) and isinstance(envelope.get("error"), dict):
            raise rpc_error(envelope["error"])
        event = event_of(envelope.get("result") if isinstance(envelope, dict) else None, frame.id, self._files)
        if event.kind != "task":
            return event
        known = await self._known_of(event)
        return event if known is None else repeats(event, known)

    async def _fetch(self, event: StreamEvent) -> None:
        """RolecallError, and none that would count as a cut of the stream: the event has been read."""
        try:
            if self._fetch_files:
                await fetch(event.found.values(), all_there=False)
        except (StreamLost, HubUnreachable, HubBusy) as error:
            raise RolecallError(f"A file of the event could not be read: {error}", reason=error.reason) from None

    async def _known_of(self, event: StreamEvent) -> JsonObject | None:
        """What the reader had of the task that this event repeats: all of it, or as much as when it answered the task's
        question. None: nothing.
        """
        if self._has_seen is not None and self._has_seen == event.cursor:
            return event.raw
        message = (event.raw.get("status") or {}).get("message")
        if self._begun or self._answers is None or not (event.raw.get("artifacts") or message):
            return None
        before = {"after": int(event.cursor or 1) - 1}
        params = {"id": self._answers, "metadata": {SEQUENCE_EXTENSION: before}}
        try:
            known: JsonObject = await self._link.call("/", "tasks/get", params, timeout=_WAIT_FOR_KNOWN)
        except RolecallError:
            return None  # rather a text twice than none
        return known

    def _note(self, event: StreamEvent) -> None:
        self._begun = self._accepted = True
        self.cursor = self._has_seen = event.cursor or self.cursor
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
        self._token = self._link.token
        opened = self._link.stream(self._path, method, params, last_event_id=self.cursor)
        self._chunks, task = await opened.__aenter__()
        self._open = opened
        if task is not None and self._answers is None:
            self.task_id, self._accepted = task, True

    async def _disconnect(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            if self._ended:
                await self._read_end()
            await opened.__aexit__(None, None, None)

    async def _read_end(self) -> None:
        """The hub ends its answer right behind the last event. Only when that is read can the connection be used again."""
        assert self._chunks is not None
        try:
            async with asyncio.timeout(_WAIT_FOR_END):
                async for _ in self._chunks:
                    pass
        except (StreamLost, TimeoutError):
            pass  # it is closed

    async def _resume(self, cut: RolecallError) -> None:
        """Resubscribe with back-off until it succeeds or `give_up_after` seconds have passed."""
        await self._disconnect()
        if not self._accepted and not self._repeats:
            raise StreamLost(f"{cut} No event had arrived, so the call may or may not have run.") from None
        loop = asyncio.get_running_loop()
        low, high = self._backoff
        # A hub that accepts the call and cuts again before the first event does not count as back.
        if self._lost_since is None:
            self._lost_since, self._pause = loop.time(), low
        while True:
            self._pause = min(high, self._pause * 2)
            await asyncio.sleep(random.uniform(low / 2, self._pause))
            if loop.time() > self._lost_since + self._give_up_after:
                facts = {"taskId": self.task_id or "", "cursor": self.cursor or ""}
                if not self._accepted:
                    lost = f"{cut} The hub did not come back, and the call may or may not have run."
                    raise StreamLost(lost, facts=facts) from None
                lost = f"The stream of task {self.task_id} was cut, and the hub did not come back. {cut}"
                raise StreamLost(f"{lost} Follow the task to resume.", facts=facts) from None
            try:
                if self._accepted:
                    await self._connect("tasks/resubscribe", {"id": self.task_id})
                else:
                    await self._connect(self._method, self._params)
            except (HubUnreachable, HubBusy, StreamLost) as error:
                if not self._accepted and isinstance(error, HubBusy) and not self._comes_back(error):
                    raise
                cut = error
                continue
            return
