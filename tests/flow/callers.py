"""Callers of each dialect: what they ask of a house, and what they get to see of its answers."""

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
from rolecall.protocol.callers import requests
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.callers.event_encoder import EventEncoder
from rolecall.protocol.dialect import SHAPES
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import ME, House

ANY = Target()
OTHER = Caller("default", "somebody else")
_KINDS = {
    "task": EventKind.TASK,
    "message": EventKind.MESSAGE,
    "statusUpdate": EventKind.STATUS,
    "artifactUpdate": EventKind.ARTIFACT,
}


class Seen(NamedTuple):
    """An event or an answer, free of spelling. `document` is how it was spelled."""

    kind: str
    state: str
    texts: list[str]
    document: JsonObject
    cursor: int = 0


@dataclass(frozen=True)
class Speaker:
    house: House
    dialect: str
    me: Caller = ME

    def ask(
        self, text: str = "hi", *, name: str = "", wait: bool = True, key: str | None = None, role: str = "echo", **members: Any
    ) -> Send:
        """`members` are the message's. `name`: what the caller calls the task, where it may."""
        part: JsonObject = {"text": text} if self.dialect == "1.0" else {"kind": "text", "text": text}
        target = Target(path_role=role)
        if self.dialect == "0.1":
            session = {"sessionId": members.pop("contextId")} if "contextId" in members else {}
            message = {"role": "user", "parts": [{"type": "text", "text": text}], **members}
            named = {"id": name} if name else {}
            return requests.READ_SEND["0.1"]({**named, **session, "message": message}, target, key=key)
        message = {"messageId": str(uuid4()), "parts": [part], **members}
        configuration = {"returnImmediately": not wait} if self.dialect == "1.0" else {"blocking": wait}
        return requests.READ_SEND[self.dialect]({"message": message, "configuration": configuration}, target, key=key)

    async def send(self, text: str = "hi", **members: Any) -> Seen:
        return await self.say(self.ask(text, **members))

    async def say(self, send: Send) -> Seen:
        answer = await self.house.hub.send(self.me, send)
        assert answer.dialect == self.dialect
        return self.seen(wrapped(answer.kind, answer.body, answer.dialect), answer.kind)

    async def stream(self, text: str = "hi", **members: Any) -> list[Seen]:
        return await self.read(await self.house.hub.stream(self.me, self.ask(text, **members)))

    async def subscribe(self, task: str, after: int | None = None) -> list[Seen]:
        cursor = None if after is None else Cursor(after)
        command = requests.read_subscribe({"id": task}, ANY, cursor, self.dialect)
        return await self.read(await self.house.hub.subscribe(self.me, command))

    async def get(self, task: str, history_length: int | None = None) -> Seen:
        params = {"id": task, "historyLength": history_length}
        answer = await self.house.hub.get(self.me, requests.read_get(params, ANY, self.dialect))
        return self._task(answer.body)

    async def cancel(self, task: str) -> Seen:
        answer = await self.house.hub.cancel(self.me, requests.read_cancel({"id": task}, ANY, self.dialect))
        return self._task(answer.body)

    async def listed(self, **params: Any) -> list[Seen]:
        found = await self.house.hub.list(self.me, requests.read_list(params, ANY, self.dialect))
        return [self._task(body) for body in found.tasks]

    async def read(self, task_stream: TaskStream) -> list[Seen]:
        """As a stream of that dialect has it."""
        pen = EventEncoder(task_stream.dialect, task_stream.alias)
        assert task_stream.dialect == self.dialect
        return [self._frame(pen, logged) async for batch in task_stream for logged in batch]

    def seen(self, body: bytes, kind: EventKind, cursor: int = 0) -> Seen:
        """Strictly in this dialect: each has its own way of telling what a thing is."""
        document: JsonObject = parse(body)
        if self.dialect == "1.0":
            ((member, document),) = document.items()
            assert _KINDS[member] is kind
        assert document.get("kind") == (kind.value if self.dialect == "0.3" else None)
        return self._of(document, kind, cursor)

    def _frame(self, pen: EventEncoder, logged: Logged) -> Seen:
        cursor, event = logged.cursor, logged.event
        body = wrapped(event.kind, pen.encode(event), self.dialect)
        # A stream of 0.1 has no tasks: the first frame is the task's status.
        kind = EventKind.STATUS if self.dialect == "0.1" and event.kind is EventKind.TASK else event.kind
        return self.seen(body, kind, cursor)

    def _task(self, body: bytes) -> Seen:
        return self._of(parse(body), EventKind.TASK)

    def _of(self, document: JsonObject, kind: EventKind, cursor: int = 0) -> Seen:
        # The history of 0.1 is another thing under the same name.
        plain = {name: value for name, value in document.items() if name != "history" or self.dialect != "0.1"}
        content = SHAPES[self.dialect].read(kind, plain)
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


async def enrol(house: House, name: str, *log_dialect: str, **offer: Any) -> Registration:
    """A worker that can be spoken to in these dialects."""
    interfaces = tuple(Interface("http://w/", JSONRPC, dialect) for dialect in log_dialect)
    return await house.enrol(name, interfaces=interfaces, **offer)
