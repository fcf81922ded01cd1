"""The codec port: from what workers send to what the log holds, and from logs to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rolecall.errors import HubError
from rolecall.model.a2a import Event, Ids, Logged, TaskState, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.ids import Cursor
from rolecall.model.task import TaskRow, Turn


class Codec(Protocol):
    """Turns what workers say into what the log holds, and logs into tasks. Pure; never raises on a Heard.

    All events of one task are in one dialect, `ids.spoken`. InvalidParams where a caller's message cannot be said in it.
    """

    def record(self, send: Send, *, after: Cursor) -> Turn:
        """The caller's message as it is stored before anybody hears of it."""

    def recall(self, turn: Turn, row: TaskRow) -> Send:
        """The message again, as `record` got it; for a hub that has to settle what an earlier one left."""

    def begin(self, worker_event: WorkerEvent, ids: Ids, turn: Turn) -> Sequence[Event]:
        """The first thing heard of a task. The first event is a Task that opens with the caller's message, or the only
        event is a bare message.
        """

    def adopt(self, worker_event: WorkerEvent, ids: Ids) -> Event:
        """A later event, under the hub's ids. Not for Tasks: those are compared, see `missing`."""

    def missing(
        self, worker_event: WorkerEvent, ids: Ids, turns: Sequence[Turn], log: Sequence[Logged], *, gap: bool
    ) -> Sequence[Event]:
        """What the worker's Task has that the fold of the log lacks, by position, never by content. `gap` marks that events
        in between may have been lost.
        """

    def opening(self, ids: Ids, turn: Turn) -> Event:
        """A submitted Task, for a worker that has not spoken yet."""

    def resumed(self, ids: Ids) -> Event:
        """A paused task works again, said for a worker that goes on without saying so."""

    def verdict(self, ids: Ids, state: TaskState, error: HubError) -> Event:
        """A final status that the hub itself gives, with the reason in its metadata."""

    def snapshot(
        self,
        turns: Sequence[Turn],
        log: Sequence[Logged],
        *,
        dialect: str,
        history_length: int | None,
        alias: str = "",
        artifacts: bool = True,
    ) -> bytes:
        """The Task as of the end of a whole `log`. InvalidAnswer: it cannot be said so. `alias`: its caller's name for it."""

    def outline(self, row: TaskRow, dialect: str) -> bytes:
        """The Task without its content, marked so: for a list that cannot say the rest of it in that dialect."""

    def spelled(self, event: Event, dialect: str) -> bytes:
        """A bare message in that dialect. InvalidAnswer where it cannot be said in it."""

    def notice(self, row: TaskRow, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str) -> bytes:
        """What a webhook gets after the last event of `log`, in its own dialect. May be called on any thread."""
