"""From what workers say to what the log holds, and from logs to tasks. Implements ports.Codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from hub.errors import HubError
from hub.model.a2a import PAUSED, TERMINAL, Event, EventKind, Heard, Ids, JsonObject, Logged, TaskState
from hub.model.command import Send, Target
from hub.model.fold import add_turn, artifacts_of, fold, trim_history
from hub.model.ids import Cursor
from hub.model.task import TaskRow, Turn
from hub.wire.faults import fault_of
from hub.wire.jsontext import dump, parse
from hub.wire.timestamp import timestamp
from hub.wire.v03 import VERSION, read_send

OWN = "rolecall"
"""The member of `metadata` in which the hub itself speaks."""


class Codec:
    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall

    # --- turns

    def record(self, send: Send, *, after: Cursor) -> Turn:
        return Turn(after, send.message_id, send.dialect, dump(send.params))

    def recall(self, turn: Turn, row: TaskRow) -> Send:
        target = Target(role=row.role, instance=row.worker.instance if row.worker else None)
        return read_send(parse(turn.params), target)

    # --- into the log

    def begin(self, heard: Heard, ids: Ids, turn: Turn) -> Sequence[Event]:
        if heard.kind is EventKind.MESSAGE:
            message = _readdressed(heard.document, ids)
            return (Event(EventKind.MESSAGE, None, VERSION, dump(message)),)
        if heard.kind is not EventKind.TASK:
            return (self.opening(ids, turn), self.adopt(heard, ids))
        task = self._own_task(heard.document, ids)
        asked = _user_message(turn, ids)
        history = [m for m in task.get("history") or () if m.get("messageId") != asked["messageId"]]
        task["history"] = [asked, *history]
        return (Event(EventKind.TASK, heard.state, VERSION, dump(task)),)

    def adopt(self, heard: Heard, ids: Ids) -> Event:
        document = heard.document
        if heard.kind is EventKind.MESSAGE:
            # A message after a task is the worker's last word on it.
            status = {"state": TaskState.COMPLETED.value, "message": _readdressed(document, ids), "timestamp": self._now()}
            return self._status(ids, TaskState.COMPLETED, status, {})
        if heard.kind is EventKind.STATUS:
            assert heard.state is not None
            return self._status(ids, heard.state, self._own_status(document["status"], ids), document)
        artifact = {**document, "taskId": ids.task, "contextId": ids.context}
        return Event(EventKind.ARTIFACT, None, VERSION, dump(artifact))

    def missing(self, heard: Heard, ids: Ids, turns: Sequence[Turn], log: Sequence[Logged], *, gap: bool) -> Sequence[Event]:
        known = _folded(turns, log, ids)
        seen = self._own_task(heard.document, ids)
        assert heard.state is not None
        documents = [*_missing_artifacts(known, seen, ids), *self._missing_words(known, seen, heard.state, ids)]
        if gap and documents:
            documents[0] = {**documents[0], "metadata": {**(documents[0].get("metadata") or {}), OWN: {"gap": True}}}
        return [_event(document) for document in documents]

    def opening(self, ids: Ids, turn: Turn) -> Event:
        task = {
            "kind": "task",
            "id": ids.task,
            "contextId": ids.context,
            "status": {"state": TaskState.SUBMITTED.value, "timestamp": self._now()},
            "history": [_user_message(turn, ids)],
        }
        return Event(EventKind.TASK, TaskState.SUBMITTED, VERSION, dump(task))

    def resumed(self, ids: Ids) -> Event:
        status = {"state": TaskState.WORKING.value, "timestamp": self._now()}
        return self._status(ids, TaskState.WORKING, status, {})

    def verdict(self, ids: Ids, state: TaskState, error: HubError) -> Event:
        fault = fault_of(error)
        own = {OWN: {"reason": fault.reason}}
        message = {
            "kind": "message",
            "role": "agent",
            "messageId": str(uuid4()),
            "taskId": ids.task,
            "contextId": ids.context,
            "parts": [{"kind": "text", "text": fault.message}],
            "metadata": own,
        }
        status = {"state": state.value, "message": message, "timestamp": self._now()}
        return self._status(ids, state, status, {"metadata": own})

    # --- out of the log

    def snapshot(self, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str, history_length: int | None) -> bytes:
        first = log[0].event
        if len(log) == 1 and len(turns) == 1 and history_length is None:
            return first.body
        task = _folded(turns, log, None)
        trim_history(task, history_length)
        return dump(task)

    def notice(self, row: TaskRow, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str) -> bytes:
        """0.3 sends the whole Task after every event. The other dialects' forms belong here."""
        return self.snapshot(turns, log, dialect=dialect, history_length=None)

    # --- pieces

    def _status(self, ids: Ids, state: TaskState, status: JsonObject, holder: JsonObject) -> Event:
        document = {
            **holder,
            "kind": "status-update",
            "taskId": ids.task,
            "contextId": ids.context,
            "status": status,
            "final": state in TERMINAL or state in PAUSED,
        }
        return Event(EventKind.STATUS, state, VERSION, dump(document))

    def _own_status(self, status: JsonObject, ids: Ids) -> JsonObject:
        own = {**status}
        if not own.get("timestamp"):
            own["timestamp"] = self._now()
        if "message" in own:
            own["message"] = _readdressed(own["message"], ids)
        return own

    def _own_task(self, task: JsonObject, ids: Ids) -> JsonObject:
        own = {**task, "id": ids.task, "contextId": ids.context, "status": self._own_status(task["status"], ids)}
        if "history" in own:
            own["history"] = [_readdressed(message, ids) for message in own["history"]]
        return own

    def _missing_words(self, known: JsonObject, seen: JsonObject, state: TaskState, ids: Ids) -> list[JsonObject]:
        """Messages that the fold has not, as status updates; then the status, if it is another."""
        status = seen["status"]
        said = {m.get("messageId") for m in known.get("history") or ()}
        said.add((known["status"].get("message") or {}).get("messageId"))
        said.add((status.get("message") or {}).get("messageId"))
        passing = TaskState.WORKING.value
        words = [
            {"state": passing, "message": message, "timestamp": status["timestamp"]}
            for message in seen.get("history") or ()
            if message.get("role") == "agent" and message.get("messageId") not in said
        ]
        before = known["status"]
        same_words = (before.get("message") or {}).get("messageId") == (status.get("message") or {}).get("messageId")
        if words or before.get("state") != status["state"] or not same_words:
            words.append(status)
        documents = [
            {"kind": "status-update", "taskId": ids.task, "contextId": ids.context, "status": word, "final": False}
            for word in words
        ]
        if documents:
            documents[-1]["final"] = state in TERMINAL or state in PAUSED
            if seen.get("metadata"):
                documents[-1]["metadata"] = seen["metadata"]
        return documents

    def _now(self) -> str:
        return timestamp(self._wall())


def _folded(turns: Sequence[Turn], log: Sequence[Logged], ids: Ids | None) -> JsonObject:
    """The task after `log`. The first turn opens the first event's history already; later ones stand at their cursor."""
    later = list(turns[1:])
    task: JsonObject | None = None
    for cursor, event in log:
        while task is not None and later and later[0].after < cursor:
            add_turn(task, _message_of(later.pop(0), task))
        task = fold(task, event.kind, parse(event.body))
    assert task is not None
    for turn in later:
        if turn.after <= log[-1].cursor:
            add_turn(task, _message_of(turn, task))
    return task


def _message_of(turn: Turn, task: JsonObject) -> JsonObject:
    message: JsonObject = parse(turn.params)["message"]
    return {**message, "taskId": task["id"], "contextId": task["contextId"]}


def _user_message(turn: Turn, ids: Ids) -> JsonObject:
    message: JsonObject = parse(turn.params)["message"]
    return {**message, "taskId": ids.task, "contextId": ids.context}


def _readdressed(message: JsonObject, ids: Ids) -> JsonObject:
    own = {**message}
    if ids.worker_task or "taskId" in own:
        own["taskId"] = ids.task
    own["contextId"] = ids.context
    references = own.get("referenceTaskIds")
    if isinstance(references, list):
        own["referenceTaskIds"] = [ids.task if task == ids.worker_task else task for task in references]
    return own


def _missing_artifacts(known: JsonObject, seen: JsonObject, ids: Ids) -> list[JsonObject]:
    """By position: parts beyond the ones that the fold has. An artifact whose beginning is another one was replaced."""
    have = {artifact.get("artifactId"): artifact for artifact in artifacts_of(known)}
    updates: list[JsonObject] = []
    for artifact in artifacts_of(seen):
        old = have.get(artifact.get("artifactId"))
        if old == artifact:
            continue
        parts, old_parts = artifact["parts"], (old or {}).get("parts") or []
        grown = old is not None and len(parts) > len(old_parts) and parts[: len(old_parts)] == old_parts
        if old is not None and parts == old_parts:
            continue
        updates.append(
            {
                "kind": "artifact-update",
                "taskId": ids.task,
                "contextId": ids.context,
                "artifact": {**artifact, "parts": parts[len(old_parts) :]} if grown else artifact,
                "append": grown,
                "lastChunk": False,
            }
        )
    return updates


def _event(document: JsonObject) -> Event:
    if document["kind"] == EventKind.ARTIFACT:
        return Event(EventKind.ARTIFACT, None, VERSION, dump(document))
    return Event(EventKind.STATUS, TaskState(document["status"]["state"]), VERSION, dump(document))
