"""The JSON-RPC 2.0 envelope. Every request is answered, also one without an id; params, if given, are an object."""

from __future__ import annotations

from typing import Any

from rolecall.errors import InvalidParams, InvalidRequest, ParseError, TooDeep, TooManyValues
from rolecall.model.a2a import JsonObject
from rolecall.model.value import Value
from rolecall.protocol.faults import Fault
from rolecall.protocol.text.jsontext import DEEPEST, MAX_VALUES, Nested, NotJson, dump, has_more_values, parse

NULL = b"null"
_LONGEST_ID = 1024


class RpcRequest(Value, frozen=True):
    """A request. `id`: the JSON text of the caller's id, so that every answer repeats it with its type; `null` without one."""

    id: bytes
    method: str
    params: JsonObject


class Reply(Value, frozen=True):
    """A worker's answer: a result, or an error's code and text, with the reason in its data if there is one."""

    result: Any
    code: int | None
    text: str
    reason: str = ""


def read_body(body: bytes | bytearray, max_depth: int = DEEPEST) -> Any:
    """The JSON value of a request's body: an object, or an array for a batch. ParseError, TooDeep, TooManyValues."""
    if len(body) > MAX_VALUES and has_more_values(body, MAX_VALUES):
        raise TooManyValues(MAX_VALUES)
    try:
        return parse(body, max_depth)
    except Nested as error:
        raise TooDeep(max_depth) from error
    except NotJson as error:
        raise ParseError from error


def read_id(entry: Any) -> bytes:
    """The id as JSON text, `null` if there is no valid one."""
    value = entry.get("id") if isinstance(entry, dict) else None
    if isinstance(value, str) and len(value) <= _LONGEST_ID:
        return dump(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return dump(value)
    return NULL


def read_request(entry: Any, call_id: bytes) -> RpcRequest:
    """`call_id`: the result of `read_id`. InvalidRequest, InvalidParams."""
    if not isinstance(entry, dict):
        raise InvalidRequest("A request is a JSON object with jsonrpc, method, id and params.")
    if entry.get("jsonrpc") != "2.0":
        raise InvalidRequest('The member "jsonrpc" must be the string "2.0".')
    if call_id == NULL and entry.get("id") is not None:
        raise InvalidRequest(f'The member "id" must be a string of at most {_LONGEST_ID} characters, or an integer.')
    method = entry.get("method")
    if not isinstance(method, str):
        raise InvalidRequest('The member "method" must be a string.')
    params = entry.get("params", {})
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise InvalidParams('"params" must be an object.')
    return RpcRequest(call_id, method, params)


def write_request(call_id: str, method: str, params: JsonObject) -> bytes:
    return dump({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})


def write_result(call_id: bytes, result: bytes) -> bytes:
    """`result` is inserted unchanged: an event is serialised once, when it is logged."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (call_id, result)


def write_error(call_id: bytes, fault: Fault) -> bytes:
    error: JsonObject = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (call_id, dump(error))


def read_reply(body: bytes | bytearray) -> Reply:
    """A worker's answer. ValueError if it is not a JSON-RPC response."""
    document = parse(body)
    if not isinstance(document, dict):
        raise ValueError("not a JSON-RPC response")
    error = document.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        text = error.get("message")
        number = code if isinstance(code, int) and not isinstance(code, bool) else -32603
        return Reply(None, number, text if isinstance(text, str) else "", _reason(error.get("data")))
    if "result" not in document:
        raise ValueError("neither result nor error")
    return Reply(document["result"], None, "")


def _reason(data: Any) -> str:
    """The first `reason` in an error's data, which is a list of details or a single one."""
    for detail in data if isinstance(data, list) else [data]:
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
            return str(detail["reason"])
    return ""
