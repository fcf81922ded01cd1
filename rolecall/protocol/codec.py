"""Turn workers' events into log events, and logs into tasks. Implements the port Codec."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from rolecall.errors import ArtifactNotFound, ArtifactUnreadable, HubError, InvalidAnswer, InvalidParams, WorkerError
from rolecall.model.a2a import (
    OWN,
    DialectRules,
    Event,
    EventKind,
    Ids,
    JsonObject,
    Logged,
    Missing,
    TaskState,
    WorkerEvent,
)
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.command import Send, Target
from rolecall.model.content import ArtifactUpdate, Content, Download, NamedFile, Status, StatusUpdate, Task
from rolecall.model.fold import TaskFold, artifacts_of, trim_history
from rolecall.model.ids import START, Cursor, FileId, TaskId
from rolecall.model.task import AskedFor, TaskRow, Turn
from rolecall.model.usage import Reports, beyond, read_reports
from rolecall.model.value import Value, replace
from rolecall.protocol.callers.downloads import download_of
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.files import FileUrls
from rolecall.protocol.extensions.sequence import numbered
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.jsontext import dump, parse_stored
from rolecall.protocol.text.timestamp import timestamp
from rolecall.protocol.translation import read_content, translated_message, write_content
from rolecall.protocol.untranslatable import Untranslatable

_MOST_WORDS, _MOST_ASKED = 4_000, 200
"""Characters."""
MOST_FILES = 200
"""Files of the hub that one message or event can name. Each is looked up."""
_REASON = re.compile("[A-Z_]{1,64}")


class Update(Value, frozen=True):
    kind: EventKind
    state: TaskState | None
    document: JsonObject


class Codec:
    """`file_urls`: those of the hub's files."""

    def __init__(self, wall: Callable[[], float], file_urls: FileUrls | None = None) -> None:
        self._wall = wall
        self._file_urls = file_urls or FileUrls()

    def rules(self, dialect: str) -> DialectRules:
        return DIALECTS[dialect].rules

    # --- turns

    def record(self, send: Send, *, after: Cursor) -> Turn:
        return Turn(after, send.message_id, send.dialect, dump(send.params))

    def recall(self, turn: Turn, row: TaskRow) -> Send:
        target = Target(role=row.role, instance=row.worker.instance if row.worker else None)
        send = DIALECTS[turn.dialect].requests.read_send(parse_stored(turn.params), target)
        return self.with_files(send, turn)

    # --- into the log

    def begin(self, worker_event: WorkerEvent, ids: Ids, turn: Turn) -> Sequence[Event]:
        kind = worker_event.kind
        if kind is not EventKind.TASK:
            if kind is EventKind.MESSAGE and not DIALECTS[turn.dialect].makes_tasks:
                message = _with_hub_ids(worker_event.document, ids)
                return (Event(kind, None, ids.log_dialect, dump(message)),)
            # Where every answer is a task, a bare message becomes the end of one.
            return (self.opening(ids, turn), self.adopt(worker_event, ids))
        # Most workers repeat the message, which may be large. Only one copy of it is kept.
        history = worker_event.document.pop("history", ())
        task = self._own_task(worker_event.document, ids)
        task["history"] = [_user_message(turn, ids)]
        if history:
            task["history"] += [_with_hub_ids(m, ids) for m in history if m.get("messageId") != turn.message_id]
        return (Event(kind, worker_event.state, ids.log_dialect, dump(task)),)

    def adopt(self, worker_event: WorkerEvent, ids: Ids) -> Event:
        document = worker_event.document
        if worker_event.kind is EventKind.MESSAGE:
            # A message after a task completes the task.
            usage = worker_event.usage.usage if worker_event.usage is not None else ()
            holder = {"metadata": {USAGE_EXTENSION: [one.document() for one in usage]}} if usage else {}
            return self._status(ids, TaskState.COMPLETED, {"message": _with_hub_ids(document, ids)}, holder)
        if worker_event.kind is EventKind.STATUS:
            assert worker_event.state is not None
            return self._status(ids, worker_event.state, self._own_status(document["status"], ids), document)
        artifact = {**document, "taskId": ids.task, "contextId": ids.context}
        return Event(EventKind.ARTIFACT, None, ids.log_dialect, dump(artifact))

    def fold(self, turns: Sequence[Turn], *, dialect: str = "") -> LogFold:
        return LogFold(self, turns, dialect)

    def missing(self, worker_event: WorkerEvent, ids: Ids, known: TaskFold, *, gap: bool) -> Missing:
        """What the worker's Task has and `known` lacks."""
        seen = self._own_task(worker_event.document, ids)
        assert worker_event.state is not None
        usage = _missing_usage(known, seen, worker_event.usage) if worker_event.usage is not None else None
        statuses = self._missing_statuses(known, seen, worker_event.state, ids)
        updates = [*_missing_artifacts(known.document, seen, ids), *statuses]
        if gap and updates:
            document = updates[0].document
            document["metadata"] = {**(document.get("metadata") or {}), OWN: {"gap": True}}
        events = [_event(update.kind, update.state, update.document, ids.log_dialect) for update in updates]
        return Missing(events, usage if statuses else None)

    def opening(self, ids: Ids, turn: Turn) -> Event:
        task = {
            "id": ids.task,
            "contextId": ids.context,
            "status": self._status_of(TaskState.SUBMITTED, ids),
            "history": [_user_message(turn, ids)],
        }
        return _event(EventKind.TASK, TaskState.SUBMITTED, task, ids.log_dialect)

    def resumed(self, ids: Ids) -> Event:
        return self._status(ids, TaskState.WORKING, {}, {})

    def verdict(self, ids: Ids, state: TaskState, error: HubError) -> Event:
        fault = fault_of(error)
        own: JsonObject = {OWN: {"reason": fault.reason}}
        if isinstance(error, WorkerError) and error.idempotent:
            own[OWN]["idempotent"] = True
        words = DIALECTS[ids.log_dialect].words
        message = {
            "role": words.AGENT,
            "messageId": str(uuid4()),
            "taskId": ids.task,
            "contextId": ids.context,
            "parts": [words.text_part(fault.message)],
            "metadata": own,
        }
        status = {"message": words.marked(EventKind.MESSAGE, message, None)}
        return self._status(ids, state, status, {"metadata": own})

    # --- out of the log

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
        first = log[0].event
        if len(log) == 1 and len(turns) == 1 and history_length is None and artifacts and first.dialect == dialect:
            return first.body
        fold = self.fold(turns, dialect=dialect)
        fold.add(log)
        return fold.snapshot(history_length=history_length, alias=alias, artifacts=artifacts)

    def outline(self, row: TaskRow, dialect: str) -> bytes:
        status = Status(row.state, timestamp=timestamp(row.updated))
        own = {OWN: {"reason": fault_of(InvalidAnswer(str(row.worker), "")).reason}}
        return dump(write_content(Task(row.id, row.context, status, metadata=own), dialect))

    def asked(self, turn: Turn) -> str:
        parts = parse_stored(turn.params)["message"].get("parts") or ()
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]  # alike in all dialects, as data is
        data = next((part["data"] for part in parts if part.get("data") is not None), None)
        words = " ".join(texts) or ("" if data is None else dump(data).decode())
        return " ".join(words[: 5 * _MOST_ASKED].split())[:_MOST_ASKED]

    def words(self, event: Event) -> str:
        status = parse_stored(event.body).get("status") or {}
        parts = (status.get("message") or {}).get("parts") or ()
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]  # alike in all versions of logs
        return "\n".join(texts)[:_MOST_WORDS]

    def reason(self, event: Event) -> str:
        own = (parse_stored(event.body).get("metadata") or {}).get(OWN)
        reason = own.get("reason") if isinstance(own, dict) else None
        return reason if isinstance(reason, str) and _REASON.fullmatch(reason) else ""

    def asked_for(self, event: Event) -> AskedFor | None:
        metadata = parse_stored(event.body).get("metadata")
        child, at = (metadata.get("child"), metadata.get("event")) if isinstance(metadata, dict) else (None, None)
        if not child or not isinstance(child, str):
            return None
        return AskedFor(TaskId(child), Cursor(at) if isinstance(at, int) and at > START else None)

    def spelled(self, event: Event, dialect: str) -> bytes:
        return EventEncoder(dialect).encode(event)

    def notice(
        self, row: TaskRow, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str, numbers: bool = False
    ) -> bytes:
        wanted = DIALECTS[dialect]
        if wanted.rules.notice_is_task:
            task = self.snapshot(turns, log, dialect=dialect, history_length=None)
            return numbered(task, log[-1].cursor) if numbers else task
        encoder, last = EventEncoder(dialect, row.alias), log[-1].event
        if encoder.needs_all:
            for logged in log[:-1]:
                encoder.encode(logged.event)
        body = encoder.encode(last)
        return wanted.answers.notice(last.kind, numbered(body, log[-1].cursor) if numbers else body)

    # --- files by reference

    def file_in(self, url: str) -> FileId | None:
        return self._file_urls.id_in(url)

    def may_name_files(self, body: bytes) -> bool:
        return self._file_urls.may_be_in(body)

    def with_files(self, send: Send, turn: Turn) -> Send:
        named = self.files_sent(send, turn)
        if len(named) > MOST_FILES:
            raise InvalidParams(f"A message may name {MOST_FILES} files of the hub, and this one names {len(named)}.")
        return replace(send, files=tuple(dict.fromkeys(file.id for file in named))) if named else send

    def files_sent(self, send: Send, turn: Turn) -> Sequence[NamedFile]:
        if not self._file_urls.may_be_in(turn.params):
            return ()
        return self._file_urls.find({"message": send.params["message"]}, send.dialect)

    def files_reported(self, worker_event: WorkerEvent, body: bytes) -> Sequence[FileId]:
        if not self._file_urls.may_be_in(body):
            return ()
        return [file.id for file in self._file_urls.find(worker_event.document, worker_event.dialect)[:MOST_FILES]]

    def files_in(self, body: bytes, dialect: str) -> Sequence[FileId]:
        return [file.id for file in self._file_urls.find(parse_stored(body), dialect)[:MOST_FILES]]

    def with_bytes(self, body: bytes, dialect: str, contents: Mapping[FileId, str]) -> bytes:
        document = parse_stored(body)
        self._file_urls.fill(document, dialect, contents)
        return dump(document)

    # --- pieces

    def _status(self, ids: Ids, state: TaskState, status: JsonObject, holder: JsonObject) -> Event:
        """A `status` without a state gets `state` and the time."""
        full = status if "state" in status else {**self._status_of(state, ids), **status}
        document = {**holder, "taskId": ids.task, "contextId": ids.context, "status": full}
        return _event(EventKind.STATUS, state, document, ids.log_dialect)

    def _status_of(self, state: TaskState, ids: Ids) -> JsonObject:
        return {"state": DIALECTS[ids.log_dialect].shape.state_name(state), "timestamp": self._now()}

    def _own_status(self, status: JsonObject, ids: Ids) -> JsonObject:
        own = {**status}
        if not own.get("timestamp"):
            own["timestamp"] = self._now()
        if "message" in own:
            own["message"] = _with_hub_ids(own["message"], ids)
        return own

    def _own_task(self, task: JsonObject, ids: Ids) -> JsonObject:
        own = {**task, "id": ids.task, "contextId": ids.context, "status": self._own_status(task["status"], ids)}
        if "history" in own:
            own["history"] = [_with_hub_ids(message, ids) for message in own["history"]]
        return own

    def _missing_statuses(self, known: TaskFold, seen: JsonObject, state: TaskState, ids: Ids) -> list[Update]:
        """Status updates for messages that the fold lacks; then one for the status, if it differs."""
        status = seen["status"]
        before = known.document["status"]
        message_id, message_id_before = ((holder.get("message") or {}).get("messageId") for holder in (status, before))
        agent = DIALECTS[ids.log_dialect].words.AGENT
        working = DIALECTS[ids.log_dialect].shape.state_name(TaskState.WORKING)
        statuses = [
            (TaskState.WORKING, {"state": working, "message": message, "timestamp": status["timestamp"]})
            for message in seen.get("history") or ()
            if message.get("role") == agent
            and message.get("messageId") not in known.known_messages
            and message.get("messageId") not in (message_id, message_id_before)
        ]
        if statuses or before.get("state") != status["state"] or message_id != message_id_before:
            statuses.append((state, status))
        updates = [
            Update(EventKind.STATUS, state, {"taskId": ids.task, "contextId": ids.context, "status": document})
            for state, document in statuses
        ]
        if updates and seen.get("metadata"):
            updates[-1].document["metadata"] = seen["metadata"]
        return updates

    def _now(self) -> str:
        return timestamp(self._wall())


class LogFold:
    """The task after the part of its log that was added so far. The first event has the first turn in its history; a later turn
    comes behind the event that it followed.
    """

    def __init__(self, codec: Codec, turns: Sequence[Turn], dialect: str) -> None:
        self.at = START
        self._codec = codec
        self._dialect = dialect
        self._view = DIALECTS[dialect].view if dialect else None
        self._states: list[Status] = []
        """Those that the view needs."""
        self._later = deque(turns[1:])
        self._fold: TaskFold | None = None
        self._log_dialect = ""

    def add(self, log: Sequence[Logged]) -> None:
        for logged in log:
            event, document = logged.event, parse_stored(logged.event.body)
            if self._fold is None:
                self._fold, self._log_dialect = TaskFold(document), event.dialect
            else:
                self._add_turns()
                self._fold.add(event.kind, document)
            if self._view is not None and event.state is not None:
                content = read_content(event.kind, document, event.dialect, self._dialect)
                assert isinstance(content, Task | StatusUpdate)
                self._states.append(content.status)
            self.at = logged.cursor

    def snapshot(self, *, history_length: int | None, alias: str = "", artifacts: bool = True) -> bytes:
        task, dialect = self.task.document, self._dialect
        trim_history(task, history_length)
        if not artifacts:
            task.pop("artifacts", None)
        if self._log_dialect != dialect:
            content = read_content(EventKind.TASK, task, self._log_dialect, dialect)
            task = write_content(content, dialect) if self._view is None else self._in_view(content, alias)
            trim_history(task, history_length)
        return dump(task)

    def download(self, number: int, part: int | None) -> Download:
        artifacts = artifacts_of(self.task.document)
        if not 1 <= number <= len(artifacts):
            raise ArtifactNotFound(number, len(artifacts))
        update = {"taskId": "", "artifact": artifacts[number - 1]}
        try:
            content = DIALECTS[self._log_dialect].shape.read(EventKind.ARTIFACT, update)
        except Untranslatable as error:
            raise ArtifactUnreadable(str(error)) from error
        assert isinstance(content, ArtifactUpdate)
        return download_of(content.artifact, number, part, self._codec.file_in)

    def _in_view(self, content: Content, alias: str) -> JsonObject:
        assert self._view is not None
        try:
            return self._view.task(content, alias, self._states)
        except Untranslatable as error:
            raise InvalidAnswer("The worker", f"{error} (to {self._dialect})") from error

    def missing(self, worker_event: WorkerEvent, ids: Ids, *, gap: bool) -> Missing:
        return self._codec.missing(worker_event, ids, self.task, gap=gap)

    @property
    def task(self) -> TaskFold:
        self._add_turns()
        assert self._fold is not None  # a log is read when it has its first event
        return self._fold

    def _add_turns(self) -> None:
        fold = self._fold
        while fold is not None and self._later and self._later[0].after <= self.at:
            message = _translated(self._later.popleft(), self._log_dialect)
            fold.add_turn({**message, "taskId": fold.document["id"], "contextId": fold.document["contextId"]})


def _user_message(turn: Turn, ids: Ids) -> JsonObject:
    return {**_translated(turn, ids.log_dialect), "taskId": ids.task, "contextId": ids.context}


def _translated(turn: Turn, log_dialect: str) -> JsonObject:
    """The caller's message in the log's dialect."""
    message: JsonObject = parse_stored(turn.params)["message"]
    if turn.dialect != log_dialect:
        message = {**translated_message(message, turn.dialect, log_dialect), "messageId": turn.message_id}
    return message


def _with_hub_ids(message: JsonObject, ids: Ids) -> JsonObject:
    own = {**message}
    if ids.worker_task or "taskId" in own:
        own["taskId"] = ids.task
    own["contextId"] = ids.context
    references = own.get("referenceTaskIds")
    if isinstance(references, list):
        own["referenceTaskIds"] = [ids.task if task == ids.worker_task else task for task in references]
    return own


def _missing_artifacts(known: JsonObject, seen: JsonObject, ids: Ids) -> list[Update]:
    """The parts after those that the fold has, by position. An artifact that begins differently was replaced. Empty texts do
    not count: the log has some that the worker's task has not, in place of no parts.
    """
    empty = DIALECTS[ids.log_dialect].words.text_part("")
    have = {artifact.get("artifactId"): artifact for artifact in artifacts_of(known)}
    updates: list[Update] = []
    for artifact in artifacts_of(seen):
        old = have.get(artifact.get("artifactId"))
        if old == artifact:
            continue
        parts, old_parts = _without(empty, artifact["parts"]), _without(empty, (old or {}).get("parts") or [])
        grown = old is not None and len(parts) > len(old_parts) and parts[: len(old_parts)] == old_parts
        if old is not None and parts == old_parts:
            continue
        document = {
            "taskId": ids.task,
            "contextId": ids.context,
            "artifact": {**artifact, "parts": parts[len(old_parts) :]} if grown else artifact,
            "append": grown,
            "lastChunk": False,
        }
        updates.append(Update(EventKind.ARTIFACT, None, document))
    return updates


def _without(empty: JsonObject, parts: list[JsonObject]) -> list[JsonObject]:
    return [part for part in parts if part != empty]


def _missing_usage(known: TaskFold, seen: JsonObject, reports: Reports) -> Reports:
    """Leaves in the metadata what the worker's sums have more than the log."""
    before = (known.document.get("metadata") or {}).get(USAGE_EXTENSION, [])
    more = beyond(reports.usage, read_reports(before).usage)
    metadata = {**seen["metadata"]}
    metadata.pop(USAGE_EXTENSION, None)
    seen["metadata"] = metadata | ({USAGE_EXTENSION: [usage.document() for usage in more]} if more else {})
    return Reports(more, reports.malformed)


def _event(kind: EventKind, state: TaskState | None, document: JsonObject, log_dialect: str) -> Event:
    return Event(kind, state, log_dialect, dump(DIALECTS[log_dialect].words.marked(kind, document, state)))
