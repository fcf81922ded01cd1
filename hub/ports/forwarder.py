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
    """One message on its way to a worker. `ids.worker_task` is set if the message continues a task.
    `references` maps the task ids that the message refers to, to the worker's ids.
    """

    send: Send
    ids: Ids
    references: dict[str, str]


class Attach(Value, frozen=True):
    """A request for a task's stream. With `position` the worker replays exactly what follows it."""

    ids: Ids
    position: str | None


class Forwarder(Protocol):
    """Calls workers. No call is repeated automatically.

    Every method raises WorkerUnreachable (nothing was sent), WorkerRefused (the worker answered that it did nothing),
    WorkerBroke (cut or timed out after the call was sent), InvalidAnswer, WorkerFault (the worker's own JSON-RPC error).
    """

    def deliver(self, offer: Offer, dispatch: Dispatch) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Send a message; entering returns when the worker's answer has begun. Streams if the worker can, else asks it not
        to block and yields its one answer. A batch holds what arrived together; an empty one is a sign of life. The
        iterator ends when the worker has ended its answer properly; a cut raises WorkerBroke. While the iterator is not
        read, the worker's stream is paused by backpressure.
        """

    def attach(self, offer: Offer, attach: Attach) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Read a task's stream again. WorkerFault if the worker does not know the task."""

    async def fetch(self, offer: Offer, ids: Ids) -> WorkerEvent:
        """The worker's current task."""

    async def cancel(self, offer: Offer, ids: Ids) -> WorkerEvent: ...

    async def probe(self, offer: Offer) -> bool:
        """Whether anything accepts connections at that address."""
