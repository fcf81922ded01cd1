"""From a worker's events to the log, and from the log to the task."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import WorkerLost
from rolecall.model.a2a import Event, EventKind, Ids, Logged, TaskState, WorkerEvent
from rolecall.model.command import Target
from rolecall.model.ids import START, Cursor, TaskId
from rolecall.model.task import Turn
from rolecall.protocol.codec import Codec, LogFold
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_3 import requests as v03
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.workers.events import Malformed

IDS = Ids(TaskId("T"), "C", "wt", "wc")
codec = Codec(lambda: 0.0)


def turn(text: str, after: int = 0, message_id: str = "m1") -> Turn:
    params = {"message": {"messageId": message_id, "parts": [{"kind": "text", "text": text}]}}
    return codec.record(v03.read_send(params, Target()), after=Cursor(after))


def event_of(**document: Any) -> WorkerEvent:
    return read_result(document)


def task(state: str = "working", **members: Any) -> WorkerEvent:
    return event_of(kind="task", id="wt", contextId="wc", status={"state": state}, **members)


def status(state: str, text: str | None = None, message_id: str = "s1") -> WorkerEvent:
    words = {"message": agent(text, message_id)} if text else {}
    return event_of(kind="status-update", taskId="wt", contextId="wc", status={"state": state, **words}, final=False)


def artifact(artifact_id: str, *texts: str, append: bool = False) -> WorkerEvent:
    parts = [{"kind": "text", "text": text} for text in texts]
    return event_of(
        kind="artifact-update", taskId="wt", contextId="wc", artifact={"artifactId": artifact_id, "parts": parts}, append=append
    )


def agent(text: str, message_id: str) -> dict[str, Any]:
    return {
        "kind": "message",
        "role": "agent",
        "messageId": message_id,
        "parts": [{"kind": "text", "text": text}],
        "taskId": "wt",
    }


def logged(*worker_events: WorkerEvent, turns: tuple[Turn, ...] = ()) -> list[Logged]:
    turns = turns or (turn("hi"),)
    log: list[Logged] = []
    for worker_event in worker_events:
        if not log:
            events = codec.begin(worker_event, IDS, turns[0])
        elif worker_event.kind is EventKind.TASK:
            events = fold_of(log, turns).missing(worker_event, IDS, gap=False).events
        else:
            events = [codec.adopt(worker_event, IDS)]
        for event in events:
            log.append(Logged(Cursor(len(log) + 1), event))
    return log


def fold_of(log: list[Logged], turns: tuple[Turn, ...] = ()) -> LogFold:
    fold = codec.fold(turns or (turn("hi"),))
    fold.add(log)
    return fold


def folded(log: list[Logged], *turns: Turn, history_length: int | None = None) -> dict[str, Any]:
    body = codec.snapshot(turns or (turn("hi"),), log, dialect="0.3", history_length=history_length)
    document: dict[str, Any] = parse(body)
    return document


def texts(document: dict[str, Any]) -> list[list[str]]:
    return [[part["text"] for part in a["parts"]] for a in document.get("artifacts", [])]


def test_the_first_frame_is_a_task_that_opens_with_the_callers_message() -> None:
    first = parse(logged(task())[0].event.body)
    assert (first["kind"], first["id"], first["contextId"]) == ("task", "T", "C")
    assert first["history"][0]["messageId"] == "m1"
    assert first["history"][0]["taskId"] == "T"


def test_a_workers_copy_of_the_callers_message_is_not_added_twice() -> None:
    first = parse(
        logged(task(history=[{"role": "user", "messageId": "m1", "parts": [], "taskId": "wt"}, agent("yes", "a1")]))[
            0
        ].event.body
    )
    assert [m["messageId"] for m in first["history"]] == ["m1", "a1"]
    assert {m["taskId"] for m in first["history"]} == {"T"}


@pytest.mark.parametrize("worker_event", [status("working"), artifact("a", "x")])
def test_an_event_before_any_task_gets_a_task_before_it(worker_event: WorkerEvent) -> None:
    log = logged(worker_event)
    assert [logged.event.kind for logged in log] == [EventKind.TASK, worker_event.kind]


def test_a_bare_message_is_the_only_event_and_ends() -> None:
    log = logged(event_of(kind="message", role="agent", messageId="a", parts=[], contextId="wc"))
    assert len(log) == 1
    assert log[0].event.is_last
    assert parse(log[0].event.body)["contextId"] == "C"


def test_a_message_after_the_task_completes_it() -> None:
    log = logged(task(), event_of(kind="message", role="agent", messageId="a", parts=[{"kind": "text", "text": "bye"}]))
    assert log[-1].event.state is TaskState.COMPLETED
    assert folded(log)["status"]["message"]["parts"][0]["text"] == "bye"


@pytest.mark.parametrize(
    ("state", "final"), [("working", False), ("input-required", True), ("completed", True), ("auth-required", True)]
)
def test_final_is_true_for_a_terminal_or_paused_state(state: str, final: bool) -> None:
    assert parse(logged(task(), status(state))[1].event.body)["final"] is final


def test_equal_chunks_are_all_kept() -> None:
    log = logged(
        task(), artifact("a", "ha"), artifact("a", "ha", append=True), artifact("a", "ha", append=True), status("completed")
    )
    assert texts(folded(log)) == [["ha", "ha", "ha"]]


def test_a_repeated_task_adds_what_is_new_by_position() -> None:
    parts = [{"kind": "text", "text": "ha"}] * 4
    log = logged(
        task(),
        artifact("a", "ha"),
        artifact("a", "ha", append=True),
        task("completed", artifacts=[{"artifactId": "a", "parts": parts}]),
    )
    kinds = [logged.event.kind for logged in log]
    assert kinds == [EventKind.TASK, EventKind.ARTIFACT, EventKind.ARTIFACT, EventKind.ARTIFACT, EventKind.STATUS]
    assert texts(folded(log)) == [["ha"] * 4]
    assert log[-1].event.state is TaskState.COMPLETED


def test_a_repeated_task_without_news_adds_nothing() -> None:
    log = logged(
        task(), artifact("a", "x"), task("working", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    )
    assert len(log) == 2


def test_a_last_chunk_without_parts_is_an_empty_text_that_adds_nothing() -> None:
    log = logged(task(), artifact("a", "x"), artifact("a", append=True))
    assert parse(log[-1].event.body)["artifact"]["parts"] == [{"kind": "text", "text": ""}]
    assert texts(folded(log)) == [["x"]]


@pytest.mark.parametrize(
    ("chunks", "seen", "missing"),
    [
        ([("x",), ()], ("x",), []),
        ([("x",), ()], ("x", ""), []),
        ([("x",), ()], ("x", "y"), [(["y"], True)]),
        ([()], ("y",), [(["y"], True)]),
        ([()], ("", "y"), [(["y"], True)]),
        ([()], (), []),
    ],
)
def test_empty_texts_count_in_no_comparison(
    chunks: list[tuple[str, ...]], seen: tuple[str, ...], missing: list[tuple[list[str], bool]]
) -> None:
    log = logged(task(), *(artifact("a", *texts, append=at > 0) for at, texts in enumerate(chunks)))
    parts = [{"kind": "text", "text": text} for text in seen]
    found = fold_of(log).missing(task("working", artifacts=[{"artifactId": "a", "parts": parts}]), IDS, gap=False).events
    updates = [parse(event.body) for event in found]
    assert [([part["text"] for part in one["artifact"]["parts"]], one["append"]) for one in updates] == missing


def test_an_artifact_that_was_replaced_is_replaced() -> None:
    log = logged(
        task(),
        artifact("a", "draft"),
        task("working", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "final"}]}]),
    )
    assert texts(folded(log)) == [["final"]]


def test_what_came_after_a_gap_is_marked() -> None:
    log = logged(task(), artifact("a", "x"))
    seen = task(
        "completed", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}, {"kind": "text", "text": "y"}]}]
    )
    events = fold_of(log).missing(seen, IDS, gap=True).events
    assert parse(events[0].body)["metadata"]["rolecall"] == {"gap": True}


def test_messages_in_a_gap_become_status_updates_before_the_last_one() -> None:
    log = logged(task())
    seen = task("completed", history=[agent("one", "a1"), agent("two", "a2")])
    events = fold_of(log).missing(seen, IDS, gap=False).events
    assert [(e.state, (parse(e.body)["status"].get("message") or {}).get("messageId")) for e in events] == [
        (TaskState.WORKING, "a1"),
        (TaskState.WORKING, "a2"),
        (TaskState.COMPLETED, None),
    ]


def test_a_replaced_status_message_moves_to_history() -> None:
    log = logged(task(), status("working", "one", "s1"), status("working", "two", "s2"), status("completed"))
    document = folded(log)
    assert [m["messageId"] for m in document["history"]] == ["m1", "s1", "s2"]
    assert "message" not in document["status"]


def test_later_turns_follow_the_question_that_they_answer() -> None:
    log = logged(task(), status("input-required", "which?", "q1"), status("working"), status("completed", "done", "d1"))
    document = folded(log, turn("hi"), turn("that one", after=2, message_id="m2"))
    assert [m["messageId"] for m in document["history"]] == ["m1", "q1", "m2"]
    early = folded(log[:2], turn("hi"), turn("that one", after=2, message_id="m2"))
    assert [m["messageId"] for m in early["history"]] == ["m1", "q1", "m2"]


@pytest.mark.parametrize(("length", "ids"), [(None, ["m1", "s1"]), (0, None), (1, ["s1"]), (9, ["m1", "s1"])])
def test_history_is_cut_to_the_newest(length: int | None, ids: list[str] | None) -> None:
    log = logged(task(), status("working", "one", "s1"), status("completed"))
    history = folded(log, history_length=length).get("history")
    assert (history and [m["messageId"] for m in history]) == ids


def test_a_log_of_one_event_is_the_task_in_the_same_bytes() -> None:
    log = logged(task("completed", strange={"kept": [1, 2.5, None]}))
    assert codec.snapshot((turn("hi"),), log, dialect="0.3", history_length=None) is log[0].event.body
    assert folded(log)["strange"] == {"kept": [1, 2.5, None]}


def test_a_verdict_has_its_reason_in_metadata_and_text() -> None:
    log = logged(task())
    event = codec.verdict(IDS, TaskState.FAILED, WorkerLost("a:b has gone."))
    document = folded([*log, Logged(Cursor(2), event)])
    assert document["status"]["state"] == "failed"
    assert document["status"]["message"]["parts"][0]["text"] == "a:b has gone."
    assert document["metadata"]["rolecall"] == {"reason": "WORKER_LOST"}


def test_an_opening_is_a_submitted_task() -> None:
    event: Event = codec.opening(Ids(TaskId("T"), "C"), turn("hi"))
    assert event.state is TaskState.SUBMITTED
    assert parse(event.body)["history"][0]["parts"][0]["text"] == "hi"


def test_a_recorded_message_is_recalled_as_it_was() -> None:
    params = {"message": {"messageId": "m", "parts": [{"kind": "text", "text": "hi"}], "x": 1}, "metadata": {"y": 2}}
    send = v03.read_send(params, Target())
    assert parse(codec.record(send, after=START).params) == send.params


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        "x",
        {},
        {"kind": "xyz"},
        {"kind": "task"},
        {"kind": "task", "id": 5, "status": {"state": "working"}},
        {"kind": "task", "id": "x", "status": "working"},
        {"kind": "task", "id": "x", "status": {}},
        {"kind": "task", "id": "x", "status": {"state": "working"}, "artifacts": {}},
        {"kind": "task", "id": "x", "status": {"state": "working"}, "artifacts": [{"parts": 1}]},
        {"kind": "task", "id": "x", "status": {"state": "working"}, "history": [5]},
        {"kind": "status-update", "status": {"state": 5}},
        {"kind": "status-update", "status": {"state": "working", "message": []}},
        {"kind": "artifact-update", "artifact": None},
        {"kind": "artifact-update", "artifact": {"artifactId": "a", "parts": [5]}},
        {"kind": "artifact-update", "artifact": {"artifactId": "a", "parts": []}, "metadata": 5},
        {"kind": "message", "parts": "x"},
    ],
)
def test_what_is_no_event_is_malformed(result: object) -> None:
    with pytest.raises(Malformed):
        read_result(result)


@pytest.mark.parametrize(
    ("result", "kind", "state"),
    [
        ({"id": "x", "status": {"state": "pending"}}, EventKind.TASK, TaskState.SUBMITTED),
        ({"status": {"state": "cancelled"}, "taskId": "x"}, EventKind.STATUS, TaskState.CANCELED),
        ({"artifact": {"parts": []}}, EventKind.ARTIFACT, None),
        ({"parts": [{"text": "x"}]}, EventKind.MESSAGE, None),
        ({"id": "x", "status": {"state": "dreaming"}, "artifacts": None}, EventKind.TASK, TaskState.UNKNOWN),
    ],
)
def test_an_incomplete_event_of_a_worker_is_understood(
    result: dict[str, Any], kind: EventKind, state: TaskState | None
) -> None:
    worker_event = read_result(result)
    assert (worker_event.kind, worker_event.state) == (kind, state)
    assert dump(worker_event.document)


@pytest.mark.parametrize(("length", "states"), [(None, ["working", "working", "completed"]), (1, ["completed"]), (0, None)])
def test_in_0_1_the_history_is_the_tasks_statuses(length: int | None, states: list[str] | None) -> None:
    log = logged(task(), status("working", "counting"), artifact("a", "1"), status("completed"))
    body = parse(codec.snapshot((turn("hi"),), log, dialect="0.1", history_length=length, alias="mine"))
    history = body.get("history")
    assert (history and [entry["state"] for entry in history]) == states
    if length is None:
        assert history[1]["message"] == {"role": "agent", "parts": [{"type": "text", "text": "counting"}]}
        assert all(entry["timestamp"] for entry in history)
    assert (body["id"], body["status"]["state"]) == ("mine", "completed")
