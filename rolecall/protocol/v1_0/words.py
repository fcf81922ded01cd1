"""What the hub itself writes into logs in 1.0."""

from __future__ import annotations

from rolecall.model.a2a import EventKind, JsonObject, TaskState

AGENT = "ROLE_AGENT"


def text_part(text: str) -> JsonObject:
    return {"text": text}


def marked(kind: EventKind, document: JsonObject, state: TaskState | None) -> JsonObject:
    """As it is: a document does not say its kind."""
    return document
