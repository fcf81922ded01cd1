"""What every binding does with a call: run it, count it, record it, and send its answer, its stream or its error."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Protocol

from hub.core.observe import Observer
from hub.core.shares.answers import AnswerShare
from hub.inbound.a2a.operations import OperationCall, Operations, right_for
from hub.inbound.a2a.sse_response import EventStream, StreamEncoder, opening
from hub.inbound.a2a.unsent import send_answer
from hub.inbound.middleware.audit import record_call, record_refusal
from hub.inbound.middleware.authentication import require
from hub.inbound.middleware.headers import PARENT, extension_headers, is_task_wanted, read_parent_call
from hub.inbound.middleware.request import Request
from rolecall.errors import AccessError, ClientDisconnected, HubError, TokenEnded, UnsupportedOperation
from rolecall.model.command import ParentCall
from rolecall.model.ids import Caller
from rolecall.model.principal import Right
from rolecall.model.value import Value
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.faults import DialectFaults, Fault, fault_of
from rolecall.protocol.methods import STREAMING, Operation

log = logging.getLogger(__name__)

_CLIENT_GONE = "client gone"
_WITHIN_TASKS = frozenset({Operation.SEND, Operation.STREAM, Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE})


class Framing(Protocol):
    """How a binding writes what the caller of one call gets."""

    @property
    def call_id(self) -> bytes:
        """The caller's name for the call; empty where it has none."""

    @property
    def faults(self) -> DialectFaults: ...

    @property
    def errors_are_events(self) -> bool:
        """An error of a stream is an event of it, also before any other. Else it is a plain answer until something is sent."""

    def result(self, result: bytes) -> bytes: ...
    def error(self, fault: Fault) -> bytes: ...
    def events(self, event_encoder: EventEncoder) -> StreamEncoder: ...
    def error_event(self, fault: Fault) -> bytes: ...
    async def send_error(self, request: Request, fault: Fault, error: BaseException, *, parsed: bool) -> None:
        """An error as the whole answer. `parsed`: the error is the call's, else it was refused before."""


class Answered(Value, frozen=True, gc=True):
    """The body of an answer; the fault and its cause if it is an error. An error refers to frames, which may refer to this."""

    body: bytes
    fault: Fault | None = None
    error: BaseException | None = None


class Calls:
    def __init__(self, operations: Operations, observer: Observer, unsent: AnswerShare, *, keep_alive: float) -> None:
        self._operations = operations
        self._observer = observer
        self._unsent = unsent
        self._keep_alive = keep_alive

    def caller_of(self, request: Request, operation: Operation) -> tuple[Caller, ParentCall | None]:
        """Who calls, and the task in which a worker calls in its caller's name. Forbidden, InvalidParams, UnsupportedOperation,
        LeaseUnknown, ParentOver, CallerGone.
        """
        parent = read_parent_call(request) if PARENT in request.headers else None
        if parent is None:
            return require(request.principal, right_for(operation)).caller, None
        if operation not in _WITHIN_TASKS:
            raise UnsupportedOperation("Within a task a worker can send messages, and read and cancel what it started.")
        return self._operations.caller_of(require(request.principal, Right.ENROL), parent), parent

    async def recall(self, request: Request) -> None:
        """Before `caller_of` of a request with the header `PARENT`, which reads no store: take up a task that only that has."""
        with suppress(HubError):  # `caller_of` raises it
            parent = read_parent_call(request)
            if parent is not None:
                await self._operations.recall(require(request.principal, Right.ENROL), parent)

    async def serve(self, request: Request, call: OperationCall, framing: Framing) -> None:
        """Answer a request that is one call. ClientDisconnected, TokenEnded, AnswerNotSent."""
        if call.operation in STREAMING:
            await self._stream(request, call, framing)
            return
        answered = await self.answer(request, call, framing)
        if answered.fault is not None and answered.error is not None:
            await framing.send_error(request, answered.fault, answered.error, parsed=True)
        else:
            await send_answer(request, answered.body, self._unsent, call.caller.workspace, extension_headers(request))

    async def answer(self, request: Request, call: OperationCall, framing: Framing) -> Answered:
        """The answer to one call; errors are answers too. ClientDisconnected, TokenEnded."""
        counted = _Counted(self._observer, call, framing)
        try:
            return Answered(framing.result(await self._operations.answer(call)))
        except ClientDisconnected:
            counted.outcome = _CLIENT_GONE
            raise request.gone() from None
        except Exception as error:
            fault = counted.fail(error)
            return Answered(framing.error(fault), fault, error)
        finally:
            counted.end(request)

    async def refuse(self, request: Request, error: HubError, framing: Framing) -> None:
        """Answer a request that is no call, or whose answer cannot be sent."""
        fault = self.refused(request, error, framing)
        await framing.send_error(request, fault, error, parsed=False)

    def refused(self, request: Request, error: HubError, framing: Framing) -> Fault:
        """Count and record a refusal that is answered elsewhere."""
        fault = fault_of(error, framing.faults)
        caller = request.principal.caller if request.principal is not None else None
        self._observer.refused(fault.reason.lower(), caller.workspace if caller is not None else "")
        if isinstance(error, AccessError):
            record_refusal(request.scope, error)
        return fault

    async def _stream(self, request: Request, call: OperationCall, framing: Framing) -> None:
        """ClientDisconnected, TokenEnded."""
        stream = EventStream(request, self._keep_alive, self._unsent, extension_headers(request))
        admitted = stream.name_task if is_task_wanted(request) else None
        counted = _Counted(self._observer, call, framing)
        try:
            task_stream = await stream.wait_for(opening(self._operations.open(call, admitted), call.operation.value))
            encoder = framing.events(self._operations.encoder(task_stream, call))
            await stream.copy(task_stream, encoder, self._operations.inline_for(call))
        except ClientDisconnected:
            counted.outcome = _CLIENT_GONE
            raise
        except Exception as error:
            if isinstance(error, TokenEnded):
                error.task = stream.task
            if stream.open or framing.errors_are_events:
                await stream.fail(framing.error_event(counted.fail(error)))
            elif isinstance(error, TokenEnded):
                counted.outcome = _CLIENT_GONE
                raise  # as the next request with it
            else:
                await framing.send_error(request, counted.fail(error), error, parsed=True)
        finally:
            counted.end(request)


class _Counted:
    """One call, for the metrics, the audit log and the log: from now until `end`."""

    __slots__ = ("_call", "_framing", "_observer", "_role", "_started", "outcome")

    def __init__(self, observer: Observer, call: OperationCall, framing: Framing) -> None:
        self._observer = observer
        self._call = call
        self._framing = framing
        self._role = call.target.path_role or ""
        self._started = time.perf_counter()
        self.outcome = "ok"
        observer.call_started(self._role, call.operation)

    def fail(self, error: Exception) -> Fault:
        if not isinstance(error, HubError):
            facts = {"event": "request_failed", "method": self._call.operation.value}
            log.exception("request failed", exc_info=error, extra=facts)
        fault = fault_of(error, self._framing.faults)
        self.outcome = fault.reason.lower()
        return fault

    def end(self, request: Request) -> None:
        seconds, method = time.perf_counter() - self._started, self._call.operation
        self._observer.call_ended(self._role, method, self.outcome, seconds)
        record_call(request.scope, self._call, self._role, self.outcome)
        if log.isEnabledFor(logging.DEBUG):
            call_id = self._framing.call_id.decode()[:80]
            fields = {"event": "call", "call": call_id, "method": method, "role": self._role, "outcome": self.outcome}
            log.debug("call", extra={**fields, "seconds": seconds})
