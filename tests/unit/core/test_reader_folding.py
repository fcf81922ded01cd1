"""A long log is folded in a thread: the loop serves other calls meanwhile."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from hub.core.relay.context import Dependencies
from hub.core.tasks.reader import TaskReader, TaskView
from rolecall.model.a2a import Event, EventKind, Logged, TaskState
from rolecall.model.ids import Cursor, TaskId


class Parts:
    """The parts that a TaskReader needs: no turns, and a fold that records its thread."""

    def __init__(self) -> None:
        self.engine = self.tasks = self.codec = self
        self.thread: threading.Thread | None = None

    async def turns(self, task: TaskId) -> list[Any]:
        return []

    def snapshot(self, *_: Any, **__: Any) -> bytes:
        self.thread = threading.current_thread()
        return b"{}"


def a_log(events: int, size: int) -> list[Logged]:
    event = Event(EventKind.TASK, TaskState.WORKING, "0.3", b"x" * size)
    return [Logged(Cursor(at), event) for at in range(1, events + 1)]


@pytest.mark.parametrize(
    ("events", "size", "beside"),
    [(1, 10, False), (200, 1_024, False), (201, 1, True), (3, 100_000, True), (1, 204_800, False), (1, 204_801, True)],
)
async def test_a_long_log_is_folded_in_a_thread(events: int, size: int, beside: bool) -> None:
    parts = Parts()
    await TaskReader(cast(Dependencies, parts)).of(TaskId("t"), a_log(events, size), TaskView("0.3"))
    assert (parts.thread is not threading.current_thread()) is beside
