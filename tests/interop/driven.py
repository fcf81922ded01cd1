"""The clients under test: official SDKs in processes of their own, and this project's."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.helpers.processes import ROOT, environment
from tests.interop import content
from tests.interop.content import Answer, Event, Json, Part, Push, Task, TaskList
from worker_sdk import HubClient
from worker_sdk.calling.stream import HubStream
from worker_sdk.errors import RolecallError

_PATIENCE = 30.0
_AT_ONCE = ThreadPoolExecutor(max_workers=16, thread_name_prefix="a call of a test")
_Result = TypeVar("_Result")

WorkerEvent = Callable[[Json], None]
Words = str | Sequence[Part]


class Refused(Exception):
    """What the client raised: the name of its class, the JSON-RPC code that its user can see, and the text."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind} ({code}): {message}")
        self.kind, self.code, self.message = kind, code, message


class Driver(Protocol):
    """Makes calls, and returns the answers in the form of its SDK. `on_event` gets the events of a stream. Raises Refused."""

    def ask(self, operation: str, request: Json, on_event: WorkerEvent) -> Any: ...


@dataclass(frozen=True)
class Stream:
    """`task`: what the SDK itself made of the events, if it does that."""

    events: list[Event]
    task: Task | None

    @property
    def opening(self) -> Task:
        """The Task that it begins with."""
        task = self.events[0]
        assert isinstance(task, Task), task
        return task


def _no_event(document: Json) -> None:
    raise AssertionError(f"an event in the answer to a call that is no stream: {document}")


def _nothing() -> None:
    pass


class Client:
    """One SDK and binding. `dialect` is the A2A version that its SDK uses with a hub that supports all."""

    def __init__(
        self, name: str, driver: Driver, *, dialect: str, binding: str = "JSONRPC", missing: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.binding = binding
        self._driver = driver
        self._missing = frozenset(missing)
        self._new = dialect == "1.0"

    def has(self, operation: str) -> bool:
        return operation not in self._missing

    def send(self, url: str, words: Words, **more: Any) -> Answer:
        """`task`, `context`, `message_id`, `metadata`, `references`, `blocking`, `history`, `push`; `version`: by a card of
        that version.
        """
        return self._answer(self._ask("send", url, parts=_parts(words), **more))

    def run(self, url: str, words: Words, **more: Any) -> Task:
        """Send what is answered with a task."""
        task = self.send(url, words, **more)
        assert isinstance(task, Task), task
        return task

    def stream(self, url: str, words: Words, **more: Any) -> Stream:
        """`take`: disconnect after that many events."""
        return self._stream("stream", url, parts=_parts(words), **more)

    def subscribe(self, url: str, task: str) -> Stream:
        return self._stream("subscribe", url, task=task)

    def watch(self, url: str, task: str) -> Future[Stream]:
        """Subscribe and return after the first event; the future has the stream when it has ended."""
        begun = threading.Event()
        watcher = in_thread(lambda: self._stream("subscribe", url, seen=begun.set, task=task))
        watcher.add_done_callback(lambda _: begun.set())
        assert begun.wait(_PATIENCE)
        return watcher

    def get(self, url: str, task: str, **more: Any) -> Task:
        return self._task(self._ask("get", url, task=task, **more))

    def cancel(self, url: str, task: str) -> Task:
        return self._task(self._ask("cancel", url, task=task))

    def tasks(self, url: str, **query: Any) -> TaskList:
        return content.list_1_0(self._ask("list", url, query=query))

    def set_push(self, url: str, task: str, push: Json) -> Push:
        """`url`, and `id`, `token`, `scheme` with `credentials`."""
        return self._push(self._ask("push_set", url, task=task, push=push))

    def get_push(self, url: str, task: str, config: str) -> Push:
        return self._push(self._ask("push_get", url, task=task, config=config))

    def list_push(self, url: str, task: str) -> list[Push]:
        answer = self._ask("push_list", url, task=task)
        return [self._push(document) for document in (answer.get("configs", []) if self._new else answer)]

    def delete_push(self, url: str, task: str, config: str) -> None:
        assert self._ask("push_delete", url, task=task, config=config) is None

    def card(self, url: str, **asked: str) -> Json:
        card: Json = self._ask("card", url, **asked)
        return card

    def extended_card(self, url: str, **shown: str) -> Json:
        """With `token` the SDK relies on the public card; without it the driver sets the flag for the extended card."""
        card: Json = self._ask("extended_card", url, **shown)
        return card

    def legacy(self, url: str, words: str) -> Task:
        """Through the client class of older programs."""
        return self._task(self._ask("legacy", url, parts=_parts(words)))

    # --- pieces

    def _ask(self, operation: str, url: str, *, on_event: WorkerEvent = _no_event, **request: Any) -> Any:
        return self._driver.ask(operation, {"url": url, "binding": self.binding, **request}, on_event)

    def _answer(self, document: Json) -> Answer:
        answer = content.event_1_0(document) if self._new else content.event_0_3(document)
        assert isinstance(answer, Answer), answer
        return answer

    def _task(self, document: Json) -> Task:
        return content.task_1_0(document) if self._new else content.task_0_3(document)

    def _push(self, document: Json) -> Push:
        return content.push_1_0(document) if self._new else content.push_0_3(document)

    def _stream(self, operation: str, url: str, *, seen: Callable[[], None] = _nothing, **request: Any) -> Stream:
        documents: list[Json] = []

        def on_event(document: Json) -> None:
            documents.append(document)
            seen()

        folded = self._ask(operation, url, on_event=on_event, **request)
        read = content.event_1_0 if self._new else content.event_0_3
        return Stream([read(document) for document in documents], self._task(folded) if folded else None)


def in_thread(call: Callable[[], _Result]) -> Future[_Result]:
    """In a thread of its own."""
    return _AT_ONCE.submit(call)


def _parts(words: Words) -> list[Json]:
    """As the drivers take them."""
    if isinstance(words, str):
        return [{"text": words}]
    documents = []
    for part in words:
        value = base64.b64encode(part.value).decode() if part.kind == "raw" else part.value
        about = {"name": part.name, "mediaType": part.media_type, "metadata": part.metadata}
        documents.append({part.kind: value} | {name: thing for name, thing in about.items() if thing is not None})
    return documents


class SdkDriver:
    """An official SDK in a process of its own, one line per call, several at a time."""

    def __init__(self, argv: Sequence[str | Path], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment({}),
            text=True,
        )
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[Future[Any], WorkerEvent]] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="answers of a client process", daemon=True)
        self._reader.start()

    def ask(self, operation: str, request: Json, on_event: WorkerEvent) -> Any:
        future: Future[Any] = Future()
        with self._writing:
            number = next(self._numbers)
            self._pending[number] = future, on_event
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "op": operation, **request}) + "\n")
            self._process.stdin.flush()
        try:
            return future.result(_PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{operation} {request}: no answer within {_PATIENCE:g} s") from None

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._reader.join(5)
        self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            if "event" in reply:
                self._pending[reply["id"]][1](reply["event"])
                continue
            future, _ = self._pending.pop(reply["id"])
            if "error" in reply:
                error = reply["error"]
                future.set_exception(Refused(error["type"], error["code"], error["message"]))
            else:
                future.set_result(reply["result"])
        for future, _ in self._pending.values():
            future.set_exception(AssertionError("the client process has ended"))


class OwnDriver:
    """This project's HubClient behind the same interface, so that the same tests run on it."""

    def ask(self, operation: str, request: Json, on_event: WorkerEvent) -> Any:
        async def run() -> Any:
            hub, _, role = str(request["url"]).rstrip("/").partition("/agents/")
            async with HubClient(hub) as client:
                return await self._run(client, operation, role, request, on_event)

        try:
            return asyncio.run(asyncio.wait_for(run(), _PATIENCE))
        except RolecallError as error:
            raise Refused(type(error).__name__, error.code, str(error)) from error

    async def _run(self, client: HubClient, operation: str, role: str, request: Json, on_event: WorkerEvent) -> Any:
        if operation == "get":
            return (await client.get_task(request["task"], history_length=request.get("history"))).raw
        if operation == "cancel":
            return (await client.cancel_task(request["task"])).raw
        if operation == "subscribe":
            return await self._read(client.follow_task(request["task"]), request, on_event)
        words: Json = {"parts": [_part_0_3(part) for part in request["parts"]]}
        if "message_id" in request:
            words["messageId"] = request["message_id"]
        about = {"task_id": request.get("task"), "context_id": request.get("context")}
        if operation == "stream":
            return await self._read(client.stream_to_agent(role, words, **about), request, on_event)
        assert operation == "send", operation
        return (await client.send_to_agent(role, words, **about, blocking=request.get("blocking", True))).raw

    async def _read(self, stream: HubStream, request: Json, on_event: WorkerEvent) -> None:
        seen = 0
        async with stream:
            async for event in stream:
                on_event(event.raw)
                seen += 1
                if seen == request.get("take"):
                    break


def _part_0_3(part: Json) -> Json:
    about = {"metadata": part["metadata"]} if "metadata" in part else {}
    for kind in ("text", "data"):
        if kind in part:
            return {"kind": kind, kind: part[kind], **about}
    names = {"raw": "bytes", "url": "uri", "name": "name", "mediaType": "mimeType"}
    return {"kind": "file", "file": {names[name]: value for name, value in part.items() if name in names}, **about}
