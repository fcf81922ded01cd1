"""Compute a task from its log. It works on A2A documents; 0.3 and 1.0 share the members used here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.usage import UsageSums, read_reports

_PLAIN = {"kind", "text"}
"""Members of a text part that has nothing but its text. A last chunk may be one without text, which adds nothing."""


class TaskFold:
    """The task after the events so far. What an event costs does not depend on how many came before it: messages and artifacts
    are found by their ids, and appended in place. It keeps and changes the documents that it is given.
    """

    def __init__(self, task: JsonObject) -> None:
        """`task` is the document of the first event."""
        self.document = dict(task)
        self.known_messages: set[Any] = set()
        """The ids of the messages in the history."""
        self._artifact_positions: dict[str, int] = {}
        self._usage: UsageSums | None = None
        self._index()

    def add(self, kind: EventKind, document: JsonObject) -> None:
        """A later event. ValueError for a bare message: the codec turns one after a task into a status message."""
        if kind is EventKind.TASK:
            self._merge_task(document)
        elif kind is EventKind.STATUS:
            self._retire_status_message()
            self.document["status"] = document["status"]
            self._merge_metadata(document)
        elif kind is EventKind.ARTIFACT:
            self._add_artifact(document)
        else:
            raise ValueError("a bare message has no task to fold into")

    def add_turn(self, message: JsonObject) -> None:
        """A caller's further message: it follows the status message that it answers."""
        self._retire_status_message()
        self._add_history([message])

    def _index(self) -> None:
        self.known_messages = {message.get("messageId") for message in self.document.get("history") or ()}
        self._artifact_positions = {}
        for position, artifact in enumerate(artifacts_of(self.document)):
            self._artifact_positions.setdefault(artifact.get("artifactId", ""), position)

    def _retire_status_message(self) -> None:
        """Move a replaced status message to the history, once."""
        message = (self.document.get("status") or {}).get("message")
        if message:
            self._add_history([message])

    def _add_history(self, messages: Iterable[JsonObject]) -> None:
        for message in messages:
            message_id = message.get("messageId")
            # Messages with the same id are one message; equal texts with two ids are two.
            if message_id is None or message_id not in self.known_messages:
                self.known_messages.add(message_id)
                if not self.document.get("history"):
                    self.document["history"] = []
                self.document["history"].append(message)

    def _add_artifact(self, update: JsonObject) -> None:
        artifact = update["artifact"]
        if not self.document.get("artifacts"):
            self.document["artifacts"] = []
        artifacts: list[JsonObject] = self.document["artifacts"]
        position = self._artifact_positions.setdefault(artifact.get("artifactId", ""), len(artifacts))
        if position == len(artifacts):
            artifacts.append(artifact)
        elif update.get("append"):
            _extend(artifacts[position], artifact)
        else:
            artifacts[position] = artifact

    def _merge_metadata(self, document: JsonObject) -> None:
        if more := document.get("metadata"):
            if USAGE_EXTENSION in more:
                more = {**more, USAGE_EXTENSION: self._add_usage(more[USAGE_EXTENSION])}
            self.document["metadata"] = _merged(self.document.get("metadata"), more)

    def _add_usage(self, reports: Any) -> list[JsonObject]:
        """An update reports what comes on top; a Task has the sums."""
        if self._usage is None:
            known = self.document.get("metadata") or {}
            self._usage = UsageSums(read_reports(known[USAGE_EXTENSION]).usage if USAGE_EXTENSION in known else ())
        for usage in read_reports(reports).usage:
            self._usage.add(usage)
        return self._usage.documents()

    def _merge_task(self, document: JsonObject) -> None:
        """A repeated Task replaces the earlier one, but keeps its messages."""
        history = self.document.get("history")
        self._usage = None
        self.document.update(document)
        self.document.pop("history", None)
        if history:
            self.document["history"] = history
        self._index()
        self._add_history(document.get("history") or ())


def trim_history(task: JsonObject, length: int | None) -> None:
    """Keep the newest `length` messages; None keeps all. Zero removes the member."""
    history = task.get("history")
    if length is None or not history:
        return
    if length == 0:
        del task["history"]
    else:
        task["history"] = history[-length:]


def artifacts_of(task: JsonObject) -> Sequence[JsonObject]:
    return task.get("artifacts") or ()


def _extend(known: JsonObject, more: JsonObject) -> None:
    parts = known.get("parts")
    if parts is None:
        parts = []
    added: Sequence[JsonObject] = more.get("parts") or ()
    if not (len(added) == 1 and added[0].get("text") == "" and added[0].keys() <= _PLAIN):
        parts.extend(added)
    metadata = _merged(known.get("metadata"), more.get("metadata"))
    known.update(more)
    known["parts"] = parts
    if metadata:
        known["metadata"] = metadata


def _merged(known: JsonObject | None, more: JsonObject | None) -> JsonObject:
    if not known:
        return dict(more or {})
    known.update(more or {})
    return known
