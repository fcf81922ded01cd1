"""The forwarder port: calls to workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.value import Value
from rolecall.model.worker import Offer


class Dispatch(Value, frozen=True):
    """One message on its way to a worker. `ids.worker_task` is set where the message continues a task.
    `references` translates the task ids that the message refers to into the worker's.
    """

    send: Send
    ids: Ids
    references: dict[str, str]


class Attach(Value, frozen=True):
    """Come back to a task's stream. With `position` the worker replays exactly what follows it."""

    ids: Ids
    position: str | None
    trace: str | None = None


class Forwarder(Protocol):
    """Calls workers. Nothing here is ever repeated by itself.

    Every method raises WorkerUnreachable (nothing was sent), WorkerRefused (said that it did nothing), WorkerBroke (was cut
    or timed out after the call had left), InvalidAnswer, WorkerFault (the worker's own JSON-RPC error).
    """

    def deliver(self, offer: Offer, dispatch: Dispatch) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Send a message; entering returns once the worker's answer has begun. Streams if the worker can, else asks it not
        to block and yields its one answer. Batches hold what arrived together; an empty one is a sign of life. The iterator
        ends where the worker ended its answer properly; a cut raises WorkerBroke. While nobody iterates, the worker is
        held back.
        """

    def attach(self, offer: Offer, attach: Attach) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Come back to a stream. WorkerFault if the worker does not know the task."""

    async def fetch(self, offer: Offer, ids: Ids) -> WorkerEvent:
        """The worker's task as of now."""

    async def cancel(self, offer: Offer, ids: Ids) -> WorkerEvent: ...

    async def probe(self, offer: Offer) -> bool:
        """Does anything accept connections at that address?"""
