"""A caller that wanted it learns the id of its task as soon as there is one, and errors name the task that there is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rolecall.errors import InvalidAnswer, TaskNotFound, WorkerUnreachable
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System, frames, say
from tests.flow.relayed import REFUSED
from tests.helpers.scripted import chunk, message, status, task
from tests.helpers.watched_engine import Hold
from tests.protocol.transcripts import HttpRequest, app_of, exchange

HEADER = b"a2a-task"
WANTED = (("want-a2a-task", "1"),)
PARAMS = {"message": {"kind": "message", "role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}}
STREAM = HttpRequest("POST", "/agents/echo/", {"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": PARAMS}, WANTED)
BROKEN = InvalidAnswer("echo:a", "HTML")


def named_task(headers: list[tuple[bytes, bytes]]) -> str:
    return dict(headers).get(HEADER, b"").decode()


def events(body: str) -> list[dict[str, Any]]:
    return [parse(frame.partition("data: ")[2].encode()) for frame in body.split("\n\n") if "data: " in frame]


async def test_a_stream_tells_the_task_before_its_worker_has_sent_anything(system: System) -> None:
    await system.enrol("echo:a")
    silent = Hold()
    system.forwarder.plan("echo:a", silent, task(), chunk("x"), status("completed"))
    admitted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    opened = asyncio.create_task(system.hub.stream(CALLER, say(), None, admitted.set_result))
    assert await admitted == (await system.row()).id
    await silent.reached.wait()
    assert not opened.done()
    silent.release()
    (await opened).close()


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_id_is_in_the_head_for_whoever_wants_it(system: System, wanted: bool) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), chunk("x"), status("completed"))
    _, headers, body = await exchange(app_of(system), STREAM if wanted else STREAM._replace(headers=()))
    made = events(body)[0]["result"]["id"]
    assert named_task(headers) == (made if wanted else "")
    assert body.startswith(": keep-alive\n\nid: 1" if wanted else "id: 1")


async def test_a_bare_message_and_a_repeat_are_told_as_well(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", message("yes"))
    _, first, body = await exchange(app_of(system), STREAM)
    assert events(body)[0]["result"]["kind"] == "message"
    _, again, _ = await exchange(app_of(system), STREAM)
    assert named_task(first) and named_task(again) == named_task(first)


async def test_a_caller_that_names_its_tasks_itself_is_told_no_other_name(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), status("completed"))
    params = {"id": "mine", "sessionId": "s", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tasks/sendSubscribe", "params": params}
    _, headers, _ = await exchange(app_of(system), STREAM._replace(body=body))
    assert named_task(headers) == ""


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_error_names_the_task_that_it_leaves(system: System, wanted: bool) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", BROKEN)
    _, _, body = await exchange(app_of(system), STREAM if wanted else STREAM._replace(headers=()))
    (event,) = events(body)
    left = (await system.row()).id
    assert event["error"]["data"][0]["metadata"] == {"taskId": left}
    assert (await system.get(left))["status"]["state"] == "failed"
    system.forwarder.plan("echo:a", BROKEN)
    with pytest.raises(InvalidAnswer) as caught:
        await system.send("other")
    assert caught.value.task in [row.id for row in await system.rows()]


async def test_an_error_of_a_call_that_was_taken_back_names_no_task(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", REFUSED)
    _, headers, body = await exchange(app_of(system), STREAM)
    (event,) = events(body)
    assert named_task(headers) and "taskId" not in str(event["error"].get("data"))
    assert await system.rows() == []
    system.forwarder.plan("echo:a", REFUSED)
    with pytest.raises(WorkerUnreachable) as caught:
        await system.send("other")
    assert caught.value.task == ""


async def test_who_knows_the_id_sees_the_task_before_its_worker_has_sent_anything(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    silent = Hold()
    system.forwarder.plan("echo:a", silent, chunk("x"), status("completed"))
    admitted: asyncio.Future[TaskId] = asyncio.get_running_loop().create_future()
    opened = asyncio.create_task(system.hub.stream(CALLER, say(), None, admitted.set_result))
    made = await admitted
    assert (await system.get(made))["status"]["state"] == "submitted"
    silent.release()
    assert [frame["kind"] for frame in await frames(await opened)] == ["task", "artifact-update", "status-update"]
    assert (await system.get(made))["status"]["state"] == "completed"


async def test_looking_at_a_task_does_not_bind_it_to_its_worker(system: System) -> None:
    await system.enrol("echo:a")
    await system.enrol("echo:b")
    silent = Hold()
    for name in ("echo:a", "echo:b"):
        system.forwarder.plan(name, silent, REFUSED)
    for name in ("echo:a", "echo:b"):
        system.forwarder.plan(name, task(), status("completed"))
    admitted: asyncio.Future[TaskId] = asyncio.get_running_loop().create_future()
    opened = asyncio.create_task(system.hub.stream(CALLER, say(), None, admitted.set_result))
    made = await admitted
    assert (await system.get(made))["history"][0]["parts"] == [{"kind": "text", "text": "hi"}]
    silent.release()
    with pytest.raises(WorkerUnreachable):
        await opened
    assert len(set(system.forwarder.asked("deliver"))) == 2
    with pytest.raises(TaskNotFound):
        await system.get(made)
