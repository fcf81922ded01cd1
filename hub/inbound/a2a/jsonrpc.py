"""JSON-RPC, for every path that takes it: how a request is read, and how an answer is written. Quart is not on this path."""

from __future__ import annotations

from functools import partial
from typing import Any

from hub.inbound.a2a.batches import Batches
from hub.inbound.a2a.calls import Calls
from hub.inbound.a2a.operations import OperationCall
from hub.inbound.middleware.audit import record_refusal
from hub.inbound.middleware.headers import PARENT, extension_headers, read_call_headers, version_of
from hub.inbound.middleware.rate_limiter import counted_caller
from hub.inbound.middleware.refusal import BODY_UNREAD
from hub.inbound.middleware.request import Request
from rolecall.errors import ClientDisconnected, HubError, RouteError, TokenEnded, UnsupportedOperation
from rolecall.model.command import Target
from rolecall.model.value import Value
from rolecall.protocol.callers.encoder import EventEncoder, SseEncoder
from rolecall.protocol.dialects import dialect_of, read_method
from rolecall.protocol.faults import DialectFaults, Fault
from rolecall.protocol.jsonrpc import NULL, read_body, read_id, read_request, write_error, write_result
from rolecall.protocol.methods import STREAMING
from rolecall.protocol.sse import RESPONSE_HEADERS, write_frame

_OWN_STATUS = BODY_UNREAD | {401, 403}
"""Errors about HTTP keep their status; all others are answered with 200."""


class RpcFraming(Value, frozen=True):
    """`method`: the call's, empty if it cannot be read. `named`: events have the names of 0.1."""

    call_id: bytes
    method: str = ""
    named: bool = False

    @property
    def faults(self) -> DialectFaults:
        return dialect_of(self.method).faults

    @property
    def errors_are_events(self) -> bool:
        dialect = dialect_of(self.method)
        return dialect.events_only and dialect.methods.get(self.method) in STREAMING

    def result(self, result: bytes) -> bytes:
        return write_result(self.call_id, result)

    def error(self, fault: Fault) -> bytes:
        return write_error(self.call_id, fault)

    def events(self, event_encoder: EventEncoder) -> SseEncoder:
        return SseEncoder(event_encoder, self.call_id, named=self.named)

    def error_event(self, fault: Fault) -> bytes:
        return write_frame(self.error(fault))

    async def send_error(self, request: Request, fault: Fault, error: BaseException, *, parsed: bool) -> None:
        if parsed:
            await request.answer(self.error(fault), headers=extension_headers(request))
        elif fault.status in _OWN_STATUS:
            await request.answer_unread(self.error(fault), status=fault.status)
        elif self.errors_are_events:
            (_, media), *headers = RESPONSE_HEADERS
            await request.answer(self.error_event(fault), media=media, headers=headers)
        else:
            await request.answer(self.error(fault))


_UNREAD = RpcFraming(NULL)


class JsonRpc:
    def __init__(self, calls: Calls, batches: Batches, *, max_body: int, max_depth: int) -> None:
        self._calls = calls
        self._batches = batches
        self._max_body = max_body
        self._max_depth = max_depth

    async def __call__(self, request: Request, target: Target, *, only: str | None = None) -> None:
        """`only`: the one method that this path takes."""
        framing = _UNREAD
        try:
            document = read_body(await request.json(self._max_body), self._max_depth)
            if PARENT in request.headers:
                await self._calls.recall(request)
            if isinstance(document, list) and only is None:
                await self._batch(document, target, request)
                return
            framing = _framing(document, named=only is not None)
            if only is not None and framing.method not in (only, ""):
                await request.answer(b'{"error":"Only %b supported"}' % only.encode(), status=400)
                return
            await self._calls.serve(request, self._read_call(document, framing.call_id, target, request), framing)
        except ClientDisconnected:
            pass
        except TokenEnded:
            raise  # as the next request with it
        except HubError as error:
            await self._calls.refuse(request, error, framing)

    async def _batch(self, entries: list[Any], target: Target, request: Request) -> None:
        principal = request.principal
        workspace = principal.caller.workspace if principal is not None else ""
        run, refuse = partial(self._entry, target, request), partial(self._refuse_entry, request)
        async with self._batches.answered(entries, workspace, counted_caller(principal), run, refuse) as body:
            await request.answer_in_pieces(body, headers=extension_headers(request))

    def _refuse_entry(self, request: Request, entry: Any, error: RouteError) -> bytes:
        framing = _framing(entry)
        record_refusal(request.scope, error)
        return framing.error(self._calls.refused(request, error, framing))

    async def _entry(self, target: Target, request: Request, entry: Any) -> bytes:
        """The answer to one entry of a batch. ClientDisconnected, TokenEnded."""
        framing = _framing(entry)
        try:
            call = self._read_call(entry, framing.call_id, target, request)
            if call.operation in STREAMING:
                raise UnsupportedOperation("A streaming method cannot be part of a batch.")
        except HubError as error:
            return framing.error(self._calls.refused(request, error, framing))
        return (await self._calls.answer(request, call, framing)).body

    def _read_call(self, entry: Any, call_id: bytes, target: Target, request: Request) -> OperationCall:
        """A request with a known method, from a caller with the right to it. InvalidRequest, MethodNotFound, InvalidParams,
        VersionNotSupported, Forbidden, GoesInCircles.
        """
        rpc_request = read_request(entry, call_id)
        operation, choice = read_method(rpc_request.method, version_of(request))
        caller, parent = self._calls.caller_of(request, operation)
        call_headers = read_call_headers(request)
        params = rpc_request.params
        return OperationCall(caller, operation, choice, params, target, call_headers, request.on_disconnect, parent)


def _framing(entry: Any, *, named: bool = False) -> RpcFraming:
    method = entry.get("method") if isinstance(entry, dict) else None
    return RpcFraming(read_id(entry), method if isinstance(method, str) else "", named)
