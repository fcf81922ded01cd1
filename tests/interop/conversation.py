"""Checks of streams and refusals, and readers of 0.3 documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.content import ArtifactUpdate, Event, Json, Message, StatusUpdate, Task
from tests.interop.driven import Refused


def streamed_text(events: list[Event]) -> str:
    """The text of the whole stream: the first Task, and what each update adds."""
    opening = events[0]
    assert isinstance(opening, Task)
    return opening.text + "".join(event.artifact.text for event in events if isinstance(event, ArtifactUpdate))


def check_stream(events: list[Event], *, state: str) -> None:
    """First one Task, then the same ids throughout, and a status last; only that one is `final`, if the version has this."""
    task, *updates = events
    assert isinstance(task, Task)
    for update in updates:
        assert isinstance(update, StatusUpdate | ArtifactUpdate), update
        assert (update.task, update.context) == (task.id, task.context)
    statuses = [update for update in updates if isinstance(update, StatusUpdate)]
    assert [bool(status.final) for status in statuses[:-1]] == [False] * (len(statuses) - 1)
    last = updates[-1]
    assert isinstance(last, StatusUpdate) and last.final in (True, None)
    assert last.state == state


def resting(events: list[Event]) -> Task | StatusUpdate:
    """The last event of a stream: an update, or the Task itself if nothing followed it."""
    last = events[-1]
    assert isinstance(last, Task | StatusUpdate), last
    return last


def user_texts(task: Task) -> list[str]:
    return [message.text for message in task.history if message.role == "user"]


def bare_message(answer: Event) -> Message:
    assert isinstance(answer, Message), answer
    return answer


def refusal(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


# --- 0.3 as it is on the wire


def text_of(task: Json) -> str:
    """The text of all its artifacts, however it was cut into parts."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts") or () for part in artifact["parts"])


def message_text(message: Any) -> str:
    return "".join(part["text"] for part in (message or {}).get("parts", ()))
