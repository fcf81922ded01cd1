"""The codec with several dialects: the log in each, and what readers of the others get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rolecall.errors import InvalidAnswer, WorkerLost
from rolecall.model.a2a import Event, EventKind, Ids, JsonObject, Logged, TaskState
from rolecall.model.command import Target
from rolecall.model.ids import START, Caller, Cursor, TaskId, WorkerId
from rolecall.model.task import TaskRow, Turn
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.codec import Codec
from rolecall.protocol.dialects import DIALECTS, worker_side
from rolecall.protocol.text.jsontext import dump, parse

codec = Codec(lambda: 0.0)
NOW = "1970-01-01T00:00:00.000Z"
ASKED: dict[str, JsonObject] = {
    "0.1": {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}},
    "0.3": {"message": {"messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}},
    "1.0": {"message": {"messageId": "m", "parts": [{"text": "hi"}]}},
}
LOG_DIALECTS = ["0.3", "1.0"]
VERSIONS = ["0.1", *LOG_DIALECTS]


def ids(log_dialect: str) -> Ids:
    return Ids(TaskId("T"), "C", "wt", "wc", log_dialect)


def turn(dialect: str, after: int = 0) -> Turn:
    return codec.record(DIALECTS[dialect].requests.read_send(parse(dump(ASKED[dialect])), Target()), after=Cursor(after))


def bare(log_dialect: str, text: str = "yes") -> JsonObject:
    message = {"messageId": "a", "role": "agent" if log_dialect == "0.3" else "ROLE_AGENT", "contextId": "wc"}
    part = {"kind": "text", "text": text} if log_dialect == "0.3" else {"text": text}
    return (
        {"kind": "message", **message, "parts": [part]} if log_dialect == "0.3" else {"message": {**message, "parts": [part]}}
    )


def artifact(name: str, log_dialect: str = "0.3") -> JsonObject:
    part = {"kind": "text", "text": name} if log_dialect == "0.3" else {"text": name}
    update = {"taskId": "wt", "contextId": "wc", "artifact": {"artifactId": name, "parts": [part]}}
    return {"kind": "artifact-update", **update} if log_dialect == "0.3" else {"artifactUpdate": update}


def log_of(events: Sequence[Event]) -> list[Logged]:
    return [Logged(Cursor(at + 1), event) for at, event in enumerate(events)]


def row(log_dialect: str = "0.3", state: TaskState = TaskState.COMPLETED) -> TaskRow:
    worker = WorkerId("echo", "a")
    return TaskRow(
        TaskId("T"),
        Caller("w", "c"),
        "echo",
        worker,
        1,
        "C",
        "wt",
        "wc",
        "0.1",
        log_dialect,
        "mine",
        state,
        Cursor(2),
        None,
        1,
        0,
        0,
    )


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_bare_message_is_a_whole_answer(dialect: str, log_dialect: str) -> None:
    (event,) = codec.begin(worker_side(log_dialect).events.read_result(bare(log_dialect)), ids(log_dialect), turn(dialect))
    assert (event.kind, event.dialect) == (EventKind.MESSAGE, log_dialect)
    message = parse(codec.spelled(event, dialect))
    assert (message["role"], message["contextId"]) == ("agent" if dialect == "0.3" else "ROLE_AGENT", "C")


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_in_0_1_a_bare_message_is_a_task_that_it_completes(log_dialect: str) -> None:
    user_turn = turn("0.1")
    log = log_of(codec.begin(worker_side(log_dialect).events.read_result(bare(log_dialect)), ids(log_dialect), user_turn))
    assert [logged.event.state for logged in log] == [TaskState.SUBMITTED, TaskState.COMPLETED]
    task = parse(codec.snapshot((user_turn,), log, dialect="0.1", history_length=0, alias="mine"))
    assert task == {
        "id": "mine",
        "sessionId": "C",
        "status": {
            "state": "completed",
            "message": {"role": "agent", "parts": [{"type": "text", "text": "yes"}]},
            "timestamp": NOW,
        },
    }


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("dialect", VERSIONS)
def test_the_callers_message_opens_the_history_in_the_logs_dialect(dialect: str, log_dialect: str) -> None:
    opening = parse(codec.opening(ids(log_dialect), turn(dialect)).body)
    (message,) = opening["history"]
    assert message["parts"] == [{"kind": "text", "text": "hi"} if log_dialect == "0.3" else {"text": "hi"}]
    assert (message["taskId"], message["contextId"]) == ("T", "C")
    assert message["role"] == ("user" if log_dialect == "0.3" else "ROLE_USER")
    assert opening["status"] == {"state": "submitted" if log_dialect == "0.3" else "TASK_STATE_SUBMITTED", "timestamp": NOW}


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_the_hubs_own_events_can_be_read_in_every_dialect(log_dialect: str) -> None:
    events = [
        codec.opening(ids(log_dialect), turn("0.3")),
        codec.resumed(ids(log_dialect)),
        codec.verdict(ids(log_dialect), TaskState.FAILED, WorkerLost("echo:a has gone.")),
    ]
    for dialect in VERSIONS:
        encoder = EventEncoder(dialect, "mine")
        _, resumed, verdict = (parse(encoder.encode(event)) for event in events)
        assert resumed["status"]["state"] == ("TASK_STATE_WORKING" if dialect == "1.0" else "working")
        assert verdict["status"]["state"] == ("TASK_STATE_FAILED" if dialect == "1.0" else "failed")
        assert verdict["metadata"] == {"rolecall": {"reason": "WORKER_LOST"}}
        (part,) = verdict["status"]["message"]["parts"]
        assert part["text"] == "echo:a has gone."
        assert (resumed.get("final"), verdict.get("final")) == ((None, None) if dialect == "1.0" else (False, True))
        assert verdict["status"]["message"]["role"] == ("ROLE_AGENT" if dialect == "1.0" else "agent")


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_later_turns_are_in_the_history_in_the_readers_dialect(log_dialect: str) -> None:
    """The first turn is in 0.3 and the second in 1.0."""
    asks = {"state": "input-required" if log_dialect == "0.3" else "TASK_STATE_INPUT_REQUIRED"}
    task: JsonObject = {"id": "wt", "contextId": "wc", "status": asks}
    worker_event = worker_side(log_dialect).events.read_result(
        {"kind": "task", **task} if log_dialect == "0.3" else {"task": task}
    )
    first = turn("0.3")
    log = log_of([*codec.begin(worker_event, ids(log_dialect), first), codec.resumed(ids(log_dialect))])
    answer = Turn(Cursor(1), "m2", "1.0", dump({"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"data": [1]}]}}))
    for dialect in LOG_DIALECTS:
        history = parse(codec.snapshot((first, answer), log, dialect=dialect, history_length=None))["history"]
        assert [message["messageId"] for message in history] == ["m", "m2"]
        (part,) = history[1]["parts"]
        assert part["data"] == ([1] if dialect == "1.0" else {"value": [1]})
        assert {message["taskId"] for message in history} == {"T"}


# --- webhooks


def notices(dialect: str, *results: JsonObject) -> list[JsonObject]:
    user_turn = turn("0.1")
    events = list(codec.begin(worker_side("0.3").events.read_result(results[0]), ids("0.3"), user_turn))
    events += [codec.adopt(worker_side("0.3").events.read_result(worker_event), ids("0.3")) for worker_event in results[1:]]
    log = log_of(events)
    bodies = [codec.notice(row(), (user_turn,), log[:at], dialect=dialect) for at in range(1, len(log) + 1)]
    return [parse(body) for body in bodies]


def test_a_webhook_of_0_1_gets_artifacts_by_their_index() -> None:
    sent = notices("0.1", artifact("a"), artifact("b"), artifact("a"))
    assert [notice["eventType"] for notice in sent] == ["status", "artifact", "artifact", "artifact"]
    assert [notice["artifact"]["index"] for notice in sent[1:]] == [0, 1, 0]
    assert {notice["taskId"] for notice in sent} == {"mine"}


def test_a_webhook_of_0_3_gets_the_task_and_one_of_1_0_the_event() -> None:
    assert [notice["kind"] for notice in notices("0.3", artifact("a"))] == ["task", "task"]
    assert [list(notice) for notice in notices("1.0", artifact("a"))] == [["task"], ["artifactUpdate"]]


# --- what cannot be translated


def untranslatable_log() -> tuple[Turn, list[Logged]]:
    user_turn = turn("0.3")
    update = {
        "kind": "artifact-update",
        "taskId": "wt",
        "artifact": {"artifactId": "a", "parts": [{"kind": "xyz", "xyz": "la"}]},
    }
    opening = codec.opening(ids("0.3"), user_turn)
    return user_turn, log_of([opening, codec.adopt(worker_side("0.3").events.read_result(update), ids("0.3"))])


def test_untranslatable_content_is_refused_in_other_dialects_and_never_cut() -> None:
    user_turn, log = untranslatable_log()
    own = parse(codec.snapshot((user_turn,), log, dialect="0.3", history_length=None))
    assert own["artifacts"][0]["parts"] == [{"kind": "xyz", "xyz": "la"}]
    for dialect in ("0.1", "1.0"):
        with pytest.raises(InvalidAnswer, match=r'"task\.artifacts\[0\]\.parts\[0\]" must be a text, file or data part'):
            codec.snapshot((user_turn,), log, dialect=dialect, history_length=None)
        assert codec.snapshot((user_turn,), log, dialect=dialect, history_length=None, artifacts=False)


@pytest.mark.parametrize(("dialect", "state"), [("0.3", "completed"), ("1.0", "TASK_STATE_COMPLETED")])
def test_its_outline_has_its_state_and_marks_that_the_rest_is_missing(dialect: str, state: str) -> None:
    expected: dict[str, Any] = {
        "id": "T",
        "contextId": "C",
        "status": {"state": state, "timestamp": NOW},
        "metadata": {"rolecall": {"reason": "INVALID_AGENT_RESPONSE"}},
    }
    outline = parse(codec.outline(row(), dialect))
    outline.pop("kind", None)
    assert outline == expected


def test_a_recorded_message_is_recalled_in_its_own_dialect() -> None:
    for dialect in VERSIONS:
        send = codec.recall(turn(dialect), row())
        assert (send.dialect, send.target.role, send.target.instance) == (dialect, "echo", "a")
        assert codec.record(send, after=START).params == turn(dialect).params
