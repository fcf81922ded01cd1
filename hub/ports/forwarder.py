"""The forwarder port: calls to workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import field

from rolecall.errors import HubError
from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.ids import FileId
from rolecall.model.value import Value
from rolecall.model.worker import Offer


class Dispatch(Value, frozen=True):
    """One message on its way to a worker. `ids.worker_task` is set if the message continues a task.
    `references` maps the task ids that the message refers to, to the worker's ids. `remaining`: seconds until the task must be
    done. `contents`: bytes of files, as base64, that stand in the message in place of their urls.
    """

    send: Send
    ids: Ids
    references: dict[str, str]
    remaining: float | None = None
    contents: dict[FileId, str] = field(default_factory=dict)


class Attach(Value, frozen=True):
    """A request for a task's stream. With `position` the worker replays exactly what follows it."""

    ids: Ids
    position: str | None


class AnswerListener(Protocol):
    """Is told what a worker answers: on the loop, and never from within the call that started or resumed it."""

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        """Events that arrived together. An empty batch is a sign of life: the answer's head alone, a comment, or a part of
        a long event.
        """

    def closed(self, error: HubError | None) -> None:
        """The answer is over: told last, exactly once, and not after `hang_up`. None: the worker ended its answer properly.

        WorkerUnreachable (nothing was sent), CredentialRefused (the worker does not let the hub call it), WorkerRefused (the
        worker answered that it did nothing), WorkerBroke (cut or timed out after the call was sent), InvalidAnswer, WorkerFault
        (the worker's own JSON-RPC error). WorkerFull, Overloaded (the hub has no connection for the call), SecretUnreadable:
        nothing was sent.
        """


class OpenCall(Protocol):
    """A message or subscription on its way, and its answer."""

    def pause(self) -> None:
        """Tell nothing until `resume`. Back-pressure holds the worker's stream, so that what is buffered is bounded."""

    def resume(self) -> None: ...

    def hang_up(self) -> None:
        """Nothing more is told. What has not arrived is cancelled. If the last event was one that ends a worker's answer, the
        connection is kept for another call.
        """


class Forwarder(Protocol):
    """Calls workers of a workspace. No call is repeated automatically.

    `fetch` and `cancel` raise the errors of `AnswerListener.closed`.
    """

    def deliver(self, workspace: str, offer: Offer, dispatch: Dispatch, listener: AnswerListener) -> OpenCall:
        """Send a message. Streams if the worker can, else asks it not to block; its one answer is then the only event.
        RequestError at once if the message cannot be expressed for this worker; every other failure is told by `closed`.
        """

    def attach(self, workspace: str, offer: Offer, attach: Attach, listener: AnswerListener) -> OpenCall:
        """Read a task's stream again. WorkerFault if the worker does not know the task."""

    async def fetch(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent:
        """The worker's current task."""

    async def cancel(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent: ...

    async def probe(self, workspace: str, offer: Offer) -> bool:
        """Whether anything accepts connections at that address. Overloaded: the hub could not find out."""
