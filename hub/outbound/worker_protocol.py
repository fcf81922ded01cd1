"""The requests to one worker, in its dialect, as JSON-RPC or REST."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from urllib.parse import quote

from rolecall.model.a2a import Ids, JsonObject
from rolecall.model.card import Interface
from rolecall.model.value import Value
from rolecall.protocol.dialects import worker_side
from rolecall.protocol.jsonrpc import Reply, read_reply, write_request
from rolecall.protocol.text.jsontext import dump, parse


class WorkerMethod(Enum):
    """A method of a worker: its key in the dialect's table of names, then HTTP method and path of the REST form."""

    SEND = ("SEND", b"POST", "/message:send")
    STREAM = ("STREAM", b"POST", "/message:stream")
    GET = ("GET", b"GET", "/tasks/{}")
    CANCEL = ("CANCEL", b"POST", "/tasks/{}:cancel")
    SUBSCRIBE = ("SUBSCRIBE", b"POST", "/tasks/{}:subscribe")

    def __init__(self, name_key: str, http_method: bytes, path: str) -> None:
        self.name_key = name_key
        self.http_method = http_method
        self.path = path


class WorkerRequest(Value, frozen=True):
    """A request that is ready to be sent."""

    http_method: bytes
    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...]


class WorkerProtocol:
    """Has no state of a call, so one instance serves all calls to an interface: see `protocol_for`."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._rest = interface.binding != "JSONRPC"
        side = worker_side(interface.dialect)
        self._calls = side.calls
        self.form = "a JSON answer" if self._rest else "a JSON-RPC response"
        self.reply = _rest_reply if self._rest else read_reply
        """Parses an answer. ValueError: neither a result nor an error."""
        self.read_event, self.read_task = side.events.read_result, side.events.read_task
        """Parse the answer to a message or an event of a stream, and an answer that can only be a task. Malformed."""

    def request(self, method: WorkerMethod, ids: Ids, params: JsonObject, extensions: tuple[str, ...] = ()) -> WorkerRequest:
        interface = self._interface
        headers = self._calls.headers(extensions)
        if self._rest:
            tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant else ""
            url = interface.url.rstrip("/") + tenant + method.path.format(quote(ids.worker_task, safe=""))
            body = (
                dump(params)
                if method in (WorkerMethod.SEND, WorkerMethod.STREAM)
                else b""
                if method.http_method == b"GET"
                else b"{}"
            )
            return WorkerRequest(method.http_method, url, body, headers)
        if interface.tenant:
            params = {**params, "tenant": interface.tenant}
        return WorkerRequest(
            b"POST", interface.url, write_request(ids.task, getattr(self._calls, method.name_key), params), headers
        )


@lru_cache(maxsize=8192)
def protocol_for(interface: Interface) -> WorkerProtocol:
    return WorkerProtocol(interface)


_CODES = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "INVALID_AGENT_RESPONSE": -32006,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": -32007,
    "EXTENSION_SUPPORT_REQUIRED": -32008,
    "VERSION_NOT_SUPPORTED": -32009,
    "NOT_FOUND": -32001,
    "FAILED_PRECONDITION": -32004,
    "INVALID_ARGUMENT": -32602,
}


def _rest_reply(text: bytes | bytearray) -> Reply:
    document = parse(text)
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        return _rest_error(error)
    return Reply(document, None, "")


def _rest_error(error: JsonObject) -> Reply:
    """The code follows from the reason in the details, else from the name of the status."""
    details = error.get("details")
    reasons = [detail.get("reason") for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    reason = next((value for value in reasons if isinstance(value, str)), "")
    status, text = error.get("status"), error.get("message")
    code = _CODES.get(reason) or (_CODES.get(status) if isinstance(status, str) else None) or -32603
    if reason == "WORKER_BUSY":
        code = -32000
    return Reply(None, code, text if isinstance(text, str) else "", reason)
