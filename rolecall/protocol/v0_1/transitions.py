"""The history of a task in 0.1: all its statuses, where later versions have messages."""

from __future__ import annotations

from rolecall.model.a2a import Event, JsonObject
from rolecall.model.content import StatusUpdate, Task
from rolecall.protocol.dialect import read_content
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_1 import VERSION
from rolecall.protocol.v0_1.shape import write_status


def transition(event: Event) -> JsonObject:
    """The status after an event that carries a state."""
    content = read_content(event.kind, parse(event.body), event.dialect, VERSION)
    assert isinstance(content, Task | StatusUpdate)
    return write_status(content.status)
