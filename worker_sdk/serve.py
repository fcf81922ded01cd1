"""A worker's tasks over HTTP: A2A 0.3 and 1.0 in JSON-RPC, as one ASGI callable. Task logs are kept in 0.3."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from rolecall.errors import (
    BodyTooLarge,
    BodyTooSlow,
    ExtendedCardNotConfigured,
    HubError,
    InvalidRequest,
    MediaTypeNotSupported,
    MethodNotFound,
    PushNotSupported,
    TaskOver,
    WorkerRefused,
)
from rolecall.model.a2a import Event, EventKind, JsonObject
from rolecall.model.command import Send as Message
from rolecall.model.command import Target
from rolecall.model.value import replace
from rolecall.protocol import jsonrpc, sse
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.callers.params import read_task_id
from rolecall.protocol.cards import CARD_PATHS
from rolecall.protocol.dialect import Dialect
from rolecall.protocol.dialects import DEFAULT, DIALECTS, read_method
from rolecall.protocol.faults import fault_of
from rolecall.protocol.methods import Operation
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.text.trace import read_parent, read_state
from rolecall.protocol.translation import translated_message
from rolecall.protocol.v0_3 import VERSION
from worker_sdk.tasks.log import Reader, TaskLog
from worker_sdk.tasks.task_table import Tasks

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

RPC_PATHS = ("", "/", "/a2a")
_PUSH = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})
_BODY_TIMEOUT = 30.0
_SETTING = "max_body of the Worker"
_KEEP_ALIVE = 15.0
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_JSON = (b"content-type", b"application/json")
_CLOSED = b'{"error":"this worker takes calls from its hub alone: call its role there, or start the worker with --open"}'
_OUTSIDE_RPC = (BodyTooLarge, BodyTooSlow, MediaTypeNotSupported)
"""Errors with an HTTP status of their own. All others are sent with 200, because common clients drop other bodies."""

log = logging.getLogger("worker_sdk")


class RpcCall(NamedTuple):
    """One JSON-RPC request with its headers. `dialect` is the caller's."""

    request: jsonrpc.RpcRequest
    headers: dict[bytes, bytes]
    operation: Operation
    dialect: Dialect

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return value.decode("latin-1")[:512] if value is not None else None


class Server:
    """The ASGI application. `card` maps the base URL that the caller used to the card."""

    def __init__(
        self, tasks: Tasks, card: Callable[[str], JsonObject], *, max_body: int, keep_alive: float = _KEEP_ALIVE
    ) -> None:
        self._tasks = tasks
        self._card = card
        self._max_body = max_body
        self._keep_alive = keep_alive
        self.authorization = ""
        """The header that calls must have; empty: none. Cards are for everybody."""
        self._methods: dict[Operation, Callable[[RpcCall], Awaitable[bytes]]] = {
            Operation.SEND: self._send,
            Operation.GET: self._get,
            Operation.CANCEL: self._cancel,
            Operation.CARD: self._extended_card,
        }
        self._streams: dict[Operation, Callable[[RpcCall], tuple[TaskLog, int, bool]]] = {
            Operation.STREAM: self._open_stream,
            Operation.SUBSCRIBE: self._reopen_stream,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"]).removeprefix(str(scope.get("root_path") or ""))
        method = scope["method"]
        if path in CARD_PATHS and method in ("GET", "HEAD"):
            await _respond(send, 200, dump(self._card(_base_url(scope))), [_JSON, (b"access-control-allow-origin", b"*")])
        elif path in RPC_PATHS and method == "POST":
            if self._may_call(scope):
                await self._rpc(scope, receive, send)
            else:
                await _respond(send, 401, _CLOSED, [_JSON, (b"www-authenticate", b"Bearer")])
        elif path in RPC_PATHS or path in CARD_PATHS:
            allowed = b"POST" if path in RPC_PATHS else b"GET, HEAD"
            await _respond(send, 405, b'{"error":"method not allowed"}', [_JSON, (b"allow", allowed)])
        else:
            await _respond(send, 404, b'{"error":"not found: A2A is at /, the card at %b"}' % CARD_PATHS[0].encode(), [_JSON])

    # --- one request

    def _may_call(self, scope: Scope) -> bool:
        if not self.authorization:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self.authorization.encode())

    async def _rpc(self, scope: Scope, receive: Receive, send: Send) -> None:
        call_id = jsonrpc.NULL
        streams, dialect = False, DIALECTS[DEFAULT]
        try:
            headers = dict(scope["headers"])
            entry = jsonrpc.read_body(await self._read(headers, receive))
            if isinstance(entry, list):
                raise InvalidRequest("This worker accepts no batches. Send one request at a time.")
            call_id = jsonrpc.read_id(entry)
            call = _read_call(jsonrpc.read_request(entry, call_id), headers)
            streams, dialect = call.operation in self._streams, call.dialect
            if call.operation is Operation.SUBSCRIBE:
                await self._tasks.look(read_task_id(call.request.params))
            if streams:
                task_log, after, snapshot_first = self._streams[call.operation](call)
            else:
                answer = await self._method(call)
        except Exception as error:  # noqa: BLE001 - the request edge
            await self._refuse(send, call_id, error, dialect, streams)
            return
        if streams:
            await self._stream(
                task_log, after, snapshot_first, EventWriter(call_id, dialect.version, self._tasks.boot), receive, send
            )
        else:
            await _respond(send, 200, jsonrpc.write_result(call_id, answer), [_JSON])

    async def _method(self, call: RpcCall) -> bytes:
        if call.operation in _PUSH:
            raise PushNotSupported
        if call.operation not in self._methods:
            raise MethodNotFound(call.request.method)
        return await self._methods[call.operation](call)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        kind = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
        if not (kind == b"application/json" or kind.endswith(b"+json")) or b"content-encoding" in headers:
            raise MediaTypeNotSupported
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body:
            raise BodyTooLarge(self._max_body, _SETTING)
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                return await self._read_all(receive)
        except TimeoutError as error:
            raise BodyTooSlow from error

    async def _read_all(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise InvalidRequest("The client disconnected before the whole body had arrived.")
            body += event.get("body", b"")
            if len(body) > self._max_body:
                raise BodyTooLarge(self._max_body, _SETTING)
            if not event.get("more_body"):
                return bytes(body)

    async def _refuse(self, send: Send, call_id: bytes, error: Exception, dialect: Dialect, streams: bool) -> None:
        fault = fault_of(error, dialect.faults)
        if not isinstance(error, HubError):
            log.error("a request failed", exc_info=error, extra={"event": "request_failed"})
        body = jsonrpc.write_error(call_id, fault)
        if isinstance(error, WorkerRefused):
            await _respond(send, 503, body, [_JSON, (b"x-not-processed", b"1"), (b"retry-after", b"1")])
        elif streams and dialect.events_only:
            await _respond(send, 200, sse.write_frame(body), list(sse.RESPONSE_HEADERS))
        else:
            await _respond(send, fault.status if isinstance(error, _OUTSIDE_RPC) else 200, body, [_JSON])

    # --- methods

    async def _send(self, call: RpcCall) -> bytes:
        send = _read_send(call)
        task_log = self._tasks.deliver(send, **_from_hub(call)).log
        if send.blocking:
            await task_log.wait_until_resting()
        version = call.dialect.version
        return wrapped(EventKind.TASK, _task(task_log, version, send.history_length), version)

    async def _get(self, call: RpcCall) -> bytes:
        version = call.dialect.version
        query = call.dialect.requests.read_get(call.request.params, Target(), (version,))
        return _task(self._tasks.get(query.task_id), version, query.history_length)

    async def _cancel(self, call: RpcCall) -> bytes:
        return _task(await self._tasks.cancel(read_task_id(call.request.params)), call.dialect.version)

    async def _extended_card(self, call: RpcCall) -> bytes:
        raise ExtendedCardNotConfigured

    # --- streams

    def _open_stream(self, call: RpcCall) -> tuple[TaskLog, int, bool]:
        """The Task as of the start of the turn, then all events since, also for a message that was delivered before."""
        send = _read_send(call)
        delivery = self._tasks.deliver(send, **_from_hub(call))
        if delivery.start < delivery.log.first:
            return delivery.log, delivery.log.end, True
        return delivery.log, delivery.start, True

    def _reopen_stream(self, call: RpcCall) -> tuple[TaskLog, int, bool]:
        """Exactly what follows `Last-Event-ID`. If it is missing, from another process or no longer stored: the Task as of
        now. In 1.0 only a client with a `Last-Event-ID` may subscribe to an ended task.
        """
        task_log = self._tasks.get(read_task_id(call.request.params))
        position = call.header(b"last-event-id") or ""
        if not position and task_log.ended and call.dialect.rules.ended_refused:
            raise TaskOver
        boot, _, number = position.rpartition(".")
        if boot == self._tasks.boot and number.isascii() and number.isdigit() and len(number) < 18:
            after = int(number)
            if task_log.first - 1 <= after <= task_log.end:
                return task_log, after, False
        return task_log, task_log.end, True

    async def _stream(
        self, task_log: TaskLog, after: int, snapshot_first: bool, writer: EventWriter, receive: Receive, send: Send
    ) -> None:
        reader = task_log.follow(after)
        watch = asyncio.create_task(_stop_when_gone(receive, reader), name=f"watch of a reader of task {task_log.task_id}")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(sse.RESPONSE_HEADERS)})
            if snapshot_first:
                await _write(send, writer.frame(after, EventKind.TASK, _task(task_log, writer.dialect, upto=after)))
            while (batch := await reader.batch(self._keep_alive)) is not None:
                frames = [writer.write(logged.cursor, logged.event) for logged in batch]
                await _write(send, b"".join(frames) or sse.KEEP_ALIVE)
                # Writes to a closed connection succeed at once: only this pause lets `_stop_when_gone` see the disconnect.
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            reader.close()
            watch.cancel()


class EventWriter:
    """Writes a task's events into one caller's stream. The `id` is this worker's own position."""

    def __init__(self, call_id: bytes, dialect: str, boot: str) -> None:
        self.dialect = dialect
        self._call_id = call_id
        self._boot = boot.encode()
        self._event_encoder = EventEncoder(dialect)

    def write(self, cursor: int, event: Event) -> bytes:
        return self.frame(cursor, event.kind, self._event_encoder.encode(event))

    def frame(self, cursor: int, kind: EventKind, document: bytes) -> bytes:
        result = jsonrpc.write_result(self._call_id, wrapped(kind, document, self.dialect))
        return b"id: %b.%d\n" % (self._boot, cursor) + sse.write_frame(result)


def _read_call(request: jsonrpc.RpcRequest, headers: dict[bytes, bytes]) -> RpcCall:
    operation, choice = read_method(request.method, headers.get(b"a2a-version", b"").decode("latin-1"))
    if choice.dialect.worker is None:
        raise MethodNotFound(request.method)
    return RpcCall(request, headers, operation, choice.dialect)


def _read_send(call: RpcCall) -> Message:
    """Handlers get messages in the dialect of task logs, whatever the caller's."""
    dialect = call.dialect.version
    trace = read_parent(call.headers.get(b"traceparent"))
    send = call.dialect.requests.read_send(call.request.params, Target(), trace=trace)
    if trace is not None and b"tracestate" in call.headers:
        send = replace(send, trace_state=read_state((call.headers[b"tracestate"],)))
    if dialect == VERSION:
        return send
    message = translated_message(send.params["message"], dialect, VERSION)
    return replace(send, params={**send.params, "message": message}, dialect=VERSION)


def _task(task_log: TaskLog, dialect: str, history_length: int | None = None, *, upto: int | None = None) -> bytes:
    body = task_log.snapshot(upto=upto, history_length=history_length)
    return EventEncoder(dialect).encode(Event(EventKind.TASK, None, VERSION, body))


def _from_hub(call: RpcCall) -> dict[str, Any]:
    """What a hub calls the message, and the task, and the seconds that remain for it."""
    return {
        "idempotency_key": call.header(b"idempotency-key") or "",
        "hub_task": call.header(b"a2a-task") or "",
        "remaining": _seconds(call.header(b"a2a-remaining") or ""),
    }


def _seconds(text: str) -> float | None:
    return float(text) if _SECONDS.fullmatch(text) else None


async def _stop_when_gone(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.stop()


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _base_url(scope: Scope) -> str:
    host = dict(scope["headers"]).get(b"host", b"127.0.0.1").decode("latin-1")
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path') or ''}/"
