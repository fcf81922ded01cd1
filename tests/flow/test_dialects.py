"""Every caller dialect with every worker dialect."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from rolecall.errors import InvalidAnswer, InvalidParams, TaskEnded, TaskNotFound, TaskOver, WorkerBroke, WorkerUnreachable
from rolecall.model.command import TaskQuery
from rolecall.protocol.v0_3.events import read_result
from tests.flow.callers import OTHER, DialectCaller, enrol
from tests.flow.conftest import CALLER, System
from tests.helpers.scripted import chunk, message, status, task

DIALECTS = ["0.1", "0.3", "1.0"]
LOG_DIALECTS = ["0.3", "1.0"]
DONE = (task(), chunk("one ", append=False), chunk("two"), status("completed", "bye"))
everybody = pytest.mark.parametrize("dialect", DIALECTS)
every_worker = pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")


@everybody
@every_worker
async def test_a_stream_has_the_same_events_in_every_dialect(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", *DONE)
    seen = await DialectCaller(system, dialect).stream()
    assert [event.cursor for event in seen] == [1, 2, 3, 4]
    first = "status-update" if dialect == "0.1" else "task"
    assert [event.kind for event in seen] == [first, "artifact-update", "artifact-update", "status-update"]
    assert [event.texts for event in seen[1:3]] == [["one "], ["two"]]
    assert [event.state for event in seen] == ["working", "", "", "completed"]
    if dialect != "1.0":
        assert [event.document.get("final") for event in seen if event.state] == [None if dialect == "0.3" else False, True]


@everybody
@every_worker
async def test_send_get_and_list_give_the_same_task(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", *DONE)
    caller = DialectCaller(system, dialect)
    task_id = (await caller.send(name="mine")).document["id"]
    assert (await caller.subscribe(task_id, after=0))[-1].state == "completed"
    got = await caller.get(task_id)
    assert (got.kind, got.state, got.texts) == ("task", "completed", ["one ", "two"])
    assert got.document["id"] == task_id
    assert (task_id == "mine") is (dialect == "0.1")
    for reader in LOG_DIALECTS:
        (entry,) = await DialectCaller(system, reader).list_tasks(includeArtifacts=True)
        assert (entry.state, entry.texts) == ("completed", ["one ", "two"])
        assert entry.document["id"] != "mine", "a name that a caller made is spoken in 0.1 alone"


@every_worker
async def test_the_worker_is_called_in_its_dialect_and_the_log_is_kept_in_it(system: System, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    for dialect in DIALECTS:
        system.forwarder.plan("echo:a", *DONE)
        await DialectCaller(system, dialect).stream()
    assert {tuple(sent["parts"][0]) for sent in system.forwarder.delivered_messages()} == {
        ("kind", "text") if log_dialect == "0.3" else ("text",)
    }
    assert {call[2].ids.log_dialect for call in system.forwarder.calls} == {log_dialect}


@everybody
async def test_a_worker_of_both_dialects_is_called_in_the_callers_dialect(system: System, dialect: str) -> None:
    await enrol(system, "echo:a", "0.3", "1.0")
    system.forwarder.plan("echo:a", *DONE)
    await DialectCaller(system, dialect).stream()
    assert system.forwarder.calls[0][2].ids.log_dialect == ("0.3" if dialect == "0.1" else dialect)


@everybody
@every_worker
async def test_a_bare_message_is_the_whole_answer_except_in_0_1(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    caller = DialectCaller(system, dialect)
    for _ in range(2):
        system.forwarder.plan("echo:a", message("yes"))
    if dialect != "0.1":
        assert (await caller.send()).texts == ["yes"]
        assert [(event.kind, event.texts) for event in await caller.stream()] == [("message", ["yes"])]
        return
    answer = await caller.send(name="mine")
    assert (answer.document["id"], answer.state) == ("mine", "completed")
    assert answer.document["status"]["message"]["parts"] == [{"type": "text", "text": "yes"}]
    assert (await caller.get("mine")).state == "completed"
    assert [event.state for event in await caller.stream(name="other")] == ["submitted", "completed"]


@everybody
@every_worker
async def test_cancelling_reaches_the_worker_and_ends_the_stream(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task(), 30.0)
    system.forwarder.plan_fetch("echo:a", task("canceled"))
    caller = DialectCaller(system, dialect)
    started = await caller.send(name="mine", wait=False)
    assert started.state == "working"
    reader = asyncio.create_task(caller.subscribe(started.document["id"]))
    await asyncio.sleep(0)
    assert (await caller.cancel(started.document["id"])).state == "canceled"
    assert (await asyncio.wait_for(reader, 5))[-1].state == "canceled"


# --- resuming


@everybody
@every_worker
async def test_a_reader_that_resumes_gets_the_task_as_of_its_cursor_and_the_later_events(
    system: System, dialect: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", *DONE)
    caller = DialectCaller(system, dialect)
    name = "mine" if dialect == "0.1" else ""
    first = (await caller.stream(name=name))[0]
    task_id = first.document["id"]
    again = await caller.subscribe(task_id, after=2)
    assert [event.cursor for event in again] == [2, 3, 4]
    assert (again[0].state, again[1].texts, again[2].state) == ("working", ["two"], "completed")
    artifacts = again[0].document["artifacts"]
    assert [part["text"] for artifact in artifacts for part in artifact["parts"]] == ["one "]
    assert [event.cursor for event in await caller.subscribe(task_id, after=0)] == [1, 2, 3, 4]
    with pytest.raises(InvalidParams, match="is after the task's last event"):
        await caller.subscribe(task_id, after=5)
    if dialect == "1.0":
        for after in (None, 4):
            with pytest.raises(TaskOver):
                await caller.subscribe(task_id, after=after)
    else:
        for after in (None, 4):
            (whole,) = await caller.subscribe(task_id, after=after)
            assert (whole.cursor, whole.state) == (4, "completed")


@everybody
@every_worker
async def test_a_subscriber_to_a_working_task_gets_the_task_first_and_then_its_events(
    system: System, dialect: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task(), chunk("one ", append=False), 0.2, chunk("two"), status("completed"))
    caller = DialectCaller(system, dialect)
    task_id = (await caller.send(name="mine", wait=False)).document["id"]
    seen = await caller.subscribe(task_id)
    assert seen[0].kind == ("status-update" if dialect == "0.1" else "task")
    assert [event.cursor for event in seen] == list(range(seen[0].cursor, 5))
    assert seen[-1].state == "completed"


@every_worker
async def test_a_worker_whose_connection_was_cut_is_polled_in_its_own_dialect(system: System, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task(), chunk("one ", append=False), WorkerBroke("echo:a", "cut"))
    whole = [{"artifactId": "a", "parts": [{"kind": "text", "text": "one "}, {"kind": "text", "text": "two"}]}]
    system.forwarder.plan_fetch("echo:a", task("completed", artifacts=whole))
    seen = await DialectCaller(system, "0.3").stream()
    assert [event.texts for event in seen if event.kind == "artifact-update"] == [["one "], ["two"]]
    assert any("gap" in (event.document.get("metadata") or {}).get("rolecall", {}) for event in seen)
    assert "attach" not in {call[0] for call in system.forwarder.calls}
    assert seen[-1].state == "completed"


@pytest.mark.parametrize(("first", "second"), [("0.3", "1.0"), ("1.0", "0.3")])
@everybody
async def test_a_refused_call_moves_to_a_worker_of_another_dialect(
    system: System, dialect: str, first: str, second: str
) -> None:
    await enrol(system, "echo:a", first)
    (await enrol(system, "echo:b", second)).in_flight = 5  # so that the other one is asked first
    system.forwarder.plan("echo:a", REFUSED)
    system.forwarder.plan("echo:b", *DONE)
    seen = await DialectCaller(system, dialect).stream(name="mine")
    assert [event.texts for event in seen[1:3]] == [["one "], ["two"]]
    asked = [(worker, dispatch.ids.log_dialect) for _, worker, dispatch in system.forwarder.calls]
    assert asked == [("echo:a", first), ("echo:b", second)]
    assert (await DialectCaller(system, "1.0").list_tasks())[0].state == "completed"


# --- pauses and answers


@pytest.mark.parametrize("answers_in", DIALECTS)
@everybody
@every_worker
async def test_a_pause_is_answered_in_any_dialect_and_the_history_has_both_messages(
    system: System, dialect: str, answers_in: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan("echo:a", status("working"), chunk("blue", append=False), status("completed"))
    asks, answers = DialectCaller(system, dialect), DialectCaller(system, answers_in)
    paused = await asks.send("paint", name="mine")
    assert paused.state == "input-required"
    task_id = (await DialectCaller(system, "1.0").list_tasks())[0].document["id"]
    # 0.1 names the task beside the message, the others inside it.
    answer = {"name": task_id} if answers_in == "0.1" else {"taskId": task_id}
    seen = await answers.stream("blue", **answer)
    assert seen[0].state == "working"
    assert (seen[-1].state, seen[1].texts) == ("completed", ["blue"])
    assert system.forwarder.delivered_messages()[1]["taskId"] == "wt"
    history = (await DialectCaller(system, "1.0").get(task_id)).document["history"]
    assert [turn["parts"][0]["text"] for turn in history] == ["paint", "which?", "blue"]
    assert [turn["role"] for turn in history] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]
    assert {turn["taskId"] for turn in history} == {task_id}


@everybody
@every_worker
async def test_a_context_alone_answers_the_only_paused_task_except_in_1_0(
    system: System, dialect: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    caller = DialectCaller(system, dialect)
    paused = await caller.send("paint", contextId="c")
    assert paused.state == "input-required"
    system.forwarder.plan("echo:a", task("completed", task_id="w2" if dialect == "1.0" else "wt"))
    await caller.stream("blue", contextId="c")
    delivered = system.forwarder.delivered_messages()[1]
    assert delivered.get("taskId") == (None if dialect == "1.0" else "wt")
    assert delivered["contextId"] == "wc"
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == (2 if dialect == "1.0" else 1)


@everybody
@every_worker
async def test_a_task_in_another_context_than_its_own_is_refused(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    caller = DialectCaller(system, dialect)
    paused = await caller.send("paint", name="mine", contextId="c")
    named = {"name": "mine"} if dialect == "0.1" else {"taskId": paused.document["id"]}
    with pytest.raises(InvalidParams, match="is not the context of that task"):
        await caller.send("blue", contextId="d", **named)
    assert len(system.forwarder.calls) == 1


@everybody
@every_worker
async def test_a_caller_without_a_context_gets_the_hubs_and_a_callers_context_is_kept(
    system: System, dialect: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    member = "sessionId" if dialect == "0.1" else "contextId"
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    caller = DialectCaller(system, dialect)
    made = (await caller.send(name="a")).document[member]
    assert UUID(made).version == 7
    assert (await caller.send("again", name="b", contextId="mine")).document[member] == "mine"
    assert [sent.get("contextId") for sent in system.forwarder.delivered_messages()] == [made, "mine"]


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
@every_worker
async def test_references_are_translated_to_the_workers_ids_and_those_of_others_are_not_found(
    system: System, dialect: str, log_dialect: str
) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task("completed"))
    system.forwarder.plan("echo:a", task("completed", task_id="w2"))
    caller = DialectCaller(system, dialect)
    known = (await caller.send()).document["id"]
    await caller.send("more", referenceTaskIds=[known])
    assert system.forwarder.delivered_messages()[1]["referenceTaskIds"] == ["wt"]
    for stranger in ("none", known):
        with pytest.raises(TaskNotFound):
            await DialectCaller(system, dialect, OTHER if stranger == known else CALLER).send(
                "more", referenceTaskIds=[stranger]
            )
    assert (await system.engine.tasks.page(CALLER, TaskQuery())).total == 2


@everybody
@every_worker
async def test_a_message_to_an_ended_task_is_refused(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task("completed"))
    caller = DialectCaller(system, dialect)
    ended = (await caller.send(name="mine")).document["id"]
    with pytest.raises(TaskEnded):
        await caller.send("more", **({"name": "mine"} if dialect == "0.1" else {"taskId": ended}))


# --- events of the hub, and content that cannot be translated


@everybody
@every_worker
async def test_the_hubs_own_status_is_in_the_callers_dialect(system: System, dialect: str, log_dialect: str) -> None:
    await enrol(system, "echo:a", log_dialect)
    system.forwarder.plan("echo:a", task(), WorkerBroke("echo:a", "cut"))
    seen = await DialectCaller(system, dialect).stream(name="mine")
    last = seen[-1]
    assert last.state == "failed"
    assert last.document["metadata"] == {"rolecall": {"reason": "WORKER_LOST"}}
    (part,) = last.document["status"]["message"]["parts"]
    assert "no longer knows the task" in part["text"]


async def test_untranslatable_content_is_an_error_for_its_readers_and_hides_no_other_task(system: System) -> None:
    await enrol(system, "echo:a", "0.3")
    unknown_part = {
        "kind": "artifact-update",
        "taskId": "wt",
        "artifact": {"artifactId": "s", "parts": [{"kind": "unknown_part"}]},
    }
    system.forwarder.plan("echo:a", task(), chunk("one ", append=False), read_result(unknown_part), status("completed"))
    system.forwarder.plan("echo:a", *DONE)
    newest = DialectCaller(system, "1.0")
    untranslatable = await system.stream()
    assert untranslatable[2]["artifact"]["parts"] == [{"kind": "unknown_part"}], "in its own dialect it is passed on as it came"
    task_id = untranslatable[0]["id"]
    for refused in (newest.get(task_id), newest.subscribe(task_id, after=0)):
        with pytest.raises(InvalidAnswer, match=r"must be a text, file or data part\. \(from 0\.3 to 1\.0\)"):
            await refused
    await newest.stream("another")
    entries = {entry.document["id"]: entry for entry in await newest.list_tasks(includeArtifacts=True)}
    outline = entries.pop(task_id)
    assert (outline.state, outline.document["metadata"]) == ("completed", {"rolecall": {"reason": "INVALID_AGENT_RESPONSE"}})
    (other,) = entries.values()
    assert other.texts == ["one ", "two"]
    assert (await system.get(task_id))["status"]["state"] == "completed"
