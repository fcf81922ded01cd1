"""Test a worker: its handler runs with the real task log and rules, but without a port or a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from rolecall.model.a2a import TaskState
from rolecall.protocol.text.jsontext import parse
from worker_sdk.calling.client import message_document, with_skill
from worker_sdk.calling.reply import Reply, StreamEvent, event_of, repeats, reply_of
from worker_sdk.testing.hub import TestHub

if TYPE_CHECKING:
    from worker_sdk.calling.client import MessageLike
    from worker_sdk.handlers.models import ModelT
    from worker_sdk.tasks.task_table import Delivery, Tasks
    from worker_sdk.worker import Worker


class Bench:
    """`async with worker.test() as t:`. Errors are those of rolecall.errors. Leaving the block stops running tasks.

    `roles`: the workers that its handlers can call, as benches, for a test that answers a child itself.
    """

    def __init__(self, worker: Worker, roles: Mapping[str, Worker] | None = None) -> None:
        self._worker = worker
        self.roles = {role: Bench(one) for role, one in (roles or {}).items()}
        self._hub: TestHub | None = None

    @property
    def tasks(self) -> Tasks:
        return self._worker.tasks

    async def __aenter__(self) -> Bench:
        benches = {**self.roles, self._worker.role: self}
        for bench in benches.values():
            bench._worker.reset()
        self._hub = TestHub({role: bench.tasks for role, bench in benches.items()})
        for bench in benches.values():
            bench._hub = bench._worker.test_hub = self._hub
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._hub is not None
        await self._hub.close()
        for bench in (self, *self.roles.values()):
            await bench.tasks.finish(0, "The test is over.")
            bench._worker.reset()

    @overload
    async def call(
        self,
        message: MessageLike,
        *,
        returns: type[ModelT],
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        within: float | None = None,
    ) -> ModelT: ...

    @overload
    async def call(
        self,
        message: MessageLike,
        *,
        returns: None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        within: float | None = None,
    ) -> Reply: ...

    async def call(
        self,
        message: MessageLike,
        *,
        returns: type[ModelT] | None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        within: float | None = None,
    ) -> ModelT | Reply:
        """As `HubClient.call`."""
        reply = (await self.send(message, metadata=with_skill(metadata, skill), within=within)).raise_for_state()
        return reply if returns is None else reply.as_model(returns)

    async def send(
        self,
        message: MessageLike,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        blocking: bool = True,
        metadata: Mapping[str, Any] | None = None,
        within: float | None = None,
        trace: str | None = None,
    ) -> Reply:
        """Send, and wait until the task has ended or asks for input. `within` and `trace`: what the handler finds in
        `task.remaining` and `task.trace`; no test ends a task in time.
        """
        delivery = await self._deliver(message, task_id, context_id, metadata, within=within, trace=trace)
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
        delivery = await self._deliver(message, task_id, context_id, metadata)
        opening = event_of(parse(delivery.log.snapshot(upto=delivery.start)), str(delivery.start))
        yield opening if task_id is None else repeats(opening, opening.raw)
        reader = delivery.log.follow(delivery.start)
        try:
            while (batch := await reader.batch(60)) is not None:
                for logged in batch:
                    cursor, event = logged.cursor, logged.event
                    yield event_of(parse(event.body), str(cursor))
        finally:
            reader.close()

    async def look(self, task_id: str) -> None:
        """The task goes on, if the child whose question it asks has gone on: what a hub makes it do."""
        await self.tasks.look(task_id)

    async def lose(self) -> None:
        """The worker is lost: what it runs fails as the hub fails it."""
        own = {"reason": "WORKER_LOST"} | ({"idempotent": True} if self._worker.idempotent else {})
        running = [execution for execution in self.tasks if not execution.log.ended]
        for execution in running:
            execution.stop(TaskState.FAILED, f"{self._worker.name} is gone.", {"rolecall": own})
        for execution in running:
            await execution.wait_ended()

    async def get(self, task_id: str) -> Reply:
        return reply_of(parse(self.tasks.get(task_id).snapshot()))

    async def cancel(self, task_id: str) -> Reply:
        return reply_of(parse((await self.tasks.cancel(task_id)).snapshot()))

    async def _deliver(
        self,
        message: MessageLike,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
        **headers: Any,
    ) -> Delivery:
        document = message_document(message, task_id=task_id, context_id=context_id)
        assert self._hub is not None
        params = {"message": document, "metadata": dict(metadata or {})}
        delivery = self._hub.deliver(self.tasks, self._worker.role, params, **headers)
        await self._hub.look(delivery.log.task_id)
        return delivery
