"""REST: the operation of each address, and the form of errors. The bodies are those of the dialects."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.command import Target
from rolecall.model.ids import is_instance, is_role, split_name
from rolecall.model.value import replace
from rolecall.protocol.dialect import Dialect
from rolecall.protocol.faults import Fault, error_info
from rolecall.protocol.methods import Operation
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.v0_3 import VERSION as _UNDER_PREFIX

_ON_MESSAGE = {"send": Operation.SEND, "stream": Operation.STREAM}
_ON_TASK = {
    ("cancel", "POST"): Operation.CANCEL,
    ("subscribe", "GET"): Operation.SUBSCRIBE,
    ("subscribe", "POST"): Operation.SUBSCRIBE,
}
_ON_CONFIGS = {"POST": Operation.PUSH_SET, "GET": Operation.PUSH_LIST}
_ON_CONFIG = {"GET": Operation.PUSH_GET, "DELETE": Operation.PUSH_DELETE}
_CONFIGS = ("pushNotificationConfigs", "pushNotificationConfig")
_CARDS = ("extendedAgentCard", "card")
_NUMBERS, _FLAGS = ("historyLength", "history_length", "pageSize", "page_size"), ("includeArtifacts", "include_artifacts")
_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestRoute(NamedTuple):
    """The operation of an address. `dialect` None: the version header or the task decides. `operation` None: the address
    exists, but not with that method; `methods` lists those that it has.
    """

    operation: Operation | None
    dialect: str | None
    target: Target
    names: JsonObject
    methods: tuple[str, ...] = ()


def read_route(path: str, method: str) -> RestRoute | None:
    """`path` is still percent-encoded, because an id may contain a slash. None: not an address of A2A's REST."""
    target, dialect, rest = _prefix([unquote(word) for word in path.strip("/").split("/")])
    if not rest:
        return None
    head, *more = rest
    if head.startswith("message:") and not more:
        operation = _ON_MESSAGE.get(head.removeprefix("message:"))
        return None if operation is None else _route(operation, method, ("POST",), dialect, target, {})
    if head in _CARDS and not more and (head != "card" or dialect is not None):
        return _route(Operation.CARD, method, ("GET",), dialect, target, {})
    if head == "tasks":
        return _task_route(more, method, dialect, target)
    return None


def _task_route(rest: list[str], method: str, dialect: str | None, target: Target) -> RestRoute | None:
    if not rest:
        return _route(Operation.LIST, method, ("GET",), dialect, target, {})
    name, *more = rest
    if not more:
        task, colon, action = name.rpartition(":")
        if colon and action in ("cancel", "subscribe"):
            methods = tuple(allowed for known, allowed in _ON_TASK if known == action)
            operation = _ON_TASK.get((action, method))
            return RestRoute(operation, dialect, target, {"id": task}, methods)
        return _route(Operation.GET, method, ("GET",), dialect, target, {"id": name})
    if more[0] not in _CONFIGS or len(more) > 2:
        return None
    table = _ON_CONFIG if len(more) == 2 else _ON_CONFIGS
    names = {"task": name, **({"config": more[1]} if len(more) == 2 else {})}
    return RestRoute(table.get(method), dialect, target, names, tuple(table))


def _route(
    operation: Operation, method: str, methods: tuple[str, ...], dialect: str | None, target: Target, names: JsonObject
) -> RestRoute:
    return RestRoute(operation if method in methods else None, dialect, target, names, methods)


def _prefix(words: list[str]) -> tuple[Target, str | None, list[str]]:
    """Split off a role's own address, a version and a tenant."""
    target = Target()
    if words[0] == "agents" and len(words) > 2:
        named = _role(words[1])
        if named is None:
            return target, None, []
        target, words = Target(path_role=named[0], path_instance=named[1]), words[2:]
    if words[0] == "v1":
        return target, _UNDER_PREFIX, words[1:]
    if words[0] == "a2a":
        if words[1:2] == ["rest"]:
            return target, _UNDER_PREFIX, words[2:]
        return target, _UNDER_PREFIX, words[1:] if words[1:2] == ["tasks"] and len(words) > 2 else []
    named = _role(words[0]) if len(words) > 1 and _begins_address(words[1]) else None
    if named is None:
        return target, None, words
    # A tenant after a role's own address has to agree with it, as in the body.
    return (
        replace(target, role=named[0], instance=named[1])
        if target.path_role
        else Target(path_role=named[0], path_instance=named[1]),
        None,
        words[1:],
    )


def _role(word: str) -> tuple[str, str | None] | None:
    role, instance = split_name(word)
    return (role, instance) if is_role(role) and (instance is None or is_instance(instance)) else None


def _begins_address(word: str) -> bool:
    return word.startswith("message:") or word in ("tasks", "extendedAgentCard")


def read_query(query: bytes) -> JsonObject:
    """The parameters, with the types that they have in JSON."""
    try:
        pairs = parse_qsl(query.decode("utf-8"), keep_blank_values=True, max_num_fields=50)
    except ValueError as error:
        raise InvalidParams("The query cannot be parsed: use UTF-8 and at most 50 parameters.") from error
    return {name: _typed(name, value) for name, value in pairs if name != "A2A-Version"}


def _typed(name: str, value: str) -> str | int | bool:
    if name in _FLAGS:
        if value not in ("true", "false"):
            raise InvalidParams(f'"{name}" must be true or false.')
        return value == "true"
    if name in _NUMBERS:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise InvalidParams(f'"{name}" must be a whole number.')
        return int(value)
    return value


def params_of(route: RestRoute, given: JsonObject, dialect: Dialect) -> JsonObject:
    """The parameters as in JSON-RPC: those in the address override those given elsewhere."""
    names = route.names
    if "task" not in names or dialect.rest is None:
        return {**given, **names}
    return dialect.rest.push_params(names["task"], names.get("config"), given, sets=route.operation is Operation.PUSH_SET)


def write_error(fault: Fault) -> bytes:
    details = fault.data or [error_info(fault.reason, {}, domain="a2a-protocol.org")]
    error = {
        "code": fault.status,
        "status": _STATUS_NAMES.get(fault.status, "INTERNAL"),
        "message": fault.message,
        "details": details,
    }
    return dump({"error": error, "message": fault.message})
