"""Compute a task from its log. Pure functions over A2A documents; 0.3 and 1.0 share the members used here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rolecall.model.a2a import EventKind, JsonObject


def fold(task: JsonObject | None, kind: EventKind, document: JsonObject) -> JsonObject:
    """The task after one more event. It changes both arguments, so that a long text is not copied for every chunk."""
    if kind is EventKind.TASK:
        return dict(document) if task is None else _merge_task(task, document)
    if kind is EventKind.MESSAGE:
        # The codec has turned a message after a task into a status message.
        raise ValueError("a bare message has no task to fold into")
    if task is None:
        raise ValueError("the first event of a task's log is a Task")
    if kind is EventKind.STATUS:
        _set_status(task, document["status"])
        _merge_metadata(task, document)
    else:
        _add_artifact(task, document)
    return task


def add_turn(task: JsonObject, message: JsonObject) -> None:
    """Add a caller's further message to the history, after the status message that it answers."""
    _retire_status_message(task)
    _add_history(task, [message])


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


def _set_status(task: JsonObject, status: JsonObject) -> None:
    _retire_status_message(task)
    task["status"] = status


def _retire_status_message(task: JsonObject) -> None:
    """Move a replaced status message to the history, once."""
    message = (task.get("status") or {}).get("message")
    if message:
        _add_history(task, [message])


def _add_history(task: JsonObject, messages: Iterable[JsonObject]) -> None:
    history = list(task.get("history") or ())
    known = {m.get("messageId") for m in history}
    for message in messages:
        # Messages with the same id are one message; equal texts with two ids are two.
        if message.get("messageId") not in known or message.get("messageId") is None:
            history.append(message)
            known.add(message.get("messageId"))
    if history:
        task["history"] = history


def _add_artifact(task: JsonObject, update: JsonObject) -> None:
    artifact = update["artifact"]
    artifacts = task.setdefault("artifacts", [])
    for at, known in enumerate(artifacts):
        if known.get("artifactId") == artifact.get("artifactId"):
            if update.get("append"):
                _extend(known, artifact)
            else:
                artifacts[at] = artifact
            return
    artifacts.append(artifact)


def _extend(known: JsonObject, more: JsonObject) -> None:
    parts = known.setdefault("parts", [])
    metadata = {**(known.get("metadata") or {}), **(more.get("metadata") or {})}
    parts.extend(more.get("parts") or ())
    known.update(more, parts=parts)
    if metadata:
        known["metadata"] = metadata


def _merge_metadata(task: JsonObject, document: JsonObject) -> None:
    if document.get("metadata"):
        task["metadata"] = {**(task.get("metadata") or {}), **document["metadata"]}


def _merge_task(task: JsonObject, document: JsonObject) -> JsonObject:
    """A repeated Task replaces the earlier one, but keeps its messages."""
    merged = {**task, **document}
    history = list(task.get("history") or ())
    merged["history"] = history
    _add_history(merged, document.get("history") or ())
    if not merged["history"]:
        del merged["history"]
    return merged
