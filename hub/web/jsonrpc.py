"""JSON-RPC, on every address that takes it: one dispatcher. Bytes in, bytes out; Quart is not on this path."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from hub.core.hub import Hub
from hub.core.observe import Observer
from hub.core.reading import Reading
from hub.errors import (
    ExtendedCardNotConfigured,
    HubError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    PushNotSupported,
    UnsupportedOperation,
    VersionNotSupported,
)
from hub.model.command import Send as Message
from hub.model.command import Target
from hub.model.ids import Caller, Cursor
from hub.web.asgi import ClientGone, Receive, Scope, Send, answer, answer_unread, header, read_json_body
from hub.web.auth import LOCAL
from hub.web.stream import EventStream, Lines, opening
from hub.wire import v03
from hub.wire.faults import Fault, fault_of
from hub.wire.jsonrpc import NULL, Request, read_body, read_id, read_request, write_error, write_result

log = logging.getLogger(__name__)

Handler = Callable[[Caller, Request, Target, Scope], Awaitable[bytes]]
Opener = Callable[[Caller, Request, Target, Scope], Awaitable[Reading]]
_REAL_STATUS = frozenset({408, 413, 415})
_CARD_METHODS = ("agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard")


class JsonRpc:
    def __init__(self, hub: Hub, observer: Observer, *, max_body: int, max_batch: int, lines: Lines) -> None:
        self._hub = hub
        self._observer = observer
        self._max_body = max_body
        self._max_batch = max_batch
        self._lines = lines
        self._unary: dict[str, Handler] = {
            "message/send": self._message_send,
            "tasks/get": self._tasks_get,
            "tasks/cancel": self._tasks_cancel,
            **dict.fromkeys(_CARD_METHODS, self._extended_card),
            **{f"tasks/pushNotificationConfig/{verb}": self._push for verb in ("set", "get", "list", "delete")},
        }
        self._streaming: dict[str, Opener] = {
            "message/stream": self._message_stream,
            "tasks/resubscribe": self._tasks_resubscribe,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send, target: Target) -> None:
        call_id = NULL
        try:
            document = read_body(await read_json_body(scope, receive, self._max_body))
            if isinstance(document, list):
                await answer(send, await self._batch(document, target, scope))
                return
            call_id = read_id(document)
            request = read_request(document)
            _check_version(scope)
            if request.method in self._streaming:
                await self._stream(request, target, scope, receive, send)
            else:
                await answer(send, await self._call(request, target, scope))
        except ClientGone:
            pass
        except HubError as error:
            fault = fault_of(error)
            if fault.status in _REAL_STATUS:
                await answer_unread(send, receive, write_error(call_id, fault), status=fault.status)
            else:
                await answer(send, write_error(call_id, fault))

    async def _call(self, request: Request, target: Target, scope: Scope) -> bytes:
        """One request's whole answer; whatever goes wrong is an answer too."""
        role = target.path_role or ""
        started = time.perf_counter()
        self._observer.call_started(role, request.method if request.method in self._unary else "unknown")
        outcome = "ok"
        try:
            handler = self._unary.get(request.method)
            if handler is None:
                if request.method in self._streaming:
                    raise UnsupportedOperation("A streaming method cannot be part of a batch.")
                raise MethodNotFound(request.method)
            return write_result(request.id, await handler(LOCAL, request, target, scope))
        except Exception as error:
            fault = self._fault(error, request.method)
            outcome = fault.reason.lower()
            return write_error(request.id, fault)
        finally:
            method = request.method if request.method in self._unary else "unknown"
            self._observer.call_ended(role, method, outcome, time.perf_counter() - started)

    async def _stream(self, request: Request, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        role = target.path_role or ""
        started = time.perf_counter()
        self._observer.call_started(role, request.method)
        outcome = "ok"
        stream = EventStream(send, receive, self._lines)
        try:
            begin = opening(self._open(request, target, scope), request.method)
            reading = await stream.wait_for(begin)
            await stream.copy(reading, request.id)
        except Exception as error:
            fault = self._fault(error, request.method)
            outcome = fault.reason.lower()
            await stream.fail(fault, request.id)
        finally:
            self._observer.call_ended(role, request.method, outcome, time.perf_counter() - started)

    async def _open(self, request: Request, target: Target, scope: Scope) -> Reading:
        return await self._streaming[request.method](LOCAL, request, target, scope)

    async def _batch(self, entries: list[Any], target: Target, scope: Scope) -> bytes:
        """Every entry has its own answer, in the order of the entries."""
        if not entries:
            raise InvalidRequest("A batch must hold at least one request.")
        if len(entries) > self._max_batch:
            raise InvalidRequest(f"A batch may hold {self._max_batch} requests; this one holds {len(entries)}.")
        answers = await asyncio.gather(*(self._entry(entry, target, scope) for entry in entries))
        return b"[" + b",".join(answers) + b"]"

    async def _entry(self, entry: Any, target: Target, scope: Scope) -> bytes:
        try:
            request = read_request(entry)
        except HubError as error:
            return write_error(read_id(entry), fault_of(error))
        return await self._call(request, target, scope)

    def _fault(self, error: Exception, method: str) -> Fault:
        if not isinstance(error, HubError):
            log.exception("request failed", exc_info=error, extra={"event": "request_failed", "method": method})
        return fault_of(error)

    # --- the method table

    async def _message_send(self, caller: Caller, request: Request, target: Target, scope: Scope) -> bytes:
        return await self._hub.send(caller, _read_send(request, target, scope))

    async def _message_stream(self, caller: Caller, request: Request, target: Target, scope: Scope) -> Reading:
        return await self._hub.stream(caller, _read_send(request, target, scope))

    async def _tasks_get(self, caller: Caller, request: Request, target: Target, scope: Scope) -> bytes:
        return await self._hub.get(caller, v03.read_get(request.params, target))

    async def _tasks_cancel(self, caller: Caller, request: Request, target: Target, scope: Scope) -> bytes:
        return await self._hub.cancel(caller, v03.read_cancel(request.params, target))

    async def _tasks_resubscribe(self, caller: Caller, request: Request, target: Target, scope: Scope) -> Reading:
        return await self._hub.subscribe(caller, v03.read_subscribe(request.params, target, _cursor(scope)))

    async def _extended_card(self, caller: Caller, request: Request, target: Target, scope: Scope) -> bytes:
        raise ExtendedCardNotConfigured

    async def _push(self, caller: Caller, request: Request, target: Target, scope: Scope) -> bytes:
        raise PushNotSupported


def _read_send(request: Request, target: Target, scope: Scope) -> Message:
    return v03.read_send(request.params, target, trace=_trace(scope), key=_key(scope))


def _key(scope: Scope) -> str | None:
    value = header(scope, b"idempotency-key")
    if value is None or not value.strip():
        return None
    if len(value) > 255 or not value.isascii():
        raise InvalidParams("Idempotency-Key must be at most 255 characters of ASCII.")
    return value.strip().decode()


def _trace(scope: Scope) -> str | None:
    value = header(scope, b"traceparent")
    return value.decode("ascii", "ignore")[:256] if value else None


def _cursor(scope: Scope) -> Cursor | None:
    value = header(scope, b"last-event-id")
    if value is None or not value.strip():
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidParams("Last-Event-ID must be the id of an event of this task: a whole number.")
    return Cursor(int(value))


def _check_version(scope: Scope) -> None:
    version = header(scope, b"a2a-version")
    if version and version.partition(b".")[0].strip() not in (b"0", b"1"):
        raise VersionNotSupported(version.decode("ascii", "replace"))
