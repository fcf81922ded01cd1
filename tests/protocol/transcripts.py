"""Whole conversations with the hub's app, byte for byte: what a client sends, and what it gets back.

A transcript is a file of sections, in the form that REST clients in editors read. Ids that the hub makes are numbered.
`python -m tests.protocol.transcripts` rewrites the files, to show the effect of a change.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from hub.core.observe import NullObserver
from hub.core.shares.rotation import Rotation
from hub.core.shares.table import Shares
from hub.inbound.a2a.batches import Batches
from hub.inbound.a2a.calls import Calls
from hub.inbound.a2a.jsonrpc import JsonRpc
from hub.inbound.a2a.operations import Operations
from hub.inbound.a2a.rest import Rest
from hub.inbound.cards.cards import Cards
from hub.inbound.cards.documents import Documents
from hub.inbound.middleware.asgi_middleware import rpc_target
from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.rate_limiter import RateLimiter
from hub.inbound.middleware.request import Request
from hub.server.asgi import App, Receive, Scope, Send
from rolecall.model.card import FILES_EXTENSION, JSONRPC, SEQUENCE_EXTENSION, Interface
from rolecall.model.ids import FileId
from rolecall.model.task import StoredFile
from rolecall.model.value import replace
from rolecall.protocol.rest import read_route
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.v0_3.events import read_result
from tests.flow.conftest import CALLER, FILE_URLS, System, open_system
from tests.helpers.scripted import chunk, last_chunk, status, task
from tests.protocol.golden_files import write_transcript

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_KEPT = (b"content-type", b"allow", b"retry-after", b"a2a-extensions", b"x-a2a-extensions")
_DONE = (task(), chunk("one ", append=False), chunk("two"), last_chunk(), status("completed", "Done."))
_FILE, _CONTENT = FileId("0" * 31 + "1"), b"content"
_HOOK = {"id": "p", "url": "http://127.0.0.1:9/hook", "token": "t"}


class Conversation(NamedTuple):
    """The dialects of caller and log, and the requests; a request may use the ids of an earlier answer. `files`: messages and
    answers name a file of the hub.
    """

    dialect: str
    log_dialect: str
    steps: tuple[str, ...]
    ask: Callable[[str, str], HttpRequest]
    files: bool = False


class HttpRequest(NamedTuple):
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


# --- the requests, in each dialect and binding. `task` is the last task's id.


def _message(dialect: str, text: str, **members: Any) -> dict[str, Any]:
    if dialect == "0.1":
        return {"role": "user", "parts": [{"type": "text", "text": text}]}
    new = dialect == "1.0"
    part = {"text": text} if new else {"kind": "text", "text": text}
    kind = {} if new else {"kind": "message"}
    return {**kind, "messageId": f"m-{text}", "role": "ROLE_USER" if new else "user", "parts": [part], **members}


_METHODS = {
    "send": {"0.1": "tasks/send", "0.3": "message/send", "1.0": "SendMessage"},
    "stream": {"0.1": "tasks/sendSubscribe", "0.3": "message/stream", "1.0": "SendStreamingMessage"},
    "get": {"0.1": "tasks/get", "0.3": "tasks/get", "1.0": "GetTask"},
    "list": {"1.0": "ListTasks"},
    "cancel": {"0.1": "tasks/cancel", "0.3": "tasks/cancel", "1.0": "CancelTask"},
    "subscribe": {"0.1": "tasks/resubscribe", "0.3": "tasks/resubscribe", "1.0": "SubscribeToTask"},
    "push-set": {
        "0.1": "tasks/pushNotification/set",
        "0.3": "tasks/pushNotificationConfig/set",
        "1.0": "CreateTaskPushNotificationConfig",
    },
    "push-get": {
        "0.1": "tasks/pushNotification/get",
        "0.3": "tasks/pushNotificationConfig/get",
        "1.0": "GetTaskPushNotificationConfig",
    },
    "push-list": {"0.3": "tasks/pushNotificationConfig/list", "1.0": "ListTaskPushNotificationConfigs"},
    "push-delete": {"0.3": "tasks/pushNotificationConfig/delete", "1.0": "DeleteTaskPushNotificationConfig"},
    "card": {"0.3": "agent/getAuthenticatedExtendedCard", "1.0": "GetExtendedAgentCard"},
}
_SAME_METHOD = {"ask": "send", "ask-again": "send", "answer": "stream", "push-get-unnamed": "push-get"}


def _params(dialect: str, step: str, task: str) -> dict[str, Any]:
    if step.startswith(("send", "stream", "ask", "answer")):
        if dialect == "0.1":
            # The answer goes to the task that asks; in 0.1 only its name identifies it.
            name = "task-ask" if step in ("ask", "answer") else f"task-{step}"
            return {"id": name, "sessionId": "session-1", "message": _message(dialect, step)}
        message = _message(dialect, step, **({"taskId": task} if step == "answer" else {}))
        return {"message": {name: value for name, value in message.items() if (name, step) != ("messageId", _NO_MESSAGE_ID)}}
    if step == "list":
        return {"pageSize": 1, "historyLength": 0}
    if step == "push-set":
        hook = {**_HOOK, "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
        if dialect == "1.0":
            return {"taskId": task, **_HOOK, "authentication": {"scheme": "Bearer", "credentials": "c"}}
        return {"id" if dialect == "0.1" else "taskId": task, "pushNotificationConfig": hook}
    if step.startswith("push-"):
        if dialect == "1.0":
            return {"taskId": task} if step == "push-list" else {"taskId": task, "id": "p"}
        is_named = dialect == "0.3" and step not in ("push-list", "push-get-unnamed")
        return {"id": task, **({"pushNotificationConfigId": "p"} if is_named else {})}
    if step == "card":
        return {}
    return {"id": "none" if step in _UNKNOWN else task, **({"historyLength": -1} if step == "get-wrong" else {})}


_NO_MESSAGE_ID = "send-without-message-id"
OTHER_VERSION = "get-in-an-unknown-version"
_HEADERS = {
    "subscribe": (("last-event-id", "2"),),
    "subscribe-inline": (("last-event-id", "2"),),
    "send-wrong-type": (("content-type", "text/plain"),),
    OTHER_VERSION: (("a2a-version", "1.2"),),
}


def rpc(dialect: str) -> Callable[[str, str], HttpRequest]:
    def ask(step: str, task: str) -> HttpRequest:
        what = _SAME_METHOD.get(step, step)
        method = _METHODS[what if what in _METHODS else what.partition("-")[0]][dialect]
        params = {} if step == "card" and dialect == "0.3" else {"params": _params(dialect, step, task)}
        headers = _HEADERS.get(step, ())
        named = {} if step in _WITHOUT_ID else {"id": step}
        return HttpRequest("POST", "/agents/echo/", {"jsonrpc": "2.0", **named, "method": method, **params}, headers)

    return ask


def rest(dialect: str) -> Callable[[str, str], HttpRequest]:
    root = "/agents/echo/v1" if dialect == "0.3" else "/echo"
    version = (("a2a-version", "1.0"),) if dialect == "1.0" else ()
    addresses = {
        "send": ("POST", "/message:send"),
        "stream": ("POST", "/message:stream"),
        "ask": ("POST", "/message:send"),
        "answer": ("POST", "/message:stream"),
        "get": ("GET", "/tasks/{}"),
        "get-unknown": ("GET", "/tasks/none"),
        "get-wrong": ("GET", "/tasks/{}?historyLength=-1"),
        "list": ("GET", "/tasks?pageSize=1&historyLength=0"),
        "cancel": ("POST", "/tasks/{}:cancel"),
        "cancel-again": ("POST", "/tasks/{}:cancel"),
        "subscribe": ("GET", "/tasks/{}:subscribe"),
        "subscribe-unknown": ("GET", "/tasks/none:subscribe"),
        "push-set": ("POST", "/tasks/{}/pushNotificationConfigs"),
        "push-get": ("GET", "/tasks/{}/pushNotificationConfigs/p"),
        "push-list": ("GET", "/tasks/{}/pushNotificationConfigs"),
        "push-delete": ("DELETE", "/tasks/{}/pushNotificationConfigs/p"),
        "card": ("GET", "/card" if dialect == "0.3" else "/extendedAgentCard"),
        "wrong-verb": ("PUT", "/tasks/{}"),
    }

    def ask(step: str, task: str) -> HttpRequest:
        method, path = addresses[step if step in addresses else step.partition("-")[0]]
        has_message = step.startswith(("send", "stream", "ask", "answer"))
        body = _params(dialect, step, task) if has_message or step == "push-set" else None
        headers = (*(version if step != OTHER_VERSION else ()), *_HEADERS.get(step, ()))
        return HttpRequest(method, root + path.format(task), body, headers)

    return ask


def with_numbers(ask: Callable[[str, str], HttpRequest], header: str) -> Callable[[str, str], HttpRequest]:
    """With the sequence extension. JSON-RPC names the last event in the parameters, REST in the header."""

    def numbered(step: str, task: str) -> HttpRequest:
        request = ask(step, task)
        headers = [(header, SEQUENCE_EXTENSION)]
        if step in ("subscribe", "get-as-of"):
            if request.body is None:
                headers.append(("last-event-id", "2"))
            else:
                request.body["params"]["metadata"] = {SEQUENCE_EXTENSION: {"after": 2}}
        kept = (pair for pair in request.headers if pair[0] != "last-event-id")
        return HttpRequest(request.method, request.path, request.body, (*kept, *headers))

    return numbered


def with_files(ask: Callable[[str, str], HttpRequest], dialect: str, header: str) -> Callable[[str, str], HttpRequest]:
    """With the files extension, but for steps that end in `-inline`."""

    def with_file(step: str, task: str) -> HttpRequest:
        request = ask(step, task)
        if step.startswith(("send", "stream")):
            body = request.body.get("params", request.body)
            body["message"]["parts"].append(_file_part(dialect))
        headers = [] if step.endswith("-inline") else [(header, FILES_EXTENSION)]
        return HttpRequest(request.method, request.path, request.body, (*request.headers, *headers))

    return with_file


def _file_part(dialect: str) -> dict[str, Any]:
    own = {"metadata": {FILES_EXTENSION: {"size": len(_CONTENT)}}}
    if dialect == "1.0":
        return {"url": f"{FILE_URLS}{_FILE}", "filename": "a.txt", "mediaType": "text/plain", **own}
    file = {"uri": f"{FILE_URLS}{_FILE}", "name": "a.txt", "mimeType": "text/plain"}
    return {"type" if dialect == "0.1" else "kind": "file", "file": file, **own}


_FILES = ("send", "stream", "subscribe", "get", "send-inline", "stream-inline", "subscribe-inline", "get-inline")
_NUMBERED = ("send", "stream", "subscribe", "get", "get-as-of", "ask", "answer", "ask-again", "cancel")
_UNKNOWN = ("get-unknown", "subscribe-unknown", "get-unknown-without-id")
_COMMON = ("send", "stream", "subscribe", "get", "get-unknown", "get-wrong")
_PUSH = ("push-set", "push-get", "push-list", "push-delete")
_PAUSE = ("ask", "answer", "ask-again", "cancel", "cancel-again")
_LAST = ("subscribe-unknown", "send-wrong-type")
_WITHOUT_ID = ("get-without-id", "get-unknown-without-id")
CONVERSATIONS = {
    "jsonrpc-0.1": Conversation(
        "0.1", "0.3", (*_COMMON, "push-set", "push-get", "ask", "answer", *_LAST, *_WITHOUT_ID), rpc("0.1")
    ),
    "jsonrpc-0.3": Conversation(
        "0.3",
        "0.3",
        (
            *_COMMON,
            *_PUSH[:2],
            "push-get-unnamed",
            *_PUSH[2:],
            "card",
            *_PAUSE,
            *_LAST,
            *_WITHOUT_ID,
            _NO_MESSAGE_ID,
            OTHER_VERSION,
        ),
        rpc("0.3"),
    ),
    "jsonrpc-1.0": Conversation(
        "1.0", "1.0", (*_COMMON, "list", *_PUSH, "card", *_PAUSE, *_LAST, *_WITHOUT_ID, OTHER_VERSION), rpc("1.0")
    ),
    "jsonrpc-0.3-of-a-1.0-worker": Conversation("0.3", "1.0", (*_COMMON, "ask", "answer"), rpc("0.3")),
    "jsonrpc-1.0-of-a-0.3-worker": Conversation("1.0", "0.3", (*_COMMON, "ask", "answer"), rpc("1.0")),
    "rest-0.3": Conversation(
        "0.3", "0.3", (*_COMMON, "list", *_PUSH, "card", *_PAUSE, "wrong-verb", *_LAST, _NO_MESSAGE_ID), rest("0.3")
    ),
    "rest-1.0": Conversation(
        "1.0", "1.0", (*_COMMON, "list", *_PUSH, "card", *_PAUSE, "wrong-verb", *_LAST, OTHER_VERSION), rest("1.0")
    ),
    "sequence-jsonrpc-0.1": Conversation("0.1", "0.3", _NUMBERED[:7], with_numbers(rpc("0.1"), "x-a2a-extensions")),
    "sequence-jsonrpc-0.3": Conversation("0.3", "0.3", _NUMBERED, with_numbers(rpc("0.3"), "x-a2a-extensions")),
    "sequence-jsonrpc-1.0": Conversation("1.0", "0.3", (*_NUMBERED, "list"), with_numbers(rpc("1.0"), "a2a-extensions")),
    "sequence-rest-0.3": Conversation("0.3", "1.0", _NUMBERED, with_numbers(rest("0.3"), "x-a2a-extensions")),
    "sequence-rest-1.0": Conversation("1.0", "1.0", (*_NUMBERED, "list"), with_numbers(rest("1.0"), "a2a-extensions")),
    "files-jsonrpc-0.1": Conversation("0.1", "0.3", _FILES, with_files(rpc("0.1"), "0.1", "x-a2a-extensions"), True),
    "files-jsonrpc-0.3": Conversation("0.3", "0.3", _FILES, with_files(rpc("0.3"), "0.3", "x-a2a-extensions"), True),
    "files-jsonrpc-1.0": Conversation("1.0", "0.3", _FILES, with_files(rpc("1.0"), "1.0", "a2a-extensions"), True),
    "files-rest-0.3": Conversation("0.3", "1.0", _FILES, with_files(rest("0.3"), "0.3", "x-a2a-extensions"), True),
    "files-rest-1.0": Conversation("1.0", "1.0", _FILES, with_files(rest("1.0"), "1.0", "a2a-extensions"), True),
}


_FILE_EVENT = read_result(
    {
        "kind": "artifact-update",
        "taskId": "wt",
        "contextId": "wc",
        "artifact": {"artifactId": "f", "name": "a.txt", "parts": [_file_part("0.3")]},
        "append": False,
        "lastChunk": True,
    }
)


# --- running them


async def run_conversation(conversation: Conversation, system: System) -> dict[str, str]:
    """The sections of the transcript, by step."""
    interface = Interface("http://w/", JSONRPC, conversation.log_dialect)
    await system.enrol("echo:a", interfaces=(interface,))
    if conversation.files:
        await _store_file(system)
    app = app_of(system)
    system.clock.step_wall(0.25)
    names: dict[str, str] = {}
    sections: dict[str, str] = {}
    task_id = "none"
    for number, step in enumerate(conversation.steps):
        _plan(system, step, f"w{number}", files=conversation.files)
        request = conversation.ask(step, task_id)
        status, headers, body = await exchange(app, request)
        found = _UUID.search(body)
        if found is not None and step.startswith(("send", "stream", "ask")):
            task_id = found[0]
        elif conversation.dialect == "0.1" and step.startswith(("send", "stream", "ask")) and status == 200:
            task_id = "task-ask" if step.startswith("ask") else f"task-{step}"
        sections[step] = _UUID.sub(lambda one: _numbered(names, one[0]), _written(request, status, headers, body))
        system.clock.advance(1)
    return sections


async def _store_file(system: System) -> None:
    file = StoredFile(_FILE, CALLER, "a.txt", "text/plain", len(_CONTENT), 0, "", system.clock.wall())
    await system.engine.files.create(file)
    upload = system.engine.files.open(file)
    await upload.write(_CONTENT)
    await upload.close(complete=True)


def _plan(system: System, step: str, name: str, *, files: bool) -> None:
    """Plan the worker's answer."""
    if step.removesuffix("-inline") in ("send", "stream"):
        # Together, so that a caller that does not wait finds all of them.
        steps = (*_DONE[:1], _FILE_EVENT, *_DONE[1:]) if files else _DONE
        done = [replace(worker_event, document=_renamed(worker_event.document, name), task=name) for worker_event in steps]
        system.forwarder.plan("echo:a", done)
    elif step.startswith("ask"):
        system.forwarder.plan("echo:a", task("input-required", "Which?", "wq"))
    elif step == "answer":
        system.forwarder.plan("echo:a", status("working", None, ""), chunk("that", False, ""), status("completed", None, ""))
    elif step == "cancel":
        system.forwarder.plan_fetch("echo:a", task("canceled", None, "wq"))


def _renamed(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {member: name if member in ("id", "taskId") else value for member, value in document.items()}


def app_of(system: System, *, keep_alive: float = 15.0) -> App:
    """Both bindings, without authentication."""
    authenticator = Authenticator(None, max_head=10_000)
    cards = Cards(
        system.directory,
        Documents(system.directory, system.deps.shares.documents, system.clock.wall),
        name="hub",
        description="",
        public_url="http://hub",
        version=None,
        authenticator=authenticator,
        max_card=10_000,
    )
    operations = Operations(system.hub, system.push, cards.extended)
    unsent = Shares().unsent
    batches = Batches(RateLimiter(rate=0, at_once=0), CallTurns(Rotation("starts")), unsent, entries=50, size=10_000_000)
    calls = Calls(operations, NullObserver(), unsent, keep_alive=keep_alive)
    rpc = JsonRpc(calls, batches, max_body=10_000, max_depth=100)
    rest = Rest(calls, max_body=10_000, max_depth=100)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        authenticator.admit(request)
        target, route = rpc_target(request.path), read_route(scope["raw_path"].decode(), request.method)
        if target is not None:
            await rpc(request, target)
        else:
            assert route is not None
            await rest(request, route)

    return app


async def exchange(app: App, request: HttpRequest) -> tuple[int, list[tuple[bytes, bytes]], str]:
    path, _, query = request.path.partition("?")
    headers = [(name.encode(), value.encode()) for name, value in request.headers]
    if request.body is not None:
        headers.append((b"content-type", b"application/json"))
    scope = {
        "type": "http",
        "method": request.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8420),
    }
    to_come = [{"type": "http.request", "body": dump(request.body) if request.body is not None else b"", "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not to_come:
            await asyncio.Event().wait()
        return to_come.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(10):
        await app(scope, receive, send)
    start, *bodies = sent
    return start["status"], list(start["headers"]), b"".join(part.get("body", b"") for part in bodies).decode()


def _written(request: HttpRequest, status: int, headers: list[tuple[bytes, bytes]], body: str) -> str:
    sent = "".join(f"{name}: {value}\n" for name, value in request.headers)
    content = f"\n{dump(request.body).decode()}\n" if request.body is not None else ""
    kept = "".join(f"{name.decode()}: {value.decode()}\n" for name, value in headers if name in _KEPT)
    return f"{request.method} {request.path}\n{sent}{content}\nHTTP {status}\n{kept}\n{body}\n"


def _numbered(names: dict[str, str], uuid: str) -> str:
    return names.setdefault(uuid, f"00000000-0000-7000-8000-{len(names) + 1:012}")


async def _write() -> None:
    for name, conversation in CONVERSATIONS.items():
        async with open_system() as system:
            write_transcript(f"exchanges/{name}", await run_conversation(conversation, system))


if __name__ == "__main__":
    asyncio.run(_write())
