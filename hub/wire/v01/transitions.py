"""The history of a task under the oldest names: every status that it went through, where later versions have messages."""

from __future__ import annotations

from hub.model.a2a import Event, JsonObject
from hub.model.content import StatusUpdate, Task
from hub.wire.dialect import read_content
from hub.wire.jsontext import parse
from hub.wire.v01 import VERSION
from hub.wire.v01.shape import write_status


def transition(event: Event) -> JsonObject:
    """The status that an event which has a state brought about."""
    content = read_content(event.kind, parse(event.body), event.dialect, VERSION)
    assert isinstance(content, Task | StatusUpdate)
    return write_status(content.status)
