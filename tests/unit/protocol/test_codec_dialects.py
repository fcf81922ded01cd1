"""The codec where dialects differ: what goes into a log of either, and what readers of the others get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rolecall.errors import InvalidAnswer, WorkerLost
from rolecall.model.a2a import Event, EventKind, Ids, JsonObject, Logged, TaskState
from rolecall.model.command import Target
from rolecall.model.ids import START, Caller, Cursor, TaskId, WorkerId
from rolecall.model.task import TaskRow, Turn
from rolecall.protocol.callers.event_encoder import EventEncoder
from rolecall.protocol.callers.requests import READ_SEND
from rolecall.protocol.codec import Codec
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.workers import requests as calls

codec = Codec(lambda: 0.0)
NOW = "1970-01-01T00:00:00.000Z"
ASKED: dict[str, JsonObject] = {
    "0.1": {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}},
    "0.3": {"message": {"messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}},
    "1.0": {"message": {"messageId": "m", "parts": [{"text": "hi"}]}},
}
SPOKEN = ["0.3", "1.0"]
DIALECTS = ["0.1", *SPOKEN]


def ids(log_dialect: str) -> Ids:
    return Ids(TaskId("T"), "C", "wt", "wc", log_dialect)


def turn(dialect: str, after: int = 0) -> Turn:
    return codec.record(READ_SEND[dialect](parse(dump(ASKED[dialect])), Target()), after=Cursor(after))


def bare(log_dialect: str, text: str = "yes") -> JsonObject:
    said = {"messageId": "a", "role": "agent" if log_dialect == "0.3" else "ROLE_AGENT", "contextId": "wc"}
    part = {"kind": "text", "text": text} if log_dialect == "0.3" else {"text": text}
    return {"kind": "message", **said, "parts": [part]} if log_dialect == "0.3" else {"message": {**said, "parts": [part]}}


def artifact(name: str, log_dialect: str = "0.3") -> JsonObject:
    part = {"kind": "text", "text": name} if log_dialect == "0.3" else {"text": name}
    update = {"taskId": "wt", "contextId": "wc", "artifact": {"artifactId": name, "parts": [part]}}
    return {"kind": "artifact-update", **update} if log_dialect == "0.3" else {"artifactUpdate": update}


def placed(events: Sequence[Event]) -> list[Logged]:
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


@pytest.mark.parametrize("log_dialect", SPOKEN)
@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_bare_message_is_a_whole_answer(dialect: str, log_dialect: str) -> None:
    (event,) = codec.begin(calls.readers(log_dialect)[0](bare(log_dialect)), ids(log_dialect), turn(dialect))
    assert (event.kind, event.dialect) == (EventKind.MESSAGE, log_dialect)
    said = parse(codec.spelled(event, dialect))
    assert (said["role"], said["contextId"]) == ("agent" if dialect == "0.3" else "ROLE_AGENT", "C")


@pytest.mark.parametrize("log_dialect", SPOKEN)
def test_under_the_oldest_names_it_is_a_task_that_ends_with_it(log_dialect: str) -> None:
    asked = turn("0.1")
    log = placed(codec.begin(calls.readers(log_dialect)[0](bare(log_dialect)), ids(log_dialect), asked))
    assert [logged.event.state for logged in log] == [TaskState.SUBMITTED, TaskState.COMPLETED]
    task = parse(codec.snapshot((asked,), log, dialect="0.1", history_length=0, alias="mine"))
    assert task == {
        "id": "mine",
        "sessionId": "C",
        "status": {
            "state": "completed",
            "message": {"role": "agent", "parts": [{"type": "text", "text": "yes"}]},
            "timestamp": NOW,
        },
    }


@pytest.mark.parametrize("log_dialect", SPOKEN)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_the_caller_said_opens_the_history_in_the_logs_dialect(dialect: str, log_dialect: str) -> None:
    opening = parse(codec.opening(ids(log_dialect), turn(dialect)).body)
    (asked,) = opening["history"]
    assert asked["parts"] == [{"kind": "text", "text": "hi"} if log_dialect == "0.3" else {"text": "hi"}]
    assert (asked["taskId"], asked["contextId"]) == ("T", "C")
    assert asked["role"] == ("user" if log_dialect == "0.3" else "ROLE_USER")
    assert opening["status"] == {"state": "submitted" if log_dialect == "0.3" else "TASK_STATE_SUBMITTED", "timestamp": NOW}


@pytest.mark.parametrize("log_dialect", SPOKEN)
def test_what_the_hub_says_itself_every_dialect_can_read(log_dialect: str) -> None:
    events = [
        codec.opening(ids(log_dialect), turn("0.3")),
        codec.resumed(ids(log_dialect)),
        codec.verdict(ids(log_dialect), TaskState.FAILED, WorkerLost("echo:a has gone.")),
    ]
    for dialect in DIALECTS:
        pen = EventEncoder(dialect, "mine")
        _, resumed, verdict = (parse(pen.encode(event)) for event in events)
        assert resumed["status"]["state"] == ("TASK_STATE_WORKING" if dialect == "1.0" else "working")
        assert verdict["status"]["state"] == ("TASK_STATE_FAILED" if dialect == "1.0" else "failed")
        assert verdict["metadata"] == {"rolecall": {"reason": "WORKER_LOST"}}
        (part,) = verdict["status"]["message"]["parts"]
        assert part["text"] == "echo:a has gone."
        assert (resumed.get("final"), verdict.get("final")) == ((None, None) if dialect == "1.0" else (False, True))
        assert verdict["status"]["message"]["role"] == ("ROLE_AGENT" if dialect == "1.0" else "agent")


@pytest.mark.parametrize("log_dialect", SPOKEN)
def test_later_turns_stand_in_the_history_in_the_readers_dialect(log_dialect: str) -> None:
    """The first was said in 0.3 and the second in 1.0."""
    asks = {"state": "input-required" if log_dialect == "0.3" else "TASK_STATE_INPUT_REQUIRED"}
    task: JsonObject = {"id": "wt", "contextId": "wc", "status": asks}
    heard = calls.readers(log_dialect)[0]({"kind": "task", **task} if log_dialect == "0.3" else {"task": task})
    first = turn("0.3")
    log = placed([*codec.begin(heard, ids(log_dialect), first), codec.resumed(ids(log_dialect))])
    answer = Turn(Cursor(1), "m2", "1.0", dump({"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"data": [1]}]}}))
    for dialect in SPOKEN:
        history = parse(codec.snapshot((first, answer), log, dialect=dialect, history_length=None))["history"]
        assert [message["messageId"] for message in history] == ["m", "m2"]
        (part,) = history[1]["parts"]
        assert part["data"] == ([1] if dialect == "1.0" else {"value": [1]})
        assert {message["taskId"] for message in history} == {"T"}


# --- webhooks


def notices(dialect: str, *heards: JsonObject) -> list[JsonObject]:
    asked = turn("0.1")
    events = list(codec.begin(calls.readers("0.3")[0](heards[0]), ids("0.3"), asked))
    events += [codec.adopt(calls.readers("0.3")[0](heard), ids("0.3")) for heard in heards[1:]]
    log = placed(events)
    told = [codec.notice(row(), (asked,), log[:at], dialect=dialect) for at in range(1, len(log) + 1)]
    return [parse(body) for body in told]


def test_a_webhook_of_the_oldest_dialect_hears_of_artifacts_by_their_place() -> None:
    told = notices("0.1", artifact("a"), artifact("b"), artifact("a"))
    assert [notice["eventType"] for notice in told] == ["status", "artifact", "artifact", "artifact"]
    assert [notice["artifact"]["index"] for notice in told[1:]] == [0, 1, 0]
    assert {notice["taskId"] for notice in told} == {"mine"}


def test_a_webhook_of_0_3_hears_the_task_and_one_of_1_0_the_event() -> None:
    assert [notice["kind"] for notice in notices("0.3", artifact("a"))] == ["task", "task"]
    assert [list(notice) for notice in notices("1.0", artifact("a"))] == [["task"], ["artifactUpdate"]]


# --- what cannot be said


def odd_log() -> tuple[Turn, list[Logged]]:
    asked = turn("0.3")
    song = {
        "kind": "artifact-update",
        "taskId": "wt",
        "artifact": {"artifactId": "a", "parts": [{"kind": "song", "song": "la"}]},
    }
    opening = codec.opening(ids("0.3"), asked)
    return asked, placed([opening, codec.adopt(calls.readers("0.3")[0](song), ids("0.3"))])


def test_content_that_only_its_own_dialect_can_carry_is_refused_to_the_others_and_never_cut() -> None:
    asked, log = odd_log()
    own = parse(codec.snapshot((asked,), log, dialect="0.3", history_length=None))
    assert own["artifacts"][0]["parts"] == [{"kind": "song", "song": "la"}]
    for dialect in ("0.1", "1.0"):
        with pytest.raises(InvalidAnswer, match=r'"task\.artifacts\[0\]\.parts\[0\]" must be a text, file or data part'):
            codec.snapshot((asked,), log, dialect=dialect, history_length=None)
        assert codec.snapshot((asked,), log, dialect=dialect, history_length=None, artifacts=False)


@pytest.mark.parametrize(("dialect", "state"), [("0.3", "completed"), ("1.0", "TASK_STATE_COMPLETED")])
def test_its_outline_says_what_state_it_is_in_and_that_the_rest_is_missing(dialect: str, state: str) -> None:
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
    for dialect in DIALECTS:
        send = codec.recall(turn(dialect), row())
        assert (send.dialect, send.target.role, send.target.instance) == (dialect, "echo", "a")
        assert codec.record(send, after=START).params == turn(dialect).params
