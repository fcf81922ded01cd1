"""What the tests read out of tasks, messages and streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.driven import Client, Json, Refused


def text_of(task: Json) -> str:
    """The text of all its artifacts, however it was cut into parts."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts") or () for part in artifact["parts"])


def said(message: Json | None) -> str:
    return "".join(part["text"] for part in (message or {}).get("parts", ()))


def streamed_text(events: list[Json]) -> str:
    """What the whole stream says: the first Task, and what each update adds."""
    updates = [event["artifact"] for event in events if event["kind"] == "artifact-update"]
    return text_of(events[0]) + text_of({"artifacts": updates})


def check_stream(events: list[Json], *, ends: str) -> None:
    """A Task first and once, the same ids throughout, and one final event, which is the last."""
    task = events[0]
    assert [event["kind"] for event in events].count("task") == 1 and task["kind"] == "task"
    assert {(event["taskId"], event["contextId"]) for event in events[1:]} <= {(task["id"], task["contextId"])}
    finals = [event.get("final") for event in events[1:] if event["kind"] == "status-update"]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert events[-1]["kind"] == "status-update"
    assert events[-1]["status"]["state"] == ends


def refusal(client: Client, op: str, **request: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        client.call(op, **request)
    return caught.value
