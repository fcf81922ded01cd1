"""What a relay has open towards its worker: one answer that it listens to, one poll, or one pause; never two."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from hub.core.files.inline import InlineFiles
from hub.core.relay.transitions import Trigger
from hub.core.supervisor import Supervisor
from hub.ports.forwarder import AnswerListener, Attach, Dispatch, Forwarder, OpenCall
from hub.ports.state.registry import Registry
from rolecall.errors import (
    HubError,
    InvalidAnswer,
    NotProcessed,
    Overloaded,
    StoreUnavailable,
    WorkerBroke,
    WorkerFault,
    WorkerFull,
    WorkerUnreachable,
)
from rolecall.model.a2a import Ids
from rolecall.model.value import replace
from rolecall.model.worker import Health, Offer, Registration

log = logging.getLogger(__name__)


class Owner(AnswerListener, Protocol):
    """Is told by the forwarder itself what the worker answers."""

    def post(self, trigger: Trigger, payload: Any = None) -> None:
        """Gets RECEIVED with a polled task, or the trigger of the error why there is none; and RETRY after a pause."""


class WorkerCall:
    """The one thing that is open. Its owner must tell it when the answer is `closed`."""

    __slots__ = (
        "_answer",
        "_forwarder",
        "_held",
        "_inline",
        "_owner",
        "_poll",
        "_reading",
        "_supervisor",
        "_timer",
        "_workspace",
    )

    def __init__(self, forwarder: Forwarder, inline: InlineFiles, workspace: str, supervisor: Supervisor, owner: Owner) -> None:
        self._forwarder = forwarder
        self._inline = inline
        self._workspace = workspace
        self._reading: asyncio.Task[None] | None = None
        """Reads the files of a message that is delivered then."""
        self._held = 0
        """Bytes of them that count for the workspace."""
        self._supervisor = supervisor
        self._owner: Owner | None = owner
        self._answer: OpenCall | None = None
        self._poll: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> bool:
        """More may come without asking."""
        return self._answer is not None

    def deliver(self, offer: Offer, dispatch: Dispatch, *, size: int) -> None:
        """`size`: bytes of the message. RequestError: it cannot be expressed for this worker."""
        assert self._owner is not None
        if dispatch.send.files and not offer.reads_files:
            reading = self._deliver_with_files(offer, dispatch, size)
            self._reading = self._supervisor.run_once(f"files for {dispatch.ids.task}", reading)
        else:
            self._answer = self._forwarder.deliver(self._workspace, offer, dispatch, self._owner)

    def attach(self, offer: Offer, attach: Attach) -> None:
        assert self._owner is not None
        self._answer = self._forwarder.attach(self._workspace, offer, attach, self._owner)

    def poll(self, offer: Offer, ids: Ids, *, after: float) -> None:
        """Fetch the worker's task, after a pause."""
        self._poll = self._supervisor.run_once(f"poll {ids.task}", self._fetch(offer, ids, after))

    def retry(self, *, after: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(after, self._post, Trigger.RETRY)

    def pause(self) -> None:
        """Take no more events until `resume`: the worker's stream is held by back-pressure."""
        if self._answer is not None:
            self._answer.pause()

    def resume(self) -> None:
        if self._answer is not None:
            self._answer.resume()

    def closed(self) -> None:
        """The answer is over."""
        self._answer = None
        self._give_back()

    def hang_up(self) -> None:
        """Nothing is told or posted after this."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.hang_up()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._give_back()
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Hang up for good."""
        self.hang_up()
        self._owner = None  # breaks a reference cycle

    def call_off(self, offer: Offer, ids: Ids) -> None:
        """The task's result is no longer needed. Nothing depends on the outcome."""
        self._supervisor.run_once(f"call off {ids.task}", self._cancel(offer, ids))

    def _post(self, trigger: Trigger, payload: Any = None) -> None:
        if self._owner is not None:
            self._owner.post(trigger, payload)

    async def _deliver_with_files(self, offer: Offer, dispatch: Dispatch, size: int) -> None:
        send, ids = dispatch.send, dispatch.ids
        # The relay empties the parameters of a large message once it is on its way.
        send = replace(send, params={**send.params})
        try:
            chosen = await self._inline.choose(ids.task, send.files, size)
            self._hold(2 * self._inline.memory(chosen))
            contents = await self._inline.read(self._workspace, chosen)
            assert self._owner is not None  # else this would have been cancelled
            filled = replace(dispatch, send=send, contents=contents)
            self._answer = self._forwarder.deliver(self._workspace, offer, filled, self._owner)
        except HubError as error:
            self._give_back()
            self._reading = None
            self._post(trigger_of(error), error)
        else:
            self._reading = None

    def _hold(self, size: int) -> None:
        """Until the answer is over, as other large messages are counted. Overloaded."""
        if size:
            self._inline.messages.take(self._workspace, size)
            self._held = size

    def _give_back(self) -> None:
        size, self._held = self._held, 0
        if size:
            self._inline.messages.give_back(self._workspace, size)

    async def _fetch(self, offer: Offer, ids: Ids, after: float) -> None:
        await asyncio.sleep(after)
        try:
            worker_event = await self._forwarder.fetch(self._workspace, offer, ids)
        except HubError as error:
            self._poll = None
            self._post(trigger_of(error), error)
        else:
            self._poll = None
            self._post(Trigger.RECEIVED, (worker_event,))

    async def _cancel(self, offer: Offer, ids: Ids) -> None:
        try:
            await self._forwarder.cancel(self._workspace, offer, ids)
        except HubError as error:
            log.info("not cancelled at the worker", extra={"event": "call_off", "task": ids.task, "why": type(error).__name__})


async def suspect(registry: Registry, registration: Registration, error: WorkerUnreachable) -> None:
    """Mark a worker that could not be reached."""
    try:
        await registry.mark(registration.workspace, registration.worker, registration.epoch, Health.SUSPECT, error.why)
    except StoreUnavailable:
        # The outcome of a task does not depend on whether the health can be stored.
        log.info("not marked", extra={"event": "suspect_not_stored", "worker": str(registration.worker)})


def trigger_of(error: HubError | None) -> Trigger:
    """What the end of an answer or a poll means; None: the worker ended it properly."""
    match error:
        case None:
            return Trigger.CLOSED
        case WorkerUnreachable():
            return Trigger.UNREACHABLE
        case WorkerFull():
            return Trigger.FULL
        case NotProcessed():
            return Trigger.DECLINED
        case Overloaded():
            return Trigger.NO_CONNECTION
        case WorkerBroke():
            return Trigger.CUT
        case InvalidAnswer():
            return Trigger.INVALID
        case WorkerFault():
            return Trigger.FAULT
    return Trigger.GIVE_UP
