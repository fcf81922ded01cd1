"""Parse workers' events: check what later code relies on, and mend what is safe to mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from rolecall.model.a2a import CONTENT, EventKind, JsonObject, TaskState, WorkerEvent
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.usage import Reports, read_reports
from rolecall.model.value import Value

_MAX_ITEMS = 100_000
_LONGEST_ID = 1024
_NAMES = {kind: kind.value for kind in EventKind}
_IDS = ("taskId", "contextId")
_LISTS = ("extensions", "referenceTaskIds")
_TEXTS = ("name", "description")


class Malformed(ValueError):
    """The document is not an A2A event. The text says why, without quoting it."""


class WorkerEventReader(Value, frozen=True):
    """Reads a document whose kind is known. The fields are what differs between dialects.

    `agent` is the agent's role, `roles` all roles. `state` reads the name of a state, UNKNOWN for an unknown name; `state_name`
    writes it. `text_part` writes a part, `mend_part` mends one. `marks`: documents have a member with their kind, else they
    must not. `omits`: the dialect may leave out an empty list.
    """

    dialect: str
    agent: str
    roles: frozenset[str]
    state: Callable[[str], TaskState]
    state_name: Callable[[TaskState], str]
    text_part: Callable[[str], JsonObject]
    mend_part: Callable[[JsonObject], None]
    marks: bool = False
    omits: bool = False

    def read(self, kind: EventKind, document: JsonObject, position: str | None) -> WorkerEvent:
        """Changes the document and keeps it."""
        state: TaskState | None = None
        task_id = "taskId"
        if kind is CONTENT:
            self._check_artifact(document.get("artifact"))
            _check_common(document)
            for name in ("append", "lastChunk"):
                if name in document and not isinstance(document[name], bool):
                    del document[name]
        elif kind is EventKind.TASK:
            state, task_id = self._check_task(document), "id"
        elif kind is EventKind.STATUS:
            state = self._check_status(document)
        else:
            self._check_message(document, "message")
        if self.marks:
            document["kind"] = _NAMES[kind]
        else:
            document.pop("kind", None)
        task, context = document.get(task_id) or "", document.get("contextId") or ""
        usage = _read_usage(document) if kind is not CONTENT and "metadata" in document else None
        return WorkerEvent(kind, state, document, self.dialect, task, context, position, usage)

    def _check_task(self, task: JsonObject) -> TaskState:
        if not isinstance(task.get("id"), str) or not task["id"] or len(task["id"]) > _LONGEST_ID:
            raise Malformed("a task without id")
        state = self._check_status(task)
        for name in ("history", "artifacts"):
            items = task.get(name)
            if items is None:
                task.pop(name, None)
                continue
            if not isinstance(items, list) or len(items) > _MAX_ITEMS:
                raise Malformed(f"task.{name} is not a list")
            for item in items:
                self._check_message(item, "task.history") if name == "history" else self._check_artifact(item)
        return state

    def _check_status(self, holder: JsonObject) -> TaskState:
        status = holder.get("status")
        if not isinstance(status, dict):
            raise Malformed("no status object")
        name = status.get("state")
        if not isinstance(name, str) or not name:
            raise Malformed("no status.state")
        state = self.state(name)
        status["state"] = self.state_name(state)
        if not isinstance(status.get("timestamp"), str):
            status.pop("timestamp", None)
        if status.get("message") is None:
            status.pop("message", None)
        else:
            self._check_message(status["message"], "status.message")
        _check_common(holder)
        return state

    def _check_artifact(self, artifact: Any) -> None:
        if not isinstance(artifact, dict):
            raise Malformed("no artifact object")
        if not isinstance(artifact.get("artifactId"), str):
            artifact["artifactId"] = str(uuid4())
        self._check_parts(artifact, "artifact")
        # Most have only their id and parts, which are checked.
        if len(artifact) > 2:
            _check_common(artifact)

    def _check_message(self, message: Any, where: str) -> None:
        if not isinstance(message, dict):
            raise Malformed(f"{where} is not an object")
        if self.marks:
            message["kind"] = "message"
        else:
            message.pop("kind", None)
        role = message.get("role")
        if not isinstance(role, str) or role not in self.roles:
            message["role"] = self.agent
        if not isinstance(message.get("messageId"), str):
            message["messageId"] = str(uuid4())
        self._check_parts(message, where)
        _check_common(message)

    def _check_parts(self, holder: JsonObject, where: str) -> None:
        parts = holder.get("parts")
        if parts is None and self.omits:
            parts = holder["parts"] = []
        if not isinstance(parts, list) or len(parts) > _MAX_ITEMS:
            raise Malformed(f"{where}.parts is not a list")
        if not parts:
            # A2A says that there is one, and common clients read it unasked. The event keeps its place in the log.
            parts.append(self.text_part(""))
        for part in parts:
            if not isinstance(part, dict):
                raise Malformed(f"{where}.parts holds something that is not an object")
            if "metadata" in part:
                _check_metadata(part)
            self.mend_part(part)


def _check_common(holder: JsonObject) -> None:
    """Members that readers rely on: null ones are removed, those of a wrong type refused."""
    task, context = holder.get("taskId", ""), holder.get("contextId", "")
    # The test of `_is_id`, without two calls for each event.
    if not (isinstance(task, str) and isinstance(context, str) and len(task) <= _LONGEST_ID and len(context) <= _LONGEST_ID):
        _check_ids(holder)
    if "metadata" in holder:
        _check_metadata(holder)
    if "name" in holder or "description" in holder or "extensions" in holder or "referenceTaskIds" in holder:
        _check_optional(holder)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_ID


def _check_ids(holder: JsonObject) -> None:
    for name in _IDS:
        if name in holder and holder[name] is None:
            del holder[name]
        elif not _is_id(holder.get(name, "")):
            raise Malformed(f"{name} is not a string of at most {_LONGEST_ID} characters")


def _check_optional(holder: JsonObject) -> None:
    for name in _TEXTS:
        if not isinstance(holder.get(name, ""), str):
            del holder[name]
    for name in _LISTS:
        value = holder.get(name, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            del holder[name]


def _read_usage(document: JsonObject) -> Reports | None:
    """Takes out of the metadata what is no report."""
    metadata = document["metadata"]
    if USAGE_EXTENSION not in metadata:
        return None
    reports = read_reports(metadata[USAGE_EXTENSION])
    if reports.malformed:
        document["metadata"] = {**metadata, USAGE_EXTENSION: [usage.document() for usage in reports.usage]}
    if not reports.usage:
        del document["metadata"][USAGE_EXTENSION]
    return reports


def _check_metadata(holder: JsonObject) -> None:
    metadata = holder.get("metadata")
    if metadata is None:
        holder.pop("metadata", None)
    elif not isinstance(metadata, dict):
        raise Malformed("metadata is not an object")
