"""The REST dispatcher: the path selects the operation, and errors have their own HTTP status."""

from __future__ import annotations

import logging
import time

from hub.core.observe import Observer
from hub.core.shares.answers import AnswerShare
from hub.inbound.a2a.operations import OperationCall, Operations, right_for
from hub.inbound.a2a.sse_response import EventStream, opening
from hub.inbound.a2a.unsent import send_answer
from hub.inbound.middleware.audit import record_call
from hub.inbound.middleware.authentication import require
from hub.inbound.middleware.headers import extension_headers, read_call_headers, version_of
from hub.inbound.middleware.refusal import BODY_UNREAD, retry_after_of
from hub.inbound.middleware.request import Request
from rolecall.errors import ClientDisconnected, HubError, InvalidRequest, TokenEnded, UnsupportedOperation
from rolecall.model.a2a import JsonObject
from rolecall.model.command import ITS_OWN
from rolecall.protocol.callers.encoder import SseEncoder
from rolecall.protocol.dialect import V0_1, V0_3, V1_0
from rolecall.protocol.faults import Fault, fault_of
from rolecall.protocol.jsonrpc import read_body
from rolecall.protocol.methods import STREAMING, Operation, read_version
from rolecall.protocol.rest import RestRoute, params_of, read_query, refuse_protobuf_form, write_error
from rolecall.protocol.sse import write_frame

log = logging.getLogger(__name__)

_MESSAGES = frozenset({Operation.SEND, Operation.STREAM})
_WITH_BODY = _MESSAGES | {Operation.PUSH_SET}
_TASK_OPERATIONS = frozenset({Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE})


class Rest:
    def __init__(
        self,
        operations: Operations,
        observer: Observer,
        unsent: AnswerShare,
        *,
        max_body: int,
        max_depth: int,
        keep_alive: float,
    ) -> None:
        self._operations = operations
        self._observer = observer
        self._unsent = unsent
        self._max_body = max_body
        self._max_depth = max_depth
        self._keep_alive = keep_alive

    async def __call__(self, request: Request, route: RestRoute) -> None:
        if route.operation is None:
            allowed = ", ".join(route.methods).encode()
            await request.answer(write_error(_wrong_method(allowed)), status=405, headers=[(b"allow", allowed)])
            return
        role, method = route.target.path_role or "", route.operation.value
        started = time.perf_counter()
        self._observer.call_started(role, method)
        outcome = "ok"
        try:
            await self._run(request, route, route.operation)
        except ClientDisconnected:
            outcome = "client gone"
        except TokenEnded:
            outcome = "client gone"
            raise  # as the next request with it
        except Exception as error:
            fault = self._fault(error, method)
            outcome = fault.reason.lower()
            await _refuse(request, fault, error)
        finally:
            self._observer.call_ended(role, method, outcome, time.perf_counter() - started)
            record_call(request.principal.caller if request.principal is not None else None, route.operation, role, outcome)

    async def _run(self, request: Request, route: RestRoute, operation: Operation) -> None:
        caller = require(request.principal, right_for(operation)).caller
        if operation in _WITH_BODY:
            # The query is ignored: it would be passed to a worker, and may hold a secret of an intermediary.
            document: JsonObject = read_body(await request.json(self._max_body), self._max_depth)
            if not isinstance(document, dict):
                raise InvalidRequest("The body must be a JSON object.")
        else:
            document = read_query(request.scope.get("query_string", b""))
        dialect = _dialect(route, operation, document, read_version(version_of(request)))
        params = params_of(route, document, dialect)
        call = OperationCall(
            caller, operation, dialect, params, route.target, read_call_headers(request), request.on_disconnect
        )
        if operation in STREAMING:
            await self._stream(call, request)
            return
        try:
            result = await self._operations.answer(call)
        except ClientDisconnected:
            raise request.gone() from None
        body = b"{}" if result == b"null" else result
        await send_answer(request, body, self._unsent, caller.workspace, extension_headers(request))

    async def _stream(self, call: OperationCall, request: Request) -> None:
        stream = EventStream(request, self._keep_alive, self._unsent, extension_headers(request))
        try:
            task_stream = await stream.wait_for(opening(self._operations.open(call), call.operation.value))
            await stream.copy(task_stream, SseEncoder(self._operations.encoder(task_stream)))
        except ClientDisconnected:
            raise
        except Exception as error:
            if not stream.open:
                raise
            # The head has been sent, so the error is sent as an event.
            await stream.fail(write_frame(write_error(self._fault(error, call.operation.value)), event="error"))

    def _fault(self, error: Exception, method: str) -> Fault:
        if not isinstance(error, HubError):
            log.exception("request failed", exc_info=error, extra={"event": "request_failed", "method": method})
        return fault_of(error, V1_0)


def _dialect(route: RestRoute, operation: Operation, document: JsonObject, version: str | None) -> str:
    """Chosen by the path, then by the version header. Without either, a message is recognised by its spelling, and a task has
    its own dialect; lists and configs are 1.0, because these paths did not exist before.
    """
    chosen = route.dialect or version
    if chosen is None and operation in _MESSAGES:
        message = document.get("message")
        role = message.get("role") if isinstance(message, dict) else None
        chosen = V1_0 if str(role).startswith("ROLE_") else V0_3
    elif chosen is None and operation not in _TASK_OPERATIONS:
        chosen = V1_0
    if chosen == V0_1:
        raise UnsupportedOperation("A2A 0.1 has no REST binding. Use JSON-RPC, or version 0.3 or 1.0.")
    if chosen == V0_3 and operation in _MESSAGES:
        refuse_protobuf_form(document)
    return chosen or ITS_OWN


async def _refuse(request: Request, fault: Fault, error: Exception) -> None:
    if fault.status in BODY_UNREAD:
        await request.answer_unread(write_error(fault), status=fault.status)
        return
    await request.answer(write_error(fault), status=fault.status, headers=retry_after_of(error))


def _wrong_method(allowed: bytes) -> Fault:
    return Fault(-32600, 405, "METHOD_NOT_ALLOWED", f"This address takes {allowed.decode()}.", None)
