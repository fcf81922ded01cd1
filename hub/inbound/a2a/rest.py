"""REST: the path selects the operation, and errors have their own HTTP status."""

from __future__ import annotations

from hub.inbound.a2a.calls import Calls
from hub.inbound.a2a.operations import OperationCall
from hub.inbound.middleware.headers import PARENT, read_call_headers, version_of
from hub.inbound.middleware.refusal import BODY_UNREAD, retry_after_of
from hub.inbound.middleware.request import Request
from rolecall.errors import ClientDisconnected, HubError, InvalidRequest, TokenEnded
from rolecall.model.a2a import JsonObject
from rolecall.protocol.callers.encoder import EventEncoder, SseEncoder
from rolecall.protocol.dialects import AT_ROOT, choose_for_rest
from rolecall.protocol.faults import Fault
from rolecall.protocol.jsonrpc import read_body
from rolecall.protocol.methods import Operation
from rolecall.protocol.rest import RestRoute, params_of, read_query, write_error
from rolecall.protocol.sse import write_frame

_WITH_BODY = frozenset({Operation.SEND, Operation.STREAM, Operation.PUSH_SET})


class RestFraming:
    """Bare documents, and errors with their status, alike in every dialect."""

    call_id = b""
    faults = AT_ROOT.faults
    errors_are_events = False

    def result(self, result: bytes) -> bytes:
        return b"{}" if result == b"null" else result

    def error(self, fault: Fault) -> bytes:
        return write_error(fault)

    def events(self, event_encoder: EventEncoder) -> SseEncoder:
        return SseEncoder(event_encoder)

    def error_event(self, fault: Fault) -> bytes:
        return write_frame(write_error(fault), event="error")

    async def send_error(self, request: Request, fault: Fault, error: BaseException, *, parsed: bool) -> None:
        if fault.status in BODY_UNREAD:
            await request.answer_unread(write_error(fault), status=fault.status)
        else:
            await request.answer(write_error(fault), status=fault.status, headers=retry_after_of(error))


_FRAMING = RestFraming()


class Rest:
    def __init__(self, calls: Calls, *, max_body: int, max_depth: int) -> None:
        self._calls = calls
        self._max_body = max_body
        self._max_depth = max_depth

    async def __call__(self, request: Request, route: RestRoute) -> None:
        if route.operation is None:
            allowed = ", ".join(route.methods).encode()
            await request.answer(write_error(_wrong_method(allowed)), status=405, headers=[(b"allow", allowed)])
            return
        try:
            await self._calls.serve(request, await self._read_call(request, route, route.operation), _FRAMING)
        except ClientDisconnected:
            pass
        except TokenEnded:
            raise  # as the next request with it
        except HubError as error:
            await self._calls.refuse(request, error, _FRAMING)

    async def _read_call(self, request: Request, route: RestRoute, operation: Operation) -> OperationCall:
        if PARENT in request.headers:
            await self._calls.recall(request)
        caller, parent = self._calls.caller_of(request, operation)
        if operation in _WITH_BODY:
            # The query is ignored: it would be passed to a worker, and may hold a secret of an intermediary.
            document: JsonObject = read_body(await request.json(self._max_body), self._max_depth)
            if not isinstance(document, dict):
                raise InvalidRequest("The body must be a JSON object.")
        else:
            document = read_query(request.scope.get("query_string", b""))
        choice = choose_for_rest(operation, route.dialect, version_of(request), document)
        params, call_headers = params_of(route, document, choice.dialect), read_call_headers(request)
        return OperationCall(caller, operation, choice, params, route.target, call_headers, request.on_disconnect, parent)


def _wrong_method(allowed: bytes) -> Fault:
    return Fault(-32600, 405, "METHOD_NOT_ALLOWED", f"This address takes {allowed.decode()}.", None)
