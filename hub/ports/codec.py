"""The codec port: turns what workers send into log events, and logs into tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rolecall.errors import HubError
from rolecall.model.a2a import DialectRules, Event, Ids, Logged, Missing, TaskState, WorkerEvent
from rolecall.model.command import Send
from rolecall.model.content import Download, NamedFile
from rolecall.model.ids import Cursor, FileId
from rolecall.model.task import AskedFor, TaskRow, Turn


class LogFold(Protocol):
    """The task after a part of its log. What an event costs does not depend on those before it."""

    at: Cursor
    """The last event that was added; START before the first."""

    def add(self, log: Sequence[Logged]) -> None:
        """The next events. May be called on any thread, one at a time."""

    def snapshot(self, *, history_length: int | None, alias: str = "", artifacts: bool = True) -> bytes:
        """The Task, in the dialect of the fold; nothing may be added after that. InvalidAnswer: the dialect cannot express it.
        `alias`: the caller's name. May be called on any thread.
        """

    def download(self, number: int, part: int | None) -> Download:
        """An artifact of the task as a file, counted from 1 in the order in which they came; or one of its parts.
        ArtifactNotFound, ArtifactUnreadable, InvalidParams. May be called on any thread.
        """

    def missing(self, worker_event: WorkerEvent, ids: Ids, *, gap: bool) -> Missing:
        """What the worker's Task has and the fold of the whole log lacks, by position, never by content; of usage what its
        sums have more. `gap` marks that events in between may be lost.
        """


class Codec(Protocol):
    """Turns what workers send into log events, and logs into tasks. Pure; never raises on a WorkerEvent.

    All events of one task are in one dialect, `ids.log_dialect`. InvalidParams if a caller's message cannot be expressed
    in it.
    """

    def rules(self, dialect: str) -> DialectRules:
        """How a dialect behaves."""

    def record(self, send: Send, *, after: Cursor) -> Turn:
        """The caller's message as it is stored, before a worker gets it."""

    def recall(self, turn: Turn, row: TaskRow) -> Send:
        """The message as `record` got it; for a hub that settles the tasks of an earlier one."""

    def begin(self, worker_event: WorkerEvent, ids: Ids, turn: Turn) -> Sequence[Event]:
        """The events for a worker's first event of a task. The first one is a Task that opens with the caller's message, or
        the only one is a bare message.
        """

    def adopt(self, worker_event: WorkerEvent, ids: Ids) -> Event:
        """A later event, under the hub's ids. Not for Tasks: those are compared in `LogFold.missing`."""

    def fold(self, turns: Sequence[Turn], *, dialect: str = "") -> LogFold:
        """The fold of an empty log, of a task with these turns. `dialect`: that of its snapshot."""

    def opening(self, ids: Ids, turn: Turn) -> Event:
        """A submitted Task, while the worker has sent nothing yet."""

    def resumed(self, ids: Ids) -> Event:
        """A status that a paused task works again, for a worker that continues without sending one."""

    def verdict(self, ids: Ids, state: TaskState, error: HubError) -> Event:
        """A final status from the hub itself, with the reason in its metadata."""

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
        """The Task at the end of a complete `log`. InvalidAnswer: the dialect cannot express it. `alias`: the caller's name."""

    def outline(self, row: TaskRow, dialect: str) -> bytes:
        """The Task without its content, and marked so: for a list in a dialect that cannot express the rest."""

    def asked(self, turn: Turn) -> str:
        """The beginning of a caller's message in one line of at most 200 characters: of its texts, or of its first data part as
        JSON. Empty: it has neither. May be called on any thread.
        """

    def words(self, event: Event) -> str:
        """What the message of an event's status says, in words: at most 4,000 characters. Empty: it has no text. May be called
        on any thread.
        """

    def asked_for(self, event: Event) -> AskedFor | None:
        """The child whose question an event's status passes on, by its metadata. May be called on any thread."""

    def reason(self, event: Event) -> str:
        """The code of a status that the hub itself has written, as of `verdict`. Empty: it has none. May be called on any
        thread.
        """

    def spelled(self, event: Event, dialect: str) -> bytes:
        """A bare message in that dialect. InvalidAnswer if the dialect cannot express it."""

    def notice(
        self, row: TaskRow, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str, numbers: bool = False
    ) -> bytes:
        """What a webhook gets after the last event of `log`, in the webhook's dialect. `numbers`: with its sequence number. May
        be called on any thread.
        """

    # --- files by reference

    def may_name_files(self, body: bytes) -> bool:
        """Whether a document of the hub may name a file of the hub. It takes no longer than to find a text in it."""

    def with_files(self, send: Send, turn: Turn) -> Send:
        """The message with the ids of the files that it names, as it was recorded. InvalidParams: they are too many."""

    def files_sent(self, send: Send, turn: Turn) -> Sequence[NamedFile]:
        """The files that a caller's message names, and where."""

    def files_reported(self, worker_event: WorkerEvent, body: bytes) -> Sequence[FileId]:
        """The files that a worker's event names; `body` is the event that was made of it. Of very many only the first."""

    def files_in(self, body: bytes, dialect: str) -> Sequence[FileId]:
        """The files that the messages and artifacts of a document name, as above. May be called on any thread."""

    def with_bytes(self, body: bytes, dialect: str, contents: Mapping[FileId, str]) -> bytes:
        """The document with the bytes of these files, as base64, in place of their urls. May be called on any thread."""
