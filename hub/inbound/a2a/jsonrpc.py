"""The JSON-RPC dispatcher, for every path that takes JSON-RPC. It works on bytes; Quart is not on this path."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from hub.core.observe import Observer
from hub.core.shares.answers import AnswerShare
from hub.inbound.a2a.batches import Batches
from hub.inbound.a2a.operations import OperationCall, Operations, right_for
from hub.inbound.a2a.sse_response import EventStream, opening
from hub.inbound.a2a.unsent import send_answer
from hub.inbound.middleware.audit import record, record_call
from hub.inbound.middleware.authentication import require
from hub.inbound.middleware.headers import extension_headers, read_call_headers, version_of
from hub.inbound.middleware.rate_limiter import counted_caller
from hub.inbound.middleware.refusal import BODY_UNREAD
from hub.inbound.middleware.request import Request
from rolecall.errors import ClientDisconnected, HubError, RouteError, TokenEnded, UnsupportedOperation
from rolecall.model.command import Target
from rolecall.model.ids import Caller
from rolecall.model.value import Value
from rolecall.protocol.callers.encoder import SseEncoder
from rolecall.protocol.faults import Fault, fault_of
from rolecall.protocol.jsonrpc import NULL, RpcRequest, read_body, read_id, read_request, write_error, write_result
from rolecall.protocol.methods import STREAMING, Operation, dialect_of, read_method
from rolecall.protocol.sse import write_frame

log = logging.getLogger(__name__)

_OWN_STATUS = BODY_UNREAD | {401, 403}
"""Errors about HTTP keep their status; all others are answered with 200."""


class ParsedCall(Value, frozen=True):
    """A request with a known method, from a caller with the right to it."""

    rpc_request: RpcRequest
    operation: Operation
    dialect: str | None
    target: Target
    caller: Caller

    def call(self, request: Request) -> OperationCall:
        """Adds what the headers contain. InvalidParams, GoesInCircles."""
        call_headers = read_call_headers(request)
        return OperationCall(
            self.caller, self.operation, self.dialect, self.rpc_request.params, self.target, call_headers, request.on_disconnect
        )


class JsonRpc:
    def __init__(
        self,
        operations: Operations,
        observer: Observer,
        unsent: AnswerShare,
        batches: Batches,
        *,
        max_body: int,
        max_depth: int,
        keep_alive: float,
    ) -> None:
        self._operations = operations
        self._observer = observer
        self._unsent = unsent
        self._batches = batches
        self._max_body = max_body
        self._max_depth = max_depth
        self._keep_alive = keep_alive

    async def __call__(self, request: Request, target: Target, *, only: str | None = None) -> None:
        """`only`: the one method that this path takes."""
        call_id, method = NULL, ""
        try:
            document = read_body(await request.json(self._max_body), self._max_depth)
            if isinstance(document, list) and only is None:
                await self._batch(document, target, request)
                return
            call_id = read_id(document)
            rpc_request = read_request(document, call_id)
            method = rpc_request.method
            if only is not None and method != only:
                await request.answer(b'{"error":"Only %b supported"}' % only.encode(), status=400)
                return
            parsed = _parse_call(rpc_request, target, request)
            if parsed.operation in STREAMING:
                await self._stream(parsed, request, named=only is not None)
            else:
                body, workspace = await self._call(parsed, request), parsed.caller.workspace
                await send_answer(request, body, self._unsent, workspace, extension_headers(request))
        except ClientDisconnected:
            pass
        except TokenEnded:
            raise  # as the next request with it
        except HubError as error:
            fault = fault_of(error, dialect_of(method))
            self._observer.refused(fault.reason.lower())
            if fault.status in _OWN_STATUS:
                await request.answer_unread(write_error(call_id, fault), status=fault.status)
            else:
                await request.answer(write_error(call_id, fault))

    async def _call(self, parsed: ParsedCall, request: Request) -> bytes:
        """The answer to one request; errors are answers too. ClientDisconnected, TokenEnded."""
        role, method, call_id = parsed.target.path_role or "", parsed.operation, parsed.rpc_request.id
        started = time.perf_counter()
        self._observer.call_started(role, method)
        outcome = "ok"
        try:
            return write_result(call_id, await self._operations.answer(parsed.call(request)))
        except ClientDisconnected:
            outcome = "client gone"
            raise request.gone() from None
        except Exception as error:
            fault = self._fault(error, parsed.rpc_request.method)
            outcome = fault.reason.lower()
            return write_error(call_id, fault)
        finally:
            self._ended(parsed, role, outcome, started)

    async def _stream(self, parsed: ParsedCall, request: Request, *, named: bool) -> None:
        role, method, call_id = parsed.target.path_role or "", parsed.operation, parsed.rpc_request.id
        started = time.perf_counter()
        self._observer.call_started(role, method)
        outcome = "ok"
        stream = EventStream(request, self._keep_alive, self._unsent, extension_headers(request))
        try:
            task_stream = await stream.wait_for(opening(self._operations.open(parsed.call(request)), method))
            await stream.copy(task_stream, SseEncoder(self._operations.encoder(task_stream), call_id, named=named))
        except ClientDisconnected:
            outcome = "client gone"
        except Exception as error:
            fault = self._fault(error, parsed.rpc_request.method)
            outcome = fault.reason.lower()
            await stream.fail(write_frame(write_error(call_id, fault)))
        finally:
            self._ended(parsed, role, outcome, started)

    async def _batch(self, entries: list[Any], target: Target, request: Request) -> None:
        principal = request.principal
        workspace = principal.caller.workspace if principal is not None else ""
        run, refuse = partial(self._entry, target, request), partial(self._refuse_entry, request)
        async with self._batches.answered(entries, workspace, counted_caller(principal), run, refuse) as body:
            await request.answer_in_pieces(body, headers=extension_headers(request))

    def _refuse_entry(self, request: Request, entry: Any, error: RouteError) -> bytes:
        method = entry.get("method") if isinstance(entry, dict) else None
        fault = fault_of(error, dialect_of(method) if isinstance(method, str) else None)
        record(
            request.principal.caller if request.principal is not None else None,
            "turned away",
            request.path,
            type(error).__name__,
        )
        self._observer.refused(fault.reason.lower())
        return write_error(read_id(entry), fault)

    async def _entry(self, target: Target, request: Request, entry: Any) -> bytes:
        """The answer to one entry of a batch. ClientDisconnected, TokenEnded."""
        method, call_id = "", read_id(entry)
        try:
            rpc_request = read_request(entry, call_id)
            method = rpc_request.method
            parsed = _parse_call(rpc_request, target, request)
            if parsed.operation in STREAMING:
                raise UnsupportedOperation("A streaming method cannot be part of a batch.")
        except HubError as error:
            fault = fault_of(error, dialect_of(method))
            self._observer.refused(fault.reason.lower())
            return write_error(call_id, fault)
        return await self._call(parsed, request)

    def _ended(self, parsed: ParsedCall, role: str, outcome: str, started: float) -> None:
        seconds, method = time.perf_counter() - started, parsed.operation
        self._observer.call_ended(role, method, outcome, seconds)
        record_call(parsed.caller, parsed.operation, role, outcome)
        if log.isEnabledFor(logging.DEBUG):
            call = parsed.rpc_request.id.decode()[:80]
            fields = {"event": "call", "call": call, "method": method, "role": role, "outcome": outcome}
            log.debug("call", extra={**fields, "seconds": seconds})

    def _fault(self, error: Exception, method: str) -> Fault:
        if not isinstance(error, HubError):
            log.exception("request failed", exc_info=error, extra={"event": "request_failed", "method": method[:100]})
        return fault_of(error, dialect_of(method))


def _parse_call(rpc_request: RpcRequest, target: Target, request: Request) -> ParsedCall:
    operation, dialect = read_method(rpc_request.method, version_of(request))
    return ParsedCall(rpc_request, operation, dialect, target, require(request.principal, right_for(operation)).caller)
