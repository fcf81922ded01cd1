"""A forwarder that plays a script instead of calling workers: for the relay's decisions, without sockets.

Scripts are written in 0.3. A worker that is called in 1.0 sends the same events in 1.0.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from hub.ports.forwarder import AnswerListener, Attach, Dispatch
from rolecall.errors import HubError, WorkerBroke, WorkerFault
from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.value import replace
from rolecall.model.worker import Offer
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.dialects import DIALECTS, worker_side
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.workers import requests as calls
from tests.helpers.watched_engine import Hold

Step = WorkerEvent | list[WorkerEvent] | Exception | float | Hold
"""An event, several events at once, an error of the call, a wait in seconds, or a hold."""


_APART = 0.001
"""Seconds between two steps."""


class ScriptedForwarder:
    """`calls`: each call with its worker. `left`: workers whose streams were closed before the end of their script. Each call
    takes the next script of its worker's queue.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self._at: list[float] = []
        self.hung_up: list[str] = []
        self.left: list[str] = []
        self.scripts: dict[str, deque[Sequence[Step]]] = {}
        self.fetch_scripts: dict[str, deque[Step]] = {}
        self.listening = True

    def plan(self, worker: str, *steps: Step) -> None:
        self.scripts.setdefault(worker, deque()).append(steps)

    def plan_together(self, worker: str, *worker_event: WorkerEvent) -> None:
        """All events in one batch, then the connection is cut."""
        self.scripts.setdefault(worker, deque()).append([list(worker_event), WorkerBroke(worker, "cut")])

    def plan_fetch(self, worker: str, *answers: Step) -> None:
        self.fetch_scripts.setdefault(worker, deque()).extend(answers)

    def deliver(self, workspace: str, offer: Offer, dispatch: Dispatch, listener: AnswerListener) -> PlayedCall:
        self._note("deliver", offer, dispatch)
        return self._play(str(offer.worker), dispatch.ids.log_dialect, listener)

    def attach(self, workspace: str, offer: Offer, attach: Attach, listener: AnswerListener) -> PlayedCall:
        self._note("attach", offer, attach)
        return self._play(str(offer.worker), attach.ids.log_dialect, listener)

    async def fetch(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent:
        self._note("fetch", offer, ids)
        return await self._answer(offer, ids.log_dialect)

    async def cancel(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent:
        self._note("cancel", offer, ids)
        return await self._answer(offer, ids.log_dialect)

    async def probe(self, workspace: str, offer: Offer) -> bool:
        self._note("probe", offer, None)
        return self.listening

    def asked(self, what: str) -> list[str]:
        return [worker for kind, worker, _ in self.calls if kind == what]

    def times(self, what: str) -> list[float]:
        """The time of each of these calls, in seconds after the first call of any kind."""
        return [round(at - self._at[0], 2) for (kind, _, _), at in zip(self.calls, self._at, strict=True) if kind == what]

    def delivered_messages(self) -> list[dict[str, Any]]:
        """Each message as it was sent to its worker."""
        found = [call for kind, _, call in self.calls if kind == "deliver"]
        return [calls.send_params(d.send, d.ids, d.references, stream=True)["message"] for d in found]

    def _note(self, what: str, offer: Offer, asked: Any) -> None:
        self.calls.append((what, str(offer.worker), asked))
        self._at.append(asyncio.get_running_loop().time())

    async def _answer(self, offer: Offer, log_dialect: str) -> WorkerEvent:
        queue = self.fetch_scripts.get(str(offer.worker))
        answer = queue.popleft() if queue else WorkerFault(-32001, "unknown")
        while isinstance(answer, Hold | int | float):
            await (answer.reach() if isinstance(answer, Hold) else asyncio.sleep(answer))
            assert queue, "a script of answers ends with an answer"
            answer = queue.popleft()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, WorkerEvent)
        return _in_dialect(log_dialect, answer)

    def _play(self, worker: str, log_dialect: str, listener: AnswerListener) -> PlayedCall:
        steps = self.scripts[worker].popleft()
        if steps and isinstance(steps[0], Exception) and not isinstance(steps[0], HubError):
            raise steps[0]
        return PlayedCall(worker, steps, log_dialect, listener, self.left)


class PlayedCall:
    """Plays its steps in a task. While it is paused, the next step that tells something waits."""

    def __init__(self, worker: str, steps: Sequence[Step], log_dialect: str, listener: AnswerListener, left: list[str]) -> None:
        self._worker = worker
        self._steps = steps
        self._log_dialect = log_dialect
        self._listener = listener
        self._left = left
        self._played = 0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task = asyncio.create_task(self._play(), name=f"script of {worker}")

    def pause(self) -> None:
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    def hang_up(self) -> None:
        self._task.cancel()
        if self._played < len(self._steps):
            self._left.append(self._worker)

    async def _play(self) -> None:
        if not isinstance(next((step for step in self._steps if not isinstance(step, int | float)), None), HubError):
            self._listener.received(())  # the answer's head
        for step in self._steps:
            if isinstance(step, Hold):
                await step.reach()
            elif isinstance(step, int | float):
                await asyncio.sleep(step)
            await self._resumed.wait()
            self._played += 1
            if isinstance(step, HubError):
                self._listener.closed(step)
                return
            if isinstance(step, WorkerEvent | list):
                together = step if isinstance(step, list) else [step]
                # Fresh copies: the receiver of a document owns it.
                batch = [replace(worker_event, document=dict(worker_event.document)) for worker_event in together]
                self._listener.received([_in_dialect(self._log_dialect, worker_event) for worker_event in batch])
                if self._played < len(self._steps):
                    # Longer than an append takes: steps arrive one by one, unless the test holds the store.
                    await asyncio.sleep(_APART)
        self._listener.closed(None)


def _in_dialect(log_dialect: str, worker_event: WorkerEvent) -> WorkerEvent:
    if worker_event.dialect == log_dialect:
        return worker_event
    content = DIALECTS[worker_event.dialect].shape.read(worker_event.kind, worker_event.document)
    result = parse(wrapped(worker_event.kind, dump(DIALECTS[log_dialect].shape.write(content)), log_dialect))
    return worker_side(log_dialect).events.read_result(result, position=worker_event.position)


def task(
    state: str = "working", text: str | None = None, task_id: str = "wt", position: str | None = None, **members: Any
) -> WorkerEvent:
    document = {"kind": "task", "id": task_id, "contextId": "wc", "status": _status(state, text), **members}
    return read_result(document, position=position)


def status(
    state: str, text: str | None = None, task_id: str = "wt", position: str | None = None, **members: Any
) -> WorkerEvent:
    document = {"kind": "status-update", "taskId": task_id, "contextId": "wc", "status": _status(state, text), **members}
    return read_result(document, position=position)


def _status(state: str, text: str | None) -> dict[str, Any]:
    """Equal texts give the same message id, on every way to a task."""
    status: dict[str, Any] = {"state": state}
    if text is not None:
        status["message"] = {"role": "agent", "messageId": f"said-{text}", "parts": [{"kind": "text", "text": text}]}
    return status


def chunk(text: str, append: bool = True, task_id: str = "wt", position: str | None = None) -> WorkerEvent:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
    document = {"kind": "artifact-update", "taskId": task_id, "contextId": "wc", "artifact": artifact, "append": append}
    return read_result(document, position=position)


def last_chunk(append: bool = True) -> WorkerEvent:
    """Without parts, as workers of the SDK ended a streamed text before."""
    artifact: dict[str, Any] = {"artifactId": "a", "parts": []}
    document = {"kind": "artifact-update", "taskId": "wt", "contextId": "wc", "artifact": artifact, "append": append}
    return read_result({**document, "lastChunk": True})


def message(text: str) -> WorkerEvent:
    return read_result({"kind": "message", "role": "agent", "messageId": "a1", "parts": [{"kind": "text", "text": text}]})
