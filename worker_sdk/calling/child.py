"""A child of a task: follows it to its end, and passes its questions on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from rolecall.model.a2a import PAUSED, JsonObject
from worker_sdk.calling.http import HubLink
from worker_sdk.calling.reply import Reply, read_reply, reply_of
from worker_sdk.calling.stream import HubStream
from worker_sdk.errors import HubBusy, HubUnreachable, InvalidRequest, RolecallError, TaskNotFound
from worker_sdk.files.parts import Files
from worker_sdk.words import Message

_CANCEL_WAIT = 2.0
_LOOK_WAIT = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
GIVE_UP_AFTER = 60.0


class ChildQuestion(NamedTuple):
    """What a child asks. `event`: the one of the child that asks it. `gone_on`: whether it has been answered elsewhere."""

    text: str
    child: str
    event: str | None
    gone_on: Callable[[], Awaitable[bool]]


Ask = Callable[[ChildQuestion], Awaitable[Message | None]]
"""Asks the caller of the parent. None: the child has gone on without this answer."""


class LinkOf(Protocol):
    def __call__(self, *words: str) -> HubLink:
        """The hub, for a call in the parent; `words`: see Lease.link_within."""


class ChildCall:
    """`stream` begins the child. `answer` sends it a further message. `files`: those that its results may name."""

    def __init__(
        self,
        link: LinkOf,
        stream: HubStream,
        answer: Callable[[str, Message], HubStream],
        *,
        goes_on: bool,
        files: Files | None,
    ) -> None:
        self._link = link
        self._files = files
        self._stream = stream
        self._answer = answer
        self._goes_on = goes_on
        self._status: JsonObject = {}
        self._asks = False

    async def reply(self, ask: Ask | None) -> Reply:
        """Its end, or its question if nobody can be asked. A call that is cancelled cancels the child."""
        try:
            reply = await self._followed(self._stream)
            while ask is not None and reply.state in PAUSED:
                reply = await self._followed(await self._after(ask, reply))
            return reply
        except asyncio.CancelledError:
            with suppress(RolecallError):
                await asyncio.shield(asyncio.create_task(self._leave(), name=f"leaving the child {self._stream.task_id}"))
            raise

    async def _followed(self, stream: HubStream) -> Reply:
        """Read a stream until the child has ended or asks something."""
        self._stream = stream
        async with stream:
            async for event in stream:
                if event.kind == "message":
                    return await read_reply(event.raw, self._files)
                self._status = event.raw.get("status") or self._status
        paused = Reply({"kind": "task", "id": stream.task_id, "contextId": stream.context_id, "status": self._status})
        return paused if paused.state in PAUSED else await self._now()

    async def _after(self, ask: Ask, asking: Reply) -> HubStream:
        """Ask, and return the stream of what follows."""
        child, cursor = str(asking.task_id), self._stream.cursor
        text = asking.message.text if asking.message else ""
        self._asks = True
        answer = await ask(ChildQuestion(text, child, cursor, self._gone_on))
        self._asks = False
        named = {"id": child}
        following = HubStream(
            self._link(), "/", "tasks/resubscribe", named, give_up_after=GIVE_UP_AFTER, after=cursor, repeats=True
        )
        if answer is None:
            return following
        answering = self._answer(child, Message({"parts": answer.raw["parts"]}))
        try:
            await answering.open()
        except InvalidRequest:
            if not await self._gone_on():
                raise
            return following
        return answering

    async def _gone_on(self) -> bool:
        """Whether the child has another status than the one that asked. False: or the hub cannot be asked now."""
        try:
            reply = reply_of(await self._link().call("/", "tasks/get", self._named, timeout=_LOOK_WAIT))
        except TaskNotFound:
            return True
        except RolecallError:
            return False
        return _mark(reply.raw.get("status") or {}) != _mark(self._status)

    async def _now(self) -> Reply:
        """The child as it is, as soon as the hub can be asked."""
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        until = loop.time() + GIVE_UP_AFTER
        while True:
            try:
                return await self._read()
            except (HubUnreachable, HubBusy):
                if loop.time() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _read(self) -> Reply:
        return await read_reply(await self._link().call("/", "tasks/get", self._named, timeout=30.0), self._files)

    async def _leave(self) -> None:
        if self._stream.task_id is None:
            return
        if not self._goes_on:
            await self._link().call("/", "tasks/cancel", self._named, timeout=_CANCEL_WAIT)
        elif self._asks:  # the parent was paused for it, and the hub cannot know that it goes on
            await self._link("resumed").call("/", "tasks/get", self._named, timeout=_LOOK_WAIT)

    @property
    def _named(self) -> JsonObject:
        return {"id": self._stream.task_id}


def _mark(status: JsonObject) -> tuple[object, ...]:
    return status.get("state"), status.get("timestamp"), (status.get("message") or {}).get("messageId")
