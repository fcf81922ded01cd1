"""The forwarder port: calls to workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rolecall.errors import HubError
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


class AnswerListener(Protocol):
    """Is told on the loop what a worker answers, never within the call that started or resumed it."""

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        """Events that arrived together. Empty: a sign of life, such as the answer's head, or a part of a long event."""

    def closed(self, error: HubError | None) -> None:
        """Once, and last. None: the worker has ended its answer properly."""


class OpenCall(Protocol):
    """One answer on its way."""

    def pause(self) -> None:
        """Tell nothing until `resume`. What arrives meanwhile is bounded: then the worker's stream waits."""

    def resume(self) -> None: ...

    def hang_up(self) -> None:
        """Tell nothing more. What has not arrived is cancelled."""


class Forwarder(Protocol):
    """Calls workers. No call is repeated automatically.

    Errors: WorkerUnreachable (nothing was sent), WorkerRefused (the worker answered that it did nothing), WorkerBroke (cut
    or timed out after the call was sent), InvalidAnswer, WorkerFault (the worker's own JSON-RPC error).
    """

    def deliver(self, offer: Offer, dispatch: Dispatch, listener: AnswerListener) -> OpenCall:
        """Send a message. Streams if the worker can, else asks it not to block and gives its one answer. RequestError: the
        message cannot be expressed for this worker. Every other error is told to the listener.
        """

    def attach(self, offer: Offer, attach: Attach, listener: AnswerListener) -> OpenCall:
        """Read a task's stream again. WorkerFault if the worker does not know the task."""

    async def fetch(self, offer: Offer, ids: Ids) -> WorkerEvent:
        """The worker's current task."""

    async def cancel(self, offer: Offer, ids: Ids) -> WorkerEvent: ...

    async def probe(self, offer: Offer) -> bool:
        """Whether anything accepts connections at that address."""
