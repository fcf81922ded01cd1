"""The request headers that the hub reads, in every binding."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from hub.inbound.a2a.operations import CallHeaders
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers
from rolecall.errors import GoesInCircles, InvalidParams
from rolecall.model.command import MAX_HOPS, ParentCall
from rolecall.model.ids import Cursor, TaskId, WorkerId, is_instance, is_role, split_name
from rolecall.protocol.text.trace import read_parent, read_state

_EXTENSION = re.compile(r"[!-+\--~]{1,256}")
_MAX_EXTENSIONS = 32
_MAX_PARENT = 1024
PARENT = b"a2a-parent"
_WANT_TASK = b"want-a2a-task"
_LONGEST_VERSION = 100
_QUERY_VERSION = b"A2A-Version="
_EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")
_READ = frozenset({b"last-event-id", b"idempotency-key", b"traceparent", b"a2a-hop", *_EXTENSION_HEADERS})
_NONE = CallHeaders()


def read_call_headers(request: Request) -> CallHeaders:
    """InvalidParams, GoesInCircles."""
    headers = request.headers
    if _READ.isdisjoint(headers):
        return _NONE
    trace = read_parent(headers.get(b"traceparent"))
    return CallHeaders(
        after=_cursor(headers),
        key=_key(headers),
        trace=trace,
        trace_state=_trace_state(request) if trace is not None and b"tracestate" in headers else None,
        extensions=_extensions(request),
        hops=_hops(headers),
    )


def read_parent_call(request: Request) -> ParentCall | None:
    """`A2A-Parent: task=ID; worker=ROLE:INSTANCE; epoch=N; lease=SECRET`, and as wanted `; within=SECONDS; goes-on; again`
    or `; resumed`.
    None: the call is not made in a task. InvalidParams.
    """
    value = request.headers.get(PARENT)
    if value is None:
        return None
    words = [word.strip().partition("=") for word in value.decode("latin-1")[:_MAX_PARENT].split(";")]
    members = {name: text for name, _, text in words}
    role, instance = split_name(members.get("worker", ""))
    epoch, within = members.get("epoch", ""), members.get("within")
    if not (
        members.get("task")
        and is_role(role)
        and is_instance(instance or "")
        and _is_number(epoch)
        and (within is None or _is_number(within.replace(".", "", 1)))
    ):
        raise InvalidParams("A2A-Parent must name the task, the worker, the epoch and the secret of its lease.")
    return ParentCall(
        task=TaskId(members["task"]),
        worker=WorkerId(role, instance or ""),
        epoch=int(epoch),
        secret=members.get("lease", ""),
        within=float(within) if within is not None else None,
        goes_on="goes-on" in members,
        again="again" in members,
        resumed="resumed" in members,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def version_of(request: Request) -> str:
    """The A2A version that the request names: all values of the header, or if there is none, of the query."""
    if b"a2a-version" in request.headers:
        found = [value for name, value in request.scope["headers"] if name == b"a2a-version"]
    elif query := request.scope.get("query_string"):
        found = _versions_in(query)
    else:
        return ""
    text = b", ".join(found).decode("ascii", "replace")
    return text if len(text) <= _LONGEST_VERSION else f"{text[:_LONGEST_VERSION]}…"


def extension_headers(request: Request) -> Headers:
    """The answer's header: it repeats the requested extensions, because the hub has them or passes them to the worker."""
    for name in _EXTENSION_HEADERS:
        if name in request.headers:
            return [(name, ", ".join(_extensions(request)).encode("ascii"))]
    return ()


def is_task_wanted(request: Request) -> bool:
    """Whether the answer to a streaming call is to begin as soon as there is a task, with its id in the head."""
    return request.headers.get(_WANT_TASK) == b"1"


def _versions_in(query: bytes) -> list[bytes]:
    pairs = (pair for pair in query.split(b"&") if pair.startswith(_QUERY_VERSION))
    return [unquote_to_bytes(pair.removeprefix(_QUERY_VERSION).replace(b"+", b" ")) for pair in pairs]


def _extensions(request: Request) -> tuple[str, ...]:
    names: list[str] = []
    if request.headers.keys().isdisjoint(_EXTENSION_HEADERS):
        return ()
    for name, value in request.scope["headers"]:
        if name in _EXTENSION_HEADERS:
            names += [item.strip() for item in value.decode("ascii", "ignore").split(",")]
    valid = (item for item in names if _EXTENSION.fullmatch(item))
    return tuple(dict.fromkeys(valid))[:_MAX_EXTENSIONS]


def _key(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"idempotency-key")
    if value is None or not value.strip():
        return None
    if len(value) > 255 or not value.isascii():
        raise InvalidParams("Idempotency-Key must be at most 255 characters of ASCII.")
    return value.strip().decode()


def _trace_state(request: Request) -> str | None:
    return read_state([value for name, value in request.scope["headers"] if name == b"tracestate"])


def _hops(headers: dict[bytes, bytes]) -> int:
    """How many hubs the call has passed. The limit ends calls between hubs that go in a circle."""
    value = headers.get(b"a2a-hop", b"0")
    hops = int(value) if value.isdigit() and len(value) < 4 else MAX_HOPS
    if hops >= MAX_HOPS:
        raise GoesInCircles(MAX_HOPS)
    return hops


def _cursor(headers: dict[bytes, bytes]) -> Cursor | None:
    value = headers.get(b"last-event-id")
    if value is None or not value.strip():
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidParams("Last-Event-ID must be the id of an event of this task: a whole number.")
    return Cursor(int(value))
