"""Translation between dialects, through the model. What cannot be translated exactly is refused."""

from __future__ import annotations

from rolecall.errors import InvalidAnswer, InvalidParams
from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.content import Content
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.untranslatable import Untranslatable


def read_content(kind: EventKind, document: JsonObject, log_dialect: str, wanted: str) -> Content:
    """A worker's content. InvalidAnswer if it cannot be translated exactly."""
    try:
        return DIALECTS[log_dialect].shape.read(kind, document)
    except Untranslatable as error:
        raise InvalidAnswer("The worker", f"{error} (from {log_dialect} to {wanted})") from error


def write_content(content: Content, wanted: str) -> JsonObject:
    """InvalidAnswer if that dialect cannot express it."""
    try:
        return DIALECTS[wanted].shape.write(content)
    except Untranslatable as error:
        raise InvalidAnswer("The worker", f"{error} (to {wanted})") from error


def translated_message(message: JsonObject, log_dialect: str, wanted: str) -> JsonObject:
    """A caller's message in another dialect. InvalidParams if it cannot be translated exactly."""
    try:
        return DIALECTS[wanted].shape.write(DIALECTS[log_dialect].shape.read(EventKind.MESSAGE, message))
    except Untranslatable as error:
        raise InvalidParams(f"{error} (from {log_dialect} to {wanted})") from error
