"""Parses a worker's answer into events. Errors contain nothing of the worker's content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize

from hub.outbound.worker_protocol import WorkerProtocol
from rolecall.errors import (
    AnswerTooLarge,
    CredentialRefused,
    EventTooLarge,
    GoesInCircles,
    HubError,
    InvalidAnswer,
    WorkerBroke,
    WorkerFault,
    WorkerRefused,
)
from rolecall.model.a2a import CONTENT, PAUSED, TERMINAL, EventKind, Ids, WorkerEvent
from rolecall.model.command import MAX_HOPS
from rolecall.model.value import Value, replace
from rolecall.protocol.jsonrpc import Reply
from rolecall.protocol.sse import FrameReader, FrameTooLong
from rolecall.protocol.text.jsontext import has_more_values
from rolecall.protocol.workers.events import Malformed

_BUSY_CODE = -32000
_BUSY = "WORKER_BUSY"
_LOOP = "LOOP"
_MAX_VALUES = 1_000_000
_MAX_TEXT = 2_000
"""Characters of an error's text: callers get fewer."""
_ENVELOPE = 64 * 1024
"""Bytes for what stands around an event: an answer may repeat a message that was as large as allowed."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """In bytes: `max_answer` of an answer that is no stream, `max_event` of one event of a stream, `max_error` of an error.
    `reply_timeout` limits answers that a worker has ready: a task, a cancellation, an error. An answer to a message has no
    such limit, because a worker may work for long before its first event: the relay watches its silence. `large_timeout`: how
    long the rest of a large event may take, once the hub has a place for it. `sign_every`: how often a call that waits for one
    counts as alive.
    """

    max_answer: int = 64 * 1024 * 1024
    max_event: int = 16 * 1024 * 1024
    max_error: int = 1024 * 1024
    reply_timeout: float = 10.0
    large_timeout: float = 60.0
    sign_every: float = 5.0
    probe_timeout: float = 1.5


class AnswerForm(Value, frozen=True):
    """What a worker's answer is expected to be. `is_task`: the answer is a task, else it has events. `ids`: of the task that it
    is about. `references`: as of its dispatch. `credential`: the hub has shown one.
    """

    worker: str
    protocol: WorkerProtocol
    limits: AnswerLimits
    ids: Ids
    replays: bool = False
    is_task: bool = False
    references: Mapping[str, str] = {}
    credential: bool = False

    def event(self, text: bytes | bytearray, *, position: str | None = None, fresh: bool = True) -> WorkerEvent:
        """`fresh`: this answer had no earlier event. InvalidAnswer, WorkerFault, WorkerRefused."""
        protocol = self.protocol
        if len(text) > _MAX_VALUES and has_more_values(text, _MAX_VALUES):
            raise InvalidAnswer(self.worker, f"it holds more than {_MAX_VALUES} values")
        try:
            reply = protocol.reply(text)
        except ValueError as error:
            raise InvalidAnswer(self.worker, f"it is not {protocol.form}") from error
        if reply.code is not None:
            raise self.fault(reply.code, reply, fresh=fresh)
        try:
            if self.is_task:
                return protocol.read_task(reply.result)
            return protocol.read_event(reply.result, position=position)
        except Malformed as error:
            raise InvalidAnswer(self.worker, str(error)) from error

    def fault(self, code: int, reply: Reply, *, fresh: bool) -> HubError:
        """What an answer with that error's code means."""
        if fresh and code == _BUSY_CODE and reply.reason == _BUSY:
            # Without an earlier event it means that nothing was executed.
            return WorkerRefused(self.worker)
        if code == _BUSY_CODE and reply.reason == _LOOP:
            # No hub of the ring has done anything: each tells its caller the same.
            return GoesInCircles(MAX_HOPS)
        return WorkerFault(code, self._with_public_ids(reply.text[:_MAX_TEXT]))

    def after(self, worker_event: WorkerEvent) -> AnswerForm:
        """The form of what follows an event, whose ids an error may name."""
        ids = self.ids
        if ids.worker_task:
            return self
        return replace(self, ids=replace(ids, worker_task=worker_event.task, worker_context=worker_event.context))

    def _with_public_ids(self, text: str) -> str:
        """Callers know tasks and contexts by the hub's ids alone."""
        public = {worker_task: task for task, worker_task in self.references.items()}
        public |= {self.ids.worker_task: self.ids.task, self.ids.worker_context: self.ids.context}
        public.pop("", None)
        if not public:
            return text
        longest_first = sorted(map(re.escape, public), key=len, reverse=True)
        return re.sub(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])", lambda found: public[found[0]], text)


def open_answer(form: AnswerForm, status: int, headers: Mapping[bytes, bytes]) -> Answer:
    """The reader for an answer with that head. CredentialRefused, WorkerRefused, InvalidAnswer: its body does not matter."""
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if not 200 <= status < 300:
        return _open_error(form, status, headers, media)
    if media == b"text/event-stream" and not form.is_task:
        return StreamedAnswer(form)
    if media in (b"text/html", b"application/xhtml+xml"):
        raise InvalidAnswer(form.worker, f"it is an HTML page (HTTP {status})")
    # A missing Content-Type is accepted.
    if media and not (media == b"application/json" or media.endswith(b"+json")):
        raise InvalidAnswer(form.worker, f"it is neither JSON nor an event stream (HTTP {status})")
    return SingleAnswer(form)


def _open_error(form: AnswerForm, status: int, headers: Mapping[bytes, bytes], media: bytes) -> ErrorAnswer:
    if status == 401 or (status == 403 and form.credential):
        raise CredentialRefused(form.worker, status, shown=form.credential)
    if status == 503 and b"x-not-processed" in headers:
        raise WorkerRefused(form.worker)
    if 300 <= status < 400:
        raise InvalidAnswer(form.worker, f"it redirects (HTTP {status}), and the hub follows no redirects")
    if not media.endswith(b"json"):
        raise InvalidAnswer(form.worker, f"HTTP {status}")
    return ErrorAnswer(form, status)


class Answer:
    """Makes events of a body. `piece_size`: so much is read in one turn of the loop. `failure`: nothing is read after it, but
    the events before it count.
    """

    __slots__ = ("_form", "failure", "finished", "held")
    piece_size: int

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self.failure: HubError | None = None
        self.finished = False
        """The last event was one that ends a worker's answer."""
        self.held = 0
        """Bytes of an event that is not complete."""

    def read(self, piece: bytes, *, last: bool) -> Sequence[WorkerEvent] | None:
        """The events that `piece` completes, none as a sign of life; None: nothing to tell. `last`: the body ends properly
        after it; this may be repeated without a piece.
        """
        raise NotImplementedError


class StreamedAnswer(Answer):
    """The events of a stream. A comment or a part of a long event is a sign of life."""

    __slots__ = ("_frames", "_fresh")
    # Large input is parsed in pieces, so that other tasks run in between.
    piece_size = 16 * 1024

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        self._frames = FrameReader(limit=form.limits.max_event + _ENVELOPE)
        self._fresh = True

    def read(self, piece: bytes, *, last: bool) -> Sequence[WorkerEvent] | None:
        form = self._form
        batch: list[WorkerEvent] = []
        try:
            for frame in self._frames.feed(piece):
                if frame.data:
                    batch.append(form.event(frame.data, position=frame.id if form.replays else None, fresh=self._fresh))
                    if self._fresh:
                        self._fresh, self._form = False, (form := form.after(batch[0]))
        except FrameTooLong:
            self.failure = EventTooLarge(form.worker, form.limits.max_event)
        except HubError as error:
            self.failure = error
        if batch:
            end = batch[-1]
            self.finished = end.kind is not CONTENT and (
                end.state in TERMINAL or end.state in PAUSED or end.kind is EventKind.MESSAGE
            )
        self.held = self._frames.held
        if last and self.failure is None and self.held:
            self.failure = WorkerBroke(form.worker, "its stream ended within an event")
        return batch if batch or (piece and self.failure is None) else None


class SingleAnswer(Answer):
    """One event as a whole body. While a long one arrives, its parts are signs of life."""

    __slots__ = ("_body",)
    piece_size = maxsize

    def __init__(self, form: AnswerForm) -> None:
        super().__init__(form)
        self._body = bytearray()

    def read(self, piece: bytes, *, last: bool) -> Sequence[WorkerEvent] | None:
        form = self._form
        if self.finished:
            return None
        if len(self._body) + len(piece) > form.limits.max_answer:
            self.failure = AnswerTooLarge(form.worker, form.limits.max_answer)
            return None
        self._body += piece
        self.held = len(self._body)
        if not last:
            return () if piece else None
        self.finished, self.held = True, 0
        body, self._body = self._body, bytearray()  # the call may stay for a while
        try:
            return (form.event(body),)
        except HubError as error:
            self.failure = error
            return None


class ErrorAnswer(Answer):
    """The JSON body of an error status. It is no sign of life."""

    __slots__ = ("_body", "_status")
    piece_size = maxsize

    def __init__(self, form: AnswerForm, status: int) -> None:
        super().__init__(form)
        self._status = status
        self._body = bytearray()

    def read(self, piece: bytes, *, last: bool) -> Sequence[WorkerEvent] | None:
        limit = self._form.limits.max_error
        self._body += piece
        if len(self._body) > limit:
            self.failure = InvalidAnswer(self._form.worker, f"it is longer than {limit} bytes")
        elif last:
            self.failure = self._error()
        return None

    def _error(self) -> HubError:
        try:
            reply = self._form.protocol.reply(self._body)
        except ValueError:
            reply = None
        if reply is None or reply.code is None:
            return InvalidAnswer(self._form.worker, f"HTTP {self._status}")
        return self._form.fault(reply.code, reply, fresh=True)
