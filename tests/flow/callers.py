"""Callers of each dialect: their requests, and the answers as they see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from hub.core.tasks.stream import TaskStream
from rolecall.model.a2a import EventKind, JsonObject, Logged
from rolecall.model.card import JSONRPC, Interface
from rolecall.model.command import Send, Target
from rolecall.model.content import ArtifactUpdate, Message, StatusUpdate, Task
from rolecall.model.ids import Caller, Cursor
from rolecall.model.worker import Registration
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.dialect import Requests
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System
from tests.helpers.reading import read_all

ANY = Target()
OTHER = Caller("default", "somebody else")
_KINDS = {
    "task": EventKind.TASK,
    "message": EventKind.MESSAGE,
    "statusUpdate": EventKind.STATUS,
    "artifactUpdate": EventKind.ARTIFACT,
}


class Seen(NamedTuple):
    """An event or an answer, independent of the dialect. `document` is its form in the dialect."""

    kind: str
    state: str
    texts: list[str]
    document: JsonObject
    cursor: int = 0


@dataclass(frozen=True)
class DialectCaller:
    system: System
    dialect: str
    caller: Caller = CALLER

    @property
    def _requests(self) -> Requests:
        return DIALECTS[self.dialect].requests

    def ask(
        self, text: str = "hi", *, name: str = "", wait: bool = True, key: str | None = None, role: str = "echo", **members: Any
    ) -> Send:
        """`members` are the message's. `name`: the caller's alias for the task, if the dialect has aliases."""
        part: JsonObject = {"text": text} if self.dialect == "1.0" else {"kind": "text", "text": text}
        target = Target(path_role=role)
        if self.dialect == "0.1":
            session = {"sessionId": members.pop("contextId")} if "contextId" in members else {}
            message = {"role": "user", "parts": [{"type": "text", "text": text}], **members}
            named = {"id": name} if name else {}
            return DIALECTS["0.1"].requests.read_send({**named, **session, "message": message}, target, key=key)
        message = {"messageId": str(uuid4()), "parts": [part], **members}
        configuration = {"returnImmediately": not wait} if self.dialect == "1.0" else {"blocking": wait}
        return self._requests.read_send({"message": message, "configuration": configuration}, target, key=key)

    async def send(self, text: str = "hi", **members: Any) -> Seen:
        return await self.say(self.ask(text, **members))

    async def say(self, send: Send) -> Seen:
        answer = await self.system.hub.send(self.caller, send)
        assert answer.dialect == self.dialect
        return self.seen(wrapped(answer.kind, answer.body, answer.dialect), answer.kind)

    async def stream(self, text: str = "hi", **members: Any) -> list[Seen]:
        return await self.read(await self.system.hub.stream(self.caller, self.ask(text, **members)))

    async def subscribe(self, task: str, after: int | None = None) -> list[Seen]:
        cursor = None if after is None else Cursor(after)
        command = self._requests.read_subscribe({"id": task}, ANY, cursor, (self.dialect,))
        return await self.read(await self.system.hub.subscribe(self.caller, command))

    async def get(self, task: str, history_length: int | None = None) -> Seen:
        params = {"id": task, "historyLength": history_length}
        answer = await self.system.hub.get(self.caller, self._requests.read_get(params, ANY, (self.dialect,)))
        return self._task(answer.body)

    async def cancel(self, task: str) -> Seen:
        answer = await self.system.hub.cancel(self.caller, self._requests.read_cancel({"id": task}, ANY, (self.dialect,)))
        return self._task(answer.body)

    async def list_tasks(self, **params: Any) -> list[Seen]:
        found = await self.system.hub.list(self.caller, self._requests.read_list(params, ANY))
        return [self._task(answer.body) for answer in found.tasks]

    async def read(self, task_stream: TaskStream) -> list[Seen]:
        """The events as a stream of that dialect sends them."""
        encoder = EventEncoder(task_stream.dialect, task_stream.alias)
        assert task_stream.dialect == self.dialect
        return [self._frame(encoder, logged) for logged in await read_all(task_stream)]

    def seen(self, body: bytes, kind: EventKind, cursor: int = 0) -> Seen:
        """Reads strictly in this dialect: each marks the kind of a document in its own way."""
        document: JsonObject = parse(body)
        if self.dialect == "1.0":
            ((member, document),) = document.items()
            assert _KINDS[member] is kind
        assert document.get("kind") == (kind.value if self.dialect == "0.3" else None)
        return self._of(document, kind, cursor)

    def _frame(self, encoder: EventEncoder, logged: Logged) -> Seen:
        cursor, event = logged.cursor, logged.event
        body = wrapped(event.kind, encoder.encode(event), self.dialect)
        # A stream of 0.1 has no tasks: the first frame is the task's status.
        kind = EventKind.STATUS if self.dialect == "0.1" and event.kind is EventKind.TASK else event.kind
        return self.seen(body, kind, cursor)

    def _task(self, body: bytes) -> Seen:
        return self._of(parse(body), EventKind.TASK)

    def _of(self, document: JsonObject, kind: EventKind, cursor: int = 0) -> Seen:
        # In 0.1 "history" has another meaning.
        plain = {name: value for name, value in document.items() if name != "history" or self.dialect != "0.1"}
        content = DIALECTS[self.dialect].shape.read(kind, plain)
        state, texts = "", []
        if isinstance(content, Task | StatusUpdate):
            state = content.status.state.value
        if isinstance(content, Task):
            texts = [part.value for artifact in content.artifacts for part in artifact.parts]
        elif isinstance(content, ArtifactUpdate):
            texts = [part.value for part in content.artifact.parts]
        elif isinstance(content, Message):
            texts = [part.value for part in content.parts]
        return Seen(kind.value, state, texts, document, cursor)


async def enrol(system: System, name: str, *log_dialect: str, **offer: Any) -> Registration:
    """A worker that can be called in these dialects."""
    interfaces = tuple(Interface("http://w/", JSONRPC, dialect) for dialect in log_dialect)
    return await system.enrol(name, interfaces=interfaces, **offer)
