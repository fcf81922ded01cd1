"""JSON-RPC, on every address that takes it: one dispatcher. Bytes in, bytes out; Quart is not on this path."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from hub.core.observe import Observer
from hub.inbound.a2a.operations import OperationCall, Operations, right_for
from hub.inbound.a2a.sse_response import EventStream, opening
from hub.inbound.middleware.audit import note_call
from hub.inbound.middleware.authentication import holder_of
from hub.inbound.middleware.headers import echoed, read_call_headers, version_of
from hub.inbound.middleware.request import Request
from rolecall.errors import ClientGone, HubError, InvalidRequest, UnsupportedOperation
from rolecall.model.command import Target
from rolecall.model.ids import Caller
from rolecall.model.value import Value
from rolecall.protocol.callers.event_encoder import EventEncoder
from rolecall.protocol.callers.sse_encoder import SseEncoder
from rolecall.protocol.faults import Fault, fault_of
from rolecall.protocol.jsonrpc import NULL, RpcRequest, read_body, read_id, read_request, write_error, write_result
from rolecall.protocol.methods import STREAMING, Operation, dialect_of, read_method
from rolecall.protocol.sse import write_frame

log = logging.getLogger(__name__)

_REAL_STATUS = frozenset({401, 403, 408, 413, 415})


class ParsedCall(Value, frozen=True):
    """A request whose method is known, and whose caller may do that."""

    said: RpcRequest
    operation: Operation
    dialect: str | None
    target: Target
    caller: Caller

    def call(self, request: Request) -> OperationCall:
        """With what its headers add. InvalidParams."""
        call_headers = read_call_headers(request)
        return OperationCall(
            self.caller, self.operation, self.dialect, self.said.params, self.target, call_headers, request.on_disconnect
        )


class JsonRpc:
    def __init__(
        self, operations: Operations, observer: Observer, *, max_body: int, max_depth: int, max_batch: int, keep_alive: float
    ) -> None:
        self._operations = operations
        self._observer = observer
        self._max_body = max_body
        self._max_depth = max_depth
        self._max_batch = max_batch
        self._keep_alive = keep_alive

    async def __call__(self, request: Request, target: Target, *, only: str | None = None) -> None:
        """`only`: the one method that this address takes."""
        call_id, method = NULL, ""
        try:
            document = read_body(await request.json(self._max_body), self._max_depth)
            if isinstance(document, list) and only is None:
                await request.answer(await self._batch(document, target, request), headers=echoed(request))
                return
            call_id = read_id(document)
            said = read_request(document, call_id)
            method = said.method
            if only is not None and method != only:
                await request.answer(b'{"error":"Only %b supported"}' % only.encode(), status=400)
                return
            asked = _parse_call(said, target, request)
            if asked.operation in STREAMING:
                await self._stream(asked, request, named=only is not None)
            else:
                await request.answer(await self._call(asked, request), headers=echoed(request))
        except ClientGone:
            pass
        except HubError as error:
            fault = fault_of(error, dialect_of(method))
            self._observer.refused(fault.reason.lower())
            if fault.status in _REAL_STATUS:
                await request.answer_unread(write_error(call_id, fault), status=fault.status)
            else:
                await request.answer(write_error(call_id, fault))

    async def _call(self, asked: ParsedCall, request: Request) -> bytes:
        """One request's whole answer; whatever goes wrong is an answer too."""
        role, method, call_id = asked.target.path_role or "", asked.operation, asked.said.id
        started = time.perf_counter()
        self._observer.call_started(role, method)
        outcome = "ok"
        try:
            return write_result(call_id, await self._operations.answer(asked.call(request)))
        except ClientGone:
            outcome = "client gone"
            raise
        except Exception as error:
            fault = self._fault(error, asked.said.method)
            outcome = fault.reason.lower()
            return write_error(call_id, fault)
        finally:
            self._ended(asked, role, outcome, started)

    async def _stream(self, asked: ParsedCall, request: Request, *, named: bool) -> None:
        role, method, call_id = asked.target.path_role or "", asked.operation, asked.said.id
        started = time.perf_counter()
        self._observer.call_started(role, method)
        outcome = "ok"
        stream = EventStream(request.send, request.receive, self._keep_alive, echoed(request))
        try:
            task_stream = await stream.wait_for(opening(self._operations.open(asked.call(request)), method))
            event_encoder = EventEncoder(task_stream.dialect, task_stream.alias)
            await stream.copy(task_stream, SseEncoder(event_encoder, call_id, named=named))
        except ClientGone:
            outcome = "client gone"
        except Exception as error:
            fault = self._fault(error, asked.said.method)
            outcome = fault.reason.lower()
            await stream.fail(write_frame(write_error(call_id, fault)))
        finally:
            self._ended(asked, role, outcome, started)

    async def _batch(self, entries: list[Any], target: Target, request: Request) -> bytes:
        """Every entry has its own answer, in the order of the entries."""
        if self._max_batch == 0:
            raise InvalidRequest("Batch requests are not supported.")
        if not entries:
            raise InvalidRequest("A batch must hold at least one request.")
        if len(entries) > self._max_batch:
            raise InvalidRequest(f"A batch may hold {self._max_batch} requests; this one holds {len(entries)}.")
        answers = await asyncio.gather(*(self._entry(entry, target, request) for entry in entries))
        return b"[" + b",".join(answers) + b"]"

    async def _entry(self, entry: Any, target: Target, request: Request) -> bytes:
        method, call_id = "", read_id(entry)
        try:
            said = read_request(entry, call_id)
            method = said.method
            asked = _parse_call(said, target, request)
            if asked.operation in STREAMING:
                raise UnsupportedOperation("A streaming method cannot be part of a batch.")
        except HubError as error:
            fault = fault_of(error, dialect_of(method))
            self._observer.refused(fault.reason.lower())
            return write_error(call_id, fault)
        return await self._call(asked, request)

    def _ended(self, asked: ParsedCall, role: str, outcome: str, started: float) -> None:
        seconds, method = time.perf_counter() - started, asked.operation
        self._observer.call_ended(role, method, outcome, seconds)
        note_call(asked.caller, asked.operation, role, outcome)
        if log.isEnabledFor(logging.DEBUG):
            call = asked.said.id.decode()[:80]
            documented = {"event": "call", "call": call, "method": method, "role": role, "outcome": outcome}
            log.debug("call", extra={**documented, "seconds": seconds})

    def _fault(self, error: Exception, method: str) -> Fault:
        if not isinstance(error, HubError):
            log.exception("request failed", exc_info=error, extra={"event": "request_failed", "method": method[:100]})
        return fault_of(error, dialect_of(method))


def _parse_call(said: RpcRequest, target: Target, request: Request) -> ParsedCall:
    operation, dialect = read_method(said.method, version_of(request))
    return ParsedCall(said, operation, dialect, target, holder_of(request.who, right_for(operation)).caller)
