"""Test a worker: its handler runs with the real task log and rules, but without a port or a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from rolecall.model.command import Send, Target
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3 import requests as v03
from worker_sdk.calling.client import message_document, with_skill
from worker_sdk.calling.reply import Reply, StreamEvent, event_of, reply_of

if TYPE_CHECKING:
    from worker_sdk.calling.client import MessageLike
    from worker_sdk.handlers.models import ModelT
    from worker_sdk.tasks.task_table import Delivery, Tasks
    from worker_sdk.worker import Worker


class Bench:
    """`async with worker.test() as t:`. Errors are those of rolecall.errors. Leaving the block stops running tasks."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def tasks(self) -> Tasks:
        return self._worker.tasks

    async def __aenter__(self) -> Bench:
        self._worker.reset()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.tasks.finish(0, "The test is over.")
        self._worker.reset()

    @overload
    async def call(
        self,
        message: MessageLike,
        *,
        returns: type[ModelT],
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ModelT: ...

    @overload
    async def call(
        self,
        message: MessageLike,
        *,
        returns: None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Reply: ...

    async def call(
        self,
        message: MessageLike,
        *,
        returns: type[ModelT] | None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ModelT | Reply:
        """As `HubClient.call`."""
        reply = (await self.send(message, metadata=with_skill(metadata, skill))).raise_for_state()
        return reply if returns is None else reply.as_model(returns)

    async def send(
        self,
        message: MessageLike,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        blocking: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Send, and wait until the task has ended or asks for input."""
        delivery = self._deliver(message, task_id, context_id, metadata)
        if blocking:
            await delivery.log.wait_until_resting()
        return reply_of(parse(delivery.log.snapshot()))

    async def stream(
        self,
        message: MessageLike,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[StreamEvent]:
        """The Task, then the events that answer this message, as they come."""
        delivery = self._deliver(message, task_id, context_id, metadata)
        yield event_of(parse(delivery.log.snapshot(upto=delivery.start)), str(delivery.start))
        reader = delivery.log.follow(delivery.start)
        try:
            while (batch := await reader.batch(60)) is not None:
                for logged in batch:
                    cursor, event = logged.cursor, logged.event
                    yield event_of(parse(event.body), str(cursor))
        finally:
            reader.close()

    async def get(self, task_id: str) -> Reply:
        return reply_of(parse(self.tasks.get(task_id).snapshot()))

    async def cancel(self, task_id: str) -> Reply:
        return reply_of(parse((await self.tasks.cancel(task_id)).snapshot()))

    def _deliver(
        self,
        message: MessageLike,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Delivery:
        document = message_document(message, task_id=task_id, context_id=context_id)
        send: Send = v03.read_send({"message": document, "metadata": dict(metadata or {})}, Target())
        return self.tasks.deliver(send)
