"""Test a worker: its handler runs with the real task log and rules, but without a port or a hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from rolecall.model.a2a import TaskState
from rolecall.protocol.text.jsontext import parse
from worker_sdk.calling.messages import attach, call_metadata, message_document
from worker_sdk.calling.reply import Reply, StreamEvent, event_of, read_reply, repeats
from worker_sdk.files.parts import Files, fetch
from worker_sdk.testing.hub import TestHub

if TYPE_CHECKING:
    from worker_sdk.calling.messages import FileLike, MessageLike
    from worker_sdk.handlers.models import ModelT
    from worker_sdk.tasks.task_table import Delivery, Tasks
    from worker_sdk.words import Budget
    from worker_sdk.worker import Worker


class Bench:
    """`async with worker.test() as t:`. Errors are those of rolecall.errors. Leaving the block stops running tasks.
    Files larger than the worker's `file_threshold` are by reference in both directions, as at a hub.

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
        budget: Budget | None = None,
        within: float | None = None,
        files: Sequence[FileLike] = (),
    ) -> ModelT: ...

    @overload
    async def call(
        self,
        message: MessageLike,
        *,
        returns: None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        files: Sequence[FileLike] = (),
    ) -> Reply: ...

    async def call(
        self,
        message: MessageLike,
        *,
        returns: type[ModelT] | None = None,
        skill: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        files: Sequence[FileLike] = (),
    ) -> ModelT | Reply:
        """As `HubClient.call`."""
        reply = await self.send(message, metadata=call_metadata(metadata, skill, budget), within=within, files=files)
        reply.raise_for_state()
        return reply if returns is None else reply.as_model(returns)

    async def send(
        self,
        message: MessageLike,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        blocking: bool = True,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        within: float | None = None,
        trace: str | None = None,
        files: Sequence[FileLike] = (),
    ) -> Reply:
        """Send, and wait until the task has ended or asks for input. `within` and `trace`: what the handler finds in
        `task.remaining` and `task.trace`; no test ends a task in time.
        """
        whole = call_metadata(metadata, budget=budget)
        delivery = await self._deliver(message, task_id, context_id, whole, files, within=within, trace=trace)
        if blocking:
            await delivery.log.wait_until_resting()
        return await read_reply(parse(delivery.log.snapshot()), self._files)

    async def stream(
        self,
        message: MessageLike,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        files: Sequence[FileLike] = (),
    ) -> AsyncIterator[StreamEvent]:
        """The Task, then the events that answer this message, as they come."""
        delivery = await self._deliver(message, task_id, context_id, call_metadata(metadata, budget=budget), files)
        opening = await self._event(delivery.log.snapshot(upto=delivery.start), delivery.start)
        yield opening if task_id is None else repeats(opening, opening.raw)
        reader = delivery.log.follow(delivery.start)
        try:
            while (batch := await reader.batch(60)) is not None:
                for logged in batch:
                    yield await self._event(logged.event.body, logged.cursor)
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
        return await read_reply(parse(self.tasks.get(task_id).snapshot()), self._files)

    async def cancel(self, task_id: str) -> Reply:
        return await read_reply(parse((await self.tasks.cancel(task_id)).snapshot()), self._files)

    async def _event(self, body: bytes, cursor: int) -> StreamEvent:
        event = event_of(parse(body), str(cursor), self._files)
        await fetch(event.found.values(), all_there=False)
        return event

    @property
    def _files(self) -> Files:
        assert self._hub is not None
        return self._hub.files_of(self._worker)

    async def _deliver(
        self,
        message: MessageLike,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
        files: Sequence[FileLike],
        **headers: Any,
    ) -> Delivery:
        document = message_document(message, files=files, task_id=task_id, context_id=context_id)
        await attach(document, self._files)
        assert self._hub is not None
        params = {"message": document, "metadata": dict(metadata or {})}
        delivery = self._hub.deliver(self.tasks, self._worker.role, params, **headers)
        await self._hub.look(delivery.log.task_id)
        return delivery
