"""The dialects, and the translation between them through the model."""

from __future__ import annotations

from typing import Protocol

from rolecall.errors import InvalidAnswer, InvalidParams
from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.content import Content
from rolecall.protocol import v0_1 as v01
from rolecall.protocol import v0_3 as v03
from rolecall.protocol import v1_0 as v10
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_1 import shape as shape01
from rolecall.protocol.v0_3 import shape as shape03
from rolecall.protocol.v1_0 import shape as shape10

V0_1, V0_3, V1_0 = v01.VERSION, v03.VERSION, v10.VERSION


class Shape(Protocol):
    """How a dialect spells content. Documents are bare: without the 1.0 member that wraps them."""

    def read(self, kind: EventKind, document: JsonObject) -> Content:
        """Untranslatable if the document has no meaning."""

    def write(self, content: Content) -> JsonObject: ...
    def state_name(self, state: TaskState) -> str: ...


SHAPES: dict[str, Shape] = {V0_1: shape01, V0_3: shape03, V1_0: shape10}


def read_content(kind: EventKind, document: JsonObject, log_dialect: str, wanted: str) -> Content:
    """A worker's content. InvalidAnswer if it cannot be translated exactly."""
    try:
        return SHAPES[log_dialect].read(kind, document)
    except Untranslatable as error:
        raise InvalidAnswer("The worker", f"{error} (from {log_dialect} to {wanted})") from error


def write_content(content: Content, wanted: str) -> JsonObject:
    """InvalidAnswer if that dialect cannot express it."""
    try:
        return SHAPES[wanted].write(content)
    except Untranslatable as error:
        raise InvalidAnswer("The worker", f"{error} (to {wanted})") from error


def translated_message(message: JsonObject, log_dialect: str, wanted: str) -> JsonObject:
    """A caller's message in another dialect. InvalidParams if it cannot be translated exactly."""
    try:
        return SHAPES[wanted].write(SHAPES[log_dialect].read(EventKind.MESSAGE, message))
    except Untranslatable as error:
        raise InvalidParams(f"{error} (from {log_dialect} to {wanted})") from error


def with_kind(kind: EventKind, document: JsonObject, state: TaskState | None, dialect: str) -> JsonObject:
    """A document of the hub itself, with the members `kind` and `final` that 0.3 requires."""
    if dialect != V0_3:
        return document
    if kind is EventKind.STATUS and state is not None:
        return {"kind": kind.value, **document, "final": state.ends_a_stream}
    return {"kind": kind.value, **document}


def agent_of(dialect: str) -> str:
    return "agent" if dialect == V0_3 else "ROLE_AGENT"


def text_part(text: str, dialect: str) -> JsonObject:
    return {"kind": "text", "text": text} if dialect == V0_3 else {"text": text}
