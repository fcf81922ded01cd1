"""Any caller to any worker: every dialect that callers speak, over workers of either dialect."""

from __future__ import annotations

import asyncio

import pytest

from rolecall.errors import InvalidAnswer, InvalidParams, TaskEnded, TaskNotFound, TaskOver, WorkerBroke, WorkerUnreachable
from rolecall.model.command import TaskQuery
from rolecall.protocol.v0_3.events import read_result
from tests.flow.callers import OTHER, Speaker, enrol
from tests.flow.conftest import ME, House
from tests.helpers.scripted import chunk, message, status, task

DIALECTS = ["0.1", "0.3", "1.0"]
SPOKEN = ["0.3", "1.0"]
DONE = (task(), chunk("one ", append=False), chunk("two"), status("completed", "bye"))
everybody = pytest.mark.parametrize("dialect", DIALECTS)
every_worker = pytest.mark.parametrize("log_dialect", SPOKEN)
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")


@everybody
@every_worker
async def test_a_stream_has_the_same_events_for_everybody(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", *DONE)
    seen = await Speaker(house, dialect).stream()
    assert [event.cursor for event in seen] == [1, 2, 3, 4]
    first = "status-update" if dialect == "0.1" else "task"
    assert [event.kind for event in seen] == [first, "artifact-update", "artifact-update", "status-update"]
    assert [event.texts for event in seen[1:3]] == [["one "], ["two"]]
    assert [event.state for event in seen] == ["working", "", "", "completed"]
    if dialect != "1.0":
        assert [event.document.get("final") for event in seen if event.state] == [None if dialect == "0.3" else False, True]


@everybody
@every_worker
async def test_send_get_and_list_give_the_same_task(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", *DONE)
    caller = Speaker(house, dialect)
    task_id = (await caller.send(name="mine")).document["id"]
    assert (await caller.subscribe(task_id, after=0))[-1].state == "completed"
    got = await caller.get(task_id)
    assert (got.kind, got.state, got.texts) == ("task", "completed", ["one ", "two"])
    assert got.document["id"] == task_id
    assert (task_id == "mine") is (dialect == "0.1")
    for reader in SPOKEN:
        (listed,) = await Speaker(house, reader).listed(includeArtifacts=True)
        assert (listed.state, listed.texts) == ("completed", ["one ", "two"])
        assert listed.document["id"] != "mine", "a name that a caller made is spoken in 0.1 alone"


@every_worker
async def test_the_worker_is_spoken_to_in_its_dialect_and_the_log_is_kept_in_it(house: House, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    for dialect in DIALECTS:
        house.forwarder.plan("echo:a", *DONE)
        await Speaker(house, dialect).stream()
    assert {tuple(told["parts"][0]) for told in house.forwarder.told()} == {
        ("kind", "text") if log_dialect == "0.3" else ("text",)
    }
    assert {call[2].ids.log_dialect for call in house.forwarder.calls} == {log_dialect}


@everybody
async def test_a_worker_of_both_dialects_is_spoken_to_in_the_callers(house: House, dialect: str) -> None:
    await enrol(house, "echo:a", "0.3", "1.0")
    house.forwarder.plan("echo:a", *DONE)
    await Speaker(house, dialect).stream()
    assert house.forwarder.calls[0][2].ids.log_dialect == ("0.3" if dialect == "0.1" else dialect)


@everybody
@every_worker
async def test_a_bare_message_is_the_whole_answer_but_under_the_oldest_names(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    caller = Speaker(house, dialect)
    for _ in range(2):
        house.forwarder.plan("echo:a", message("yes"))
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
async def test_cancelling_reaches_the_worker_and_ends_the_stream(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task(), 30.0)
    house.forwarder.plan_fetch("echo:a", task("canceled"))
    caller = Speaker(house, dialect)
    started = await caller.send(name="mine", wait=False)
    assert started.state == "working"
    watching = asyncio.create_task(caller.subscribe(started.document["id"]))
    await asyncio.sleep(0)
    assert (await caller.cancel(started.document["id"])).state == "canceled"
    assert (await asyncio.wait_for(watching, 5))[-1].state == "canceled"


# --- coming back


@everybody
@every_worker
async def test_whoever_comes_back_gets_the_task_as_of_then_and_what_followed(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", *DONE)
    caller = Speaker(house, dialect)
    name = "mine" if dialect == "0.1" else ""
    first = (await caller.stream(name=name))[0]
    task_id = first.document["id"]
    again = await caller.subscribe(task_id, after=2)
    assert [event.cursor for event in again] == [2, 3, 4]
    assert (again[0].state, again[1].texts, again[2].state) == ("working", ["two"], "completed")
    artifacts = again[0].document["artifacts"]
    assert [part["text"] for artifact in artifacts for part in artifact["parts"]] == ["one "]
    assert [event.cursor for event in await caller.subscribe(task_id, after=0)] == [1, 2, 3, 4]
    with pytest.raises(InvalidParams, match="lies behind the task's last event"):
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
async def test_whoever_subscribes_to_a_task_at_work_gets_it_first_and_then_what_happens(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task(), chunk("one ", append=False), 0.2, chunk("two"), status("completed"))
    caller = Speaker(house, dialect)
    task_id = (await caller.send(name="mine", wait=False)).document["id"]
    seen = await caller.subscribe(task_id)
    assert seen[0].kind == ("status-update" if dialect == "0.1" else "task")
    assert [event.cursor for event in seen] == list(range(seen[0].cursor, 5))
    assert seen[-1].state == "completed"


@every_worker
async def test_a_worker_whose_line_was_cut_is_asked_for_its_task_in_its_own_dialect(house: House, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task(), chunk("one ", append=False), WorkerBroke("echo:a", "cut"))
    whole = [{"artifactId": "a", "parts": [{"kind": "text", "text": "one "}, {"kind": "text", "text": "two"}]}]
    house.forwarder.plan_fetch("echo:a", task("completed", artifacts=whole))
    seen = await Speaker(house, "0.3").stream()
    assert [event.texts for event in seen if event.kind == "artifact-update"] == [["one "], ["two"]]
    assert any("gap" in (event.document.get("metadata") or {}).get("rolecall", {}) for event in seen)
    assert "attach" not in {call[0] for call in house.forwarder.calls}
    assert seen[-1].state == "completed"


@pytest.mark.parametrize(("first", "second"), [("0.3", "1.0"), ("1.0", "0.3")])
@everybody
async def test_a_call_that_was_refused_goes_on_to_a_worker_of_another_dialect(
    house: House, dialect: str, first: str, second: str
) -> None:
    await enrol(house, "echo:a", first)
    (await enrol(house, "echo:b", second)).in_flight = 5  # so that the other one is asked first
    house.forwarder.plan("echo:a", REFUSED)
    house.forwarder.plan("echo:b", *DONE)
    seen = await Speaker(house, dialect).stream(name="mine")
    assert [event.texts for event in seen[1:3]] == [["one "], ["two"]]
    asked = [(worker, dispatch.ids.log_dialect) for _, worker, dispatch in house.forwarder.calls]
    assert asked == [("echo:a", first), ("echo:b", second)]
    assert (await Speaker(house, "1.0").listed())[0].state == "completed"


# --- questions and answers


@pytest.mark.parametrize("answers_in", DIALECTS)
@everybody
@every_worker
async def test_a_question_is_answered_in_any_dialect_and_the_history_has_both(
    house: House, dialect: str, answers_in: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan("echo:a", status("working"), chunk("blue", append=False), status("completed"))
    asks, answers = Speaker(house, dialect), Speaker(house, answers_in)
    paused = await asks.send("paint", name="mine")
    assert paused.state == "input-required"
    task_id = (await Speaker(house, "1.0").listed())[0].document["id"]
    # Under the oldest names the task is named beside the message, elsewhere in it.
    answer = {"name": task_id} if answers_in == "0.1" else {"taskId": task_id}
    seen = await answers.stream("blue", **answer)
    assert seen[0].state == "working"
    assert (seen[-1].state, seen[1].texts) == ("completed", ["blue"])
    assert house.forwarder.told()[1]["taskId"] == "wt"
    history = (await Speaker(house, "1.0").get(task_id)).document["history"]
    assert [said["parts"][0]["text"] for said in history] == ["paint", "which?", "blue"]
    assert [said["role"] for said in history] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]
    assert {said["taskId"] for said in history} == {task_id}


@everybody
@every_worker
async def test_a_lone_context_answers_the_one_task_that_waits_but_not_in_1_0(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    caller = Speaker(house, dialect)
    paused = await caller.send("paint", contextId="c")
    assert paused.state == "input-required"
    house.forwarder.plan("echo:a", task("completed", task_id="w2" if dialect == "1.0" else "wt"))
    await caller.stream("blue", contextId="c")
    told = house.forwarder.told()[1]
    assert told.get("taskId") == (None if dialect == "1.0" else "wt")
    assert told["contextId"] == "wc"
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == (2 if dialect == "1.0" else 1)


@everybody
@every_worker
async def test_a_task_in_another_context_than_its_own_is_refused(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    caller = Speaker(house, dialect)
    paused = await caller.send("paint", name="mine", contextId="c")
    named = {"name": "mine"} if dialect == "0.1" else {"taskId": paused.document["id"]}
    with pytest.raises(InvalidParams, match="is not the context of that task"):
        await caller.send("blue", contextId="d", **named)
    assert len(house.forwarder.calls) == 1


@everybody
@every_worker
async def test_who_names_no_context_gets_the_workers_and_who_names_one_keeps_it(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    member = "sessionId" if dialect == "0.1" else "contextId"
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    caller = Speaker(house, dialect)
    assert (await caller.send(name="a")).document[member] == "wc"
    assert (await caller.send("again", name="b", contextId="mine")).document[member] == "mine"
    assert [told.get("contextId") for told in house.forwarder.told()] == [None, "mine"]


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
@every_worker
async def test_tasks_that_a_message_refers_to_have_the_workers_names_and_strangers_are_not_found(
    house: House, dialect: str, log_dialect: str
) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task("completed"))
    house.forwarder.plan("echo:a", task("completed", task_id="w2"))
    caller = Speaker(house, dialect)
    known = (await caller.send()).document["id"]
    await caller.send("more", referenceTaskIds=[known])
    assert house.forwarder.told()[1]["referenceTaskIds"] == ["wt"]
    for stranger in ("none", known):
        with pytest.raises(TaskNotFound):
            await Speaker(house, dialect, OTHER if stranger == known else ME).send("more", referenceTaskIds=[stranger])
    assert (await house.engine.tasks.page(ME, TaskQuery())).total == 2


@everybody
@every_worker
async def test_no_message_reaches_a_task_that_has_ended(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task("completed"))
    caller = Speaker(house, dialect)
    ended = (await caller.send(name="mine")).document["id"]
    with pytest.raises(TaskEnded):
        await caller.send("more", **({"name": "mine"} if dialect == "0.1" else {"taskId": ended}))


# --- what the hub says itself, and what cannot be said


@everybody
@every_worker
async def test_the_hubs_own_verdict_is_said_in_the_callers_dialect(house: House, dialect: str, log_dialect: str) -> None:
    await enrol(house, "echo:a", log_dialect)
    house.forwarder.plan("echo:a", task(), WorkerBroke("echo:a", "cut"))
    seen = await Speaker(house, dialect).stream(name="mine")
    last = seen[-1]
    assert last.state == "failed"
    assert last.document["metadata"] == {"rolecall": {"reason": "WORKER_LOST"}}
    (part,) = last.document["status"]["message"]["parts"]
    assert "no longer knows the task" in part["text"]


async def test_content_that_cannot_be_translated_is_an_error_for_its_readers_and_hides_nothing_else(house: House) -> None:
    await enrol(house, "echo:a", "0.3")
    song = {"kind": "artifact-update", "taskId": "wt", "artifact": {"artifactId": "s", "parts": [{"kind": "song"}]}}
    house.forwarder.plan("echo:a", task(), chunk("one ", append=False), read_result(song), status("completed"))
    house.forwarder.plan("echo:a", *DONE)
    newest = Speaker(house, "1.0")
    odd = await house.stream()
    assert odd[2]["artifact"]["parts"] == [{"kind": "song"}], "in its own dialect it is passed on as it came"
    task_id = odd[0]["id"]
    for refused in (newest.get(task_id), newest.subscribe(task_id, after=0)):
        with pytest.raises(InvalidAnswer, match=r"must be a text, file or data part\. \(from 0\.3 to 1\.0\)"):
            await refused
    await newest.stream("another")
    listed = {entry.document["id"]: entry for entry in await newest.listed(includeArtifacts=True)}
    outline = listed.pop(task_id)
    assert (outline.state, outline.document["metadata"]) == ("completed", {"rolecall": {"reason": "INVALID_AGENT_RESPONSE"}})
    (other,) = listed.values()
    assert other.texts == ["one ", "two"]
    assert (await house.get(task_id))["status"]["state"] == "completed"
