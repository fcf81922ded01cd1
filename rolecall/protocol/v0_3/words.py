"""What the hub itself writes into logs in 0.3."""

from __future__ import annotations

from rolecall.model.a2a import EventKind, JsonObject, TaskState

AGENT = "agent"


def text_part(text: str) -> JsonObject:
    return {"kind": "text", "text": text}


def marked(kind: EventKind, document: JsonObject, state: TaskState | None) -> JsonObject:
    """With `kind`, and `final` where it is required."""
    if kind is EventKind.STATUS and state is not None:
        return {"kind": kind.value, **document, "final": state.ends_a_stream}
    return {"kind": kind.value, **document}
